"""Questions whose answers are looked up in a corpus (Lee et al. 2019, section 3; Guu et al. 2020, section 3.2)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.open_questions import OpenQuestion, OpenQuestionLayout
from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Predictions, Row, row_weights
from t5x_lite.objectives.retrieval import Retrieval, Retrieved
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.retrieval.index import Corpus, ParamsAndCorpus
from t5x_lite.retrieval.inner_products import search
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import NonNegative, Positive, Range

_TOGETHER = 64
"""Passages of each question whose spans are compared with its answers at a time."""


class Read(NamedTuple):
    """What a model finds for questions, and what it makes of each span of it."""

    found: Retrieved
    ids: Int[Array, "B k L"]
    """Each question with each of its passages in a row."""
    scores: Float[Array, "B k L W"]
    """Of the spans that begin at each position and have 1 to W tokens: the passage's inner product and the reader's
    score; `MASKED_LOGIT` outside the passage."""


@dataclass(frozen=True)
class OpenQuestionAnswering(Retrieval, TaskObjective):
    """The answer to a question is a span of one of the k passages that are found for it.

    The loss is the negative logarithm of the probability of all spans that read as an answer, among all spans of the k
    passages: a softmax of each passage's inner product plus the reader's score (Lee et al. 2019, section 3); and of the
    passages that hold an answer, among the `num_scored` best ones by the index (section 4.1 there). A question without
    an answer in these has no part in either. Features are the columns of a row.

    `recall` is the share of questions with an answer in one of the k passages, `exact_match` that of those whose
    likeliest span reads as one.
    """

    num_retrieved: Positive = 5
    """k: passages that are read with each question."""
    refresh_every: NonNegative = 0
    """See `Retrieval`; 0, as the papers have it: the passages' vectors stay as they are, and the questions' encoder
    learns to find them."""
    input_length: Annotated[int, Range(ge=8)] = 64
    """Ids of a question, special ones and padding included; the ends of longer ones are cut."""
    num_answers: Positive = 8
    """Right answers to a question that are learned, at most: the first ones."""
    answer_length: Positive = 10
    """W: tokens of an answer, at most."""
    num_scored: NonNegative = 5000
    """Passages whose inner products alone are learned from, at most; 0 learns from those that are read alone."""

    unit: ClassVar[Literal["token", "word", "example", "window"]] = "example"
    submissions: ClassVar[tuple[str, ...]] = ("jsonl",)

    @cached_property
    def layout(self) -> Layout:
        return OpenQuestionLayout(self.input_length, self.num_answers, self.answer_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """The columns of a row, `ids` as `inputs`; nothing is random."""
        self.check_row(row)
        return {"inputs": row["ids"], "answers": row["answers"]}

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: DropoutKey,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> Loss:
        rngs = None if key is None else {"dropout": key}
        return module.apply(
            {"params": params}, method=lambda model: self._loss(model, features, frozen, key), rngs=rngs
        )

    def _loss(self, model: nn.Module, features: Features, corpus: Corpus, key: DropoutKey) -> Loss:
        weights, vocabulary = row_weights(features), self.known_vocabulary
        questions = self.embed_questions(model, features["inputs"], key)
        read = self._read(model, questions, features["inputs"], corpus, key)
        correct = jax.vmap(lambda ids, answers: spans_that_read(ids, answers, vocabulary.pad_id))(
            read.ids, features["answers"]
        )
        correct &= read.scores > MASKED_LOGIT
        scores, correct = (x.reshape(len(weights), -1) for x in (read.scores, correct))
        total = (_likelihood(scores, correct) * weights).sum()
        best = jnp.take_along_axis(correct, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
        metrics = {"exact_match": (best * weights).sum(), "recall": (correct.any(axis=1) * weights).sum()}
        if self.num_scored:
            of_passages, there = self._likelihood_of_passages(questions, features["answers"], corpus)
            total += (of_passages * weights).sum()
            metrics[f"recall_at_{there.shape[1]}"] = (there.any(axis=1) * weights).sum()
        return total, weights.sum(), {"loss": total} | metrics

    def _likelihood_of_passages(
        self, questions: Float[Array, "B E"], answers: Int[Array, "B A W"], corpus: Corpus
    ) -> tuple[Float[Array, "B"], Bool[Array, "B n"]]:
        """Of the best passages by the index, those with an answer among all; and which these are."""
        count = min(self.num_scored, self.num_passages)
        found = search(
            jax.lax.stop_gradient(questions),
            corpus.vectors,
            count,
            num_passages=self.num_passages,
            approximate=self.approximate_search,
        )
        numbers, pad_id = jnp.maximum(found.passages, 0), self.known_vocabulary.pad_id
        scores = jnp.einsum("be,bne->bn", questions, corpus.vectors[numbers], precision=jax.lax.Precision.HIGHEST)

        def hold_answers(passages: Integer[Array, "B L"]) -> Bool[Array, "B"]:
            spans = jax.vmap(spans_that_read, (0, 0, None))(passages.astype(jnp.int32), answers, pad_id)
            return spans.any(axis=(1, 2))

        # Some passages at a time, which are gathered before: all spans of all of them would be compared at once, and
        # what devices send each other is better not in a loop.
        passages = corpus.ids[numbers].swapaxes(0, 1)
        there = jax.lax.map(hold_answers, passages, batch_size=min(_TOGETHER, count)).swapaxes(0, 1)
        return _likelihood(scores, there), there

    def _read(
        self,
        model: nn.Module,
        questions: Float[Array, "B E"],
        inputs: Int[Array, "B Q"],
        corpus: Corpus,
        key: DropoutKey,
    ) -> Read:
        found = self.retrieve(model, questions, corpus, key)
        joint = self.joined(inputs, found.passages)
        hidden = model.read(joint, deterministic=key is None)
        scores = model.answer_scores(hidden, joint.in_passage(), self.answer_length)
        scores = scores.reshape(*found.scores.shape, *scores.shape[1:])
        scores = jnp.where(scores > MASKED_LOGIT, scores + found.scores[..., None, None], MASKED_LOGIT)
        return Read(found, joint.ids.reshape(*found.scores.shape, -1), scores)

    def read(self, module: nn.Module, params: Any, inputs: Int[Array, "B Q"], corpus: Corpus) -> Read:
        """What the model finds for questions, and the scores of all spans of it; deterministic."""

        def compute(model: nn.Module) -> Read:
            return self._read(model, self.embed_questions(model, inputs, None), inputs, corpus, None)

        return module.apply({"params": params}, method=compute)

    def logits(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B k L W"]:
        """The scores of all spans of the passages found; `params` are `ParamsAndCorpus`."""
        return self.read(module, params.params, features["inputs"], params.corpus).scores

    def predict(self, module: nn.Module, params: ParamsAndCorpus, features: Features) -> Int[Array, "B W"]:
        """The ids of the likeliest span of each question, and padding; `params` are `ParamsAndCorpus`."""
        read = self.read(module, params.params, features["inputs"], params.corpus)
        return best_spans(read, self.known_vocabulary.pad_id)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B W"]:
        return self.predict(module, params, features)

    def predicts(self, model: ModelConfig) -> str:
        return "spans"

    def predictions(
        self,
        outputs: Int[np.ndarray, "N W"],
        features: Mapping[str, np.ndarray],
        documents: Iterable[OpenQuestion],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """The likeliest span of each question as text."""
        pad_id = tokenizer.vocabulary.pad_id
        texts = [tokenizer.decode(ids[ids != pad_id]).strip() for ids in outputs]
        examples = [one for _, one in zip(outputs, documents, strict=False)]
        names = [str(number) if one.name is None else one.name for number, one in enumerate(examples)]
        return Predictions("spans", texts, [list(one.answers) for one in examples], names, [0.0] * len(texts))

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("squad",)

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        read = self.read(module, params.params, features["inputs"], params.corpus)
        best = {"predicted": best_spans(read, self.known_vocabulary.pad_id), "passages": read.found.passages}
        return features | best

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The question, its first answer, the model's, and the best passage that was found."""
        question, predicted = (tokenizer.decode(row[name]) for name in ("inputs", "predicted"))
        lines = {
            "question": question,
            "answer": tokenizer.decode(row["answers"][0]),
            "model": predicted,
            "passage": tokenizer.decode(row["passages"][0]),
        }
        return "".join(f"{name + ':':<10}{text}\n" for name, text in lines.items())

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of a model that finds all spans of k full passages alike, and all passages it scores, one of which
        is correct."""
        return float(np.log(self.num_retrieved * self.passage_length * self.answer_length)) + (
            float(np.log(min(self.num_scored, self.num_passages))) if self.num_scored else 0.0
        )

    def check_model(self, model: ModelConfig) -> None:
        super().check_model(model)
        self.check_reader(model, self.input_length)
        if not model.answer_dim:
            raise InputError("model.answer_dim=0 scores no answers; choose e.g. 256 for OpenQuestionAnswering")


def spans_that_read(ids: Int[Array, "*batch L"], answers: Int[Array, "A W"], pad_id: int) -> Bool[Array, "*batch L W"]:
    """Which spans of rows of ids are one of the answers: by the position of their first token, and their length from 1.

    >>> rows = spans_that_read(jnp.array([[7, 8, 9, 7]]), jnp.array([[8, 9], [7, 0], [0, 0]]), 0)
    >>> rows.astype(int).tolist()
    [[[1, 0], [0, 1], [0, 0], [1, 0]]]
    """
    length, width = ids.shape[-1], answers.shape[1]
    before = (1,) * (ids.ndim - 1)
    lengths = (answers != pad_id).sum(axis=1).reshape(*before, 1, -1)
    alike = jnp.ones((*ids.shape, len(answers)), bool)
    found = []
    for offset in range(width):
        later = jnp.roll(ids, -offset, axis=-1)
        inside = (jnp.arange(length) + offset < length).reshape(*before, -1, 1)
        alike &= (later[..., None] == answers[:, offset].reshape(*before, 1, -1)) & inside
        found.append((alike & (lengths == offset + 1)).any(axis=-1))
    return jnp.stack(found, axis=-1)


def best_spans(read: Read, pad_id: int) -> Int[Array, "B W"]:
    """The ids of the best span of each question, and padding after them."""
    rows, _, length, width = read.scores.shape
    best = read.scores.reshape(rows, -1).argmax(axis=1)
    passage, start, size = best // (length * width), best // width % length, best % width + 1
    ids = jnp.take_along_axis(read.ids, passage[:, None, None], axis=1)[:, 0]
    offsets = jnp.arange(width)[None]
    taken = jnp.minimum(start[:, None] + offsets, length - 1)
    return jnp.where(offsets < size[:, None], jnp.take_along_axis(ids, taken, axis=1), pad_id)


def _likelihood(scores: Float[Array, "B n"], correct: Bool[Array, "B n"]) -> Float[Array, "B"]:
    """The negative logarithm of the probability of what is correct, by a softmax; 0 where nothing is."""
    some = correct.any(axis=1)
    of_correct = jax.nn.logsumexp(jnp.where(correct, scores, MASKED_LOGIT), axis=1)
    return jnp.where(some, jax.nn.logsumexp(scores, axis=1) - of_correct, 0.0)
