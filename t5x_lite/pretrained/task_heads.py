"""What a model with the head of a task predicts in a notebook: classes, choices, tags, spans of a text."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.data.layouts.base import SpecialIds
from t5x_lite.data.stored_rows import stack
from t5x_lite.data.tasks.classification import LabeledText
from t5x_lite.data.tasks.multiple_choice import Choice
from t5x_lite.data.tasks.question_answering import ContextQuestion
from t5x_lite.data.tasks.tagging import TaggedSentence
from t5x_lite.errors import InputError
from t5x_lite.models.base import TASK_HEADS, TextConfig
from t5x_lite.objectives import MultipleChoice, Predictions, QuestionAnswering, Tagging, corrupt_rows
from t5x_lite.objectives.causal_tasks import CausalTask
from t5x_lite.objectives.task import TextTask
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import (
    Batch,
    Row,
    Text,
    is_one,
    map_rows,
    named_texts,
    power,
    special_ids_of,
    token_rows,
)
from t5x_lite.validation import MOST_INT

OneTask = TypeVar("OneTask", bound=TextTask)

HEADS = {
    "fill_mask": "masked_lm",
    "detect_replacements": "replaced_token",
    "classify": "classification",
    "choose": "multiple_choice",
    "tag": "tagging",
    "answer": "question_answering",
}
"""The head that each method needs."""

_ROWS = 32
_MOST_TOKENS = 8192  # of a batch: the outputs of all layers of a large model for it fill half a gigabyte


class LikelyClass(NamedTuple):
    """A class of a text and its probability."""

    label: str
    """As the data of the fine-tuning writes it; its number where that is not known."""
    probability: float


class TaggedWord(NamedTuple):
    """A word and the likeliest of its tags."""

    word: str
    tag: str
    """As the data of the fine-tuning writes it; its number where that is not known."""


class FoundAnswer(NamedTuple):
    """The likeliest answer to a question, as it stands in the text."""

    text: str
    no_answer: float
    """How much likelier no answer is than this one, in nats; meaningless where every question of the fine-tuning has an
    answer."""


@dataclass(frozen=True, repr=False)
class TaskHeads(Pretrained):
    """`classify`, `choose`, `tag` and `answer`, each with a head for it.

    A model reads texts as it was fine-tuned to. Encoders and encoder-decoders from elsewhere read `[CLS] text [SEP]`,
    and of a pair `[CLS] a [SEP] b [SEP]`, with two separators between them where the tokenizer is RoBERTa's; decoders
    read the tokens of the text alone, of which the heads read the last one, and of a pair those of both.
    """

    @property
    def task_methods(self) -> tuple[str, ...]:
        """Those of the heads that the model has."""
        return tuple(method for method, head in HEADS.items() if head in network_of(self.config, method).heads)

    def classify(self, texts: Text | list[Text]) -> list[Any]:
        """The classes of a text with their probabilities, likeliest first; a list of texts gives a list of these.

        Probabilities add up to 1 unless a Hugging Face folder says that a text may have several classes, each then with
        a probability of its own (`problem_type` "multi_label_classification").

        Raises `InputError` for a model without a classification head, and one whose head predicts a number.
        """
        self._require_head("classify")
        if self._network.num_classes == 1:
            raise InputError(
                "classify needs several classes, and the head of this model predicts a number, which "
                "task_logits(texts) gives"
            )
        answers = [
            sorted(map(LikelyClass, self._labels, probabilities), key=lambda each: -each.probability)
            for probabilities in self._class_probabilities(self.task_logits(texts)).tolist()
        ]
        return answers[0] if is_one(texts) else answers

    def task_logits(self, texts: Text | list[Text]) -> Float[np.ndarray, "B C"]:
        """The logits of each text's classes, in their order; with one class, the number that is predicted.

        Raises `InputError` for a model without a classification head.
        """
        self._require_head("classify")
        trained = self.experiment.objective if self.experiment else None
        if isinstance(trained, CausalTask):
            parts = named_texts(texts, pairs=True).values()
            documents = [LabeledText((text,) if isinstance(text, str) else text, 0.0) for text in parts]
            return self._outputs(self._task("classify", trained), documents, type(trained).logits)[0]
        return np.stack(self._apply(head_logits, self._rows(texts), "classification"))

    def choose(self, context: str, choices: list[str]) -> list[float]:
        """The probability of each of several answers to a text, in their order; together 1.

        Raises `InputError` for a model without the head, and fewer than two answers.
        """
        self._require_head("choose")
        if len(choices) < 2:
            raise InputError(f"choices={choices} leaves nothing to choose; give two or more")
        trained = self.experiment is not None and isinstance(self.experiment.objective, MultipleChoice)
        if self.config.architecture == "decoder" and not trained:
            rows = self._rows([f"{context} {choice}" for choice in choices])
            return np.asarray(jax.nn.softmax(np.stack(self._apply(head_logits, rows, "multiple_choice")))).tolist()
        objective = self._task("choose", MultipleChoice(self._length(128)))
        objective = replace(objective, num_choices=len(choices))
        logits, _ = self._outputs(objective, [Choice(context, tuple(choices), 0)], type(objective).logits)
        return np.asarray(jax.nn.softmax(logits))[0].tolist()

    def tag(self, sentences: str | list[str] | list[list[str]]) -> list[Any]:
        """The tag of each word of a sentence, a string or a list of words; a list of sentences gives a list.

        Raises `InputError` for a model without the head, and a sentence without words.
        """
        self._require_head("tag")
        objective = self._task("tag", Tagging(self._length(128)))
        one = isinstance(sentences, str)
        words = [text.split() if isinstance(text, str) else list(text) for text in ([sentences] if one else sentences)]
        if empty := [number for number, some in enumerate(words) if not some]:
            raise InputError(f"sentences[{empty[0]}] has no words; leave it out")
        documents = [TaggedSentence(tuple(some), (0,) * len(some)) for some in words]
        predictions = self._predictions(objective, documents)
        tagged = [list(map(TaggedWord, *pair)) for pair in zip(words, predictions.predicted, strict=True)]
        return tagged[0] if one else tagged

    def answer(self, question: str, context: str) -> FoundAnswer:
        """The likeliest answer to a question among the spans of a text of any length.

        Raises `InputError` for a model without the head.
        """
        self._require_head("answer")
        length = self._length(384)
        objective = self._task("answer", QuestionAnswering(length, max(length // 3, 1), max(length // 4, 1)))
        predictions = self._predictions(objective, [ContextQuestion("", question, context, (), ())])
        return FoundAnswer(predictions.predicted[0], predictions.no_answer[0])

    @property
    def _network(self) -> TextConfig:
        return network_of(self.config)

    @property
    def _pad_id(self) -> int:
        pad_id = None if self.tokenizer else getattr(self._network, "pad_id", None)  # positions may depend on it
        return self._vocabulary.pad_id if pad_id is None else pad_id

    @property
    def _labels(self) -> tuple[str, ...]:
        """The names of the classes, as far as they are known."""
        count, known = self._network.num_classes, self._class_names
        return known if len(known) == count else tuple(map(str, range(count)))

    def _length(self, usual: int) -> int:
        """The usual length of rows, or as much as the model takes."""
        return min(usual, self._network.max_length or usual)

    def _rows(self, texts: Any) -> list[Row]:
        return token_rows(self._tokenizer(), texts, self._longest, self._special_ids)

    @property
    def _longest(self) -> int:
        """Ids that the model takes."""
        return self._network.max_length or MOST_INT

    @property
    def _special_ids(self) -> SpecialIds:
        """Those around a text."""
        vocabulary = self._tokenizer().vocabulary
        if self._network.texts_begin_with_cls:
            return special_ids_of(vocabulary)
        return SpecialIds(None, vocabulary.eos_id, vocabulary.pad_id)

    def _apply(self, function: Callable[..., Any], rows: list[Row], *options: Any) -> list[Any]:
        """What `function(module, batch, *options)` gives for each row."""

        def apply(indices: list[int], batch: Batch) -> Any:
            return _apply_function(self.module, function, options, self.params, batch)

        longest = self._network.max_length
        return map_rows(apply, rows, pad_id=self._pad_id, longest=longest, most_tokens=_MOST_TOKENS)

    def _task(self, method: str, objective: OneTask) -> OneTask:
        """The objective that the model was fine-tuned by, where its type is the same, or else this one."""
        self._require_head(method)
        trained = self.experiment.objective if self.experiment else None
        objective = trained if isinstance(trained, type(objective)) else objective
        return objective.for_vocabulary(self._tokenizer().vocabulary)

    def _predictions(self, objective: TextTask, documents: list[Any]) -> Predictions:
        outputs, features = self._outputs(objective, documents, type(objective).prediction_outputs)
        return objective.predictions(outputs, features, documents, self._tokenizer(), self._labels)

    def _outputs(
        self, objective: TextTask, documents: list[Any], function: Callable[..., Array]
    ) -> tuple[np.ndarray, Any]:
        """What a method of the objective gives for the rows of examples, and their features."""
        module, params = self.module, self.params
        if self.config.networks:
            module, params = self._network.build(), params["discriminator"]
        builder = objective.layout.start(self._tokenizer().vocabulary)
        for pieces in objective.layout.tokenize(documents, self._tokenizer(), "punctuation"):
            builder.add(pieces)
        builder.finish()
        rows, parts = builder.take(), []
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            # As many rows as a power of two, so that few shapes are compiled.
            filled = stack([some[number % len(some)] for number in range(power(len(some), 1))])
            outputs = jax.device_get(_task_outputs(function, objective, module, params, filled))
            parts.append(jax.tree.map(itemgetter(slice(len(some))), outputs))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *parts)

    def _require_head(self, method: str) -> None:
        """Raises `InputError` where the network that follows a method lacks the head for it."""
        config = network_of(self.config, method)
        if HEADS[method] not in config.heads:
            raise InputError(
                f"{method} needs the head {HEADS[method]}, and this {type(config).__name__} has heads={config.heads}; "
                f"use {' and '.join(self.abilities)}, or load a model with that head"
            )


def network_of(model: Any, method: str = "encode") -> Any:
    """The network of a config or a module that follows a method: of ELECTRA's two the generator fills in masks and the
    discriminator does the rest."""
    return getattr(model, "generator" if method == "fill_mask" else "discriminator", model)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _apply_function(
    module: nn.Module, function: Callable[..., Any], options: tuple[Any, ...], params: Any, batch: Batch
) -> Any:
    return module.apply({"params": params}, batch, *options, method=function)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _task_outputs(
    function: Callable[..., Array], objective: TextTask, module: nn.Module, params: Any, batch: Any
) -> tuple[Array, Any]:
    features = corrupt_rows(objective.for_evaluation(), jax.random.key(0), batch)
    return function(objective, module, params, features), features


def head_logits(module: nn.Module, batch: Batch, head: str) -> Float[Array, "B *_"]:
    """The logits of a head of the network that follows it; a function for `_apply`."""
    model = network_of(module)
    hidden = model.hidden_states(batch.ids, batch.segments, inputs_valid=batch.valid)
    options = {"inputs_valid": batch.valid} if head in TASK_HEADS else {}
    return getattr(model, f"{head}_logits")(hidden, **options)
