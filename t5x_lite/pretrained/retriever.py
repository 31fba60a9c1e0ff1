"""A model that looks things up, in a notebook: the passages that it finds for a question, and its answer."""

import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from t5x_lite.data.layouts.passages import Passages
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.errors import InputError
from t5x_lite.models.realm import passage_vectors, question_vectors
from t5x_lite.objectives import InverseCloze, OpenQuestionAnswering
from t5x_lite.objectives.retrieval import Retrieval
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import named_texts, power, special_ids_of
from t5x_lite.retrieval import Corpus, search
from t5x_lite.tokenizers.vocabulary import Vocabulary

_ROWS = 64  # texts of a batch


class FoundPassage(NamedTuple):
    """A passage of the corpus."""

    text: str
    score: float
    """The inner product of its vector and the question's."""
    number: int
    """Which of the passages it is, from 0."""


@dataclass(frozen=True, repr=False)
class FoundPassages(Sequence[FoundPassage]):
    """The passages that a model finds for a question, the best first; a notebook shows a table."""

    question: str
    passages: tuple[FoundPassage, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.passages[index]

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self.passages)

    def __repr__(self) -> str:
        return "\n".join((f"FoundPassages for {self.question!r}:", *map(_line, self.passages)))

    def _repr_html_(self) -> str:
        return _table(self.question, "", self.passages)


@dataclass(frozen=True, repr=False)
class OpenAnswer:
    """An answer, and the passages that were read for it; a notebook shows a table in which it is marked."""

    question: str
    text: str
    """A span of the best passage."""
    probability: float
    """Of that span, among all spans of the passages."""
    passage: FoundPassage
    """The one that the answer stands in."""
    passages: tuple[FoundPassage, ...]
    """All that were read, the best found first."""

    def __repr__(self) -> str:
        answer = f"OpenAnswer to {self.question!r}: {self.text!r} ({self.probability:.0%}), in {self.passage.number} of"
        return "\n".join((answer, *map(_line, self.passages)))

    def _repr_html_(self) -> str:
        answer = f"{self.text} ({self.probability:.0%})"
        return _table(self.question, answer, self.passages, self.passage.number, self.text)


def _line(passage: FoundPassage) -> str:
    return f"  {passage.score:8.2f}  {passage.number:6}  {textwrap.shorten(passage.text, 90, placeholder=' ...')}"


def _table(
    question: str, answer: str, passages: Sequence[FoundPassage], marked: int | None = None, span: str = ""
) -> str:
    """Passages as a table of HTML."""
    rows = []
    for one in passages:
        text = html.escape(one.text)
        if one.number == marked and span:
            text = text.replace(html.escape(span), f"<mark>{html.escape(span)}</mark>", 1)
        cells = f"<td>{one.score:.2f}</td><td>{one.number}</td>"
        rows.append(f'<tr>{cells}<td style="text-align: left">{text}</td></tr>')
    title = f"<b>{html.escape(question)}</b>" + (f"<br>{html.escape(answer)}" if answer else "")
    head = "<tr><th>score</th><th>number</th><th>passage</th></tr>"
    return f"<p>{title}</p><table>{head}{''.join(rows)}</table>"


@dataclass(frozen=True, repr=False)
class PretrainedRetriever(Pretrained):
    """`retrieve` for passages, and `answer` for questions where the model has learned any (Guu et al. 2020).

    The passages are those of the run's corpus, which are encoded by the parameters as they are when they are needed
    first; `with_texts` gives a model that has others.
    """

    library: Corpus | None = None
    """Other passages than those of the run."""

    @property
    def abilities(self) -> tuple[str, ...]:
        reads = self.config.reader is not None and self.config.answer_dim
        return (
            ("retrieve", "answer", "with_texts", "embed_texts") if reads else ("retrieve", "with_texts", "embed_texts")
        )

    def with_texts(
        self, texts: str | list[str], *, passage_length: int | None = None, sentences: SentenceRule = "punctuation"
    ) -> "PretrainedRetriever":
        """This model with other texts to look things up in, cut into passages of whole sentences.

        Args:
          texts: one or more, of any length.
          passage_length: ids of a passage, at most; by default as in the run, elsewhere 288.
          sentences: see `data.split_sentences`.

        Raises `InputError` for what is no text, and passages that are longer than the model reads.
        """
        tokenizer, length = self._tokenizer(), self._passage_length if passage_length is None else passage_length
        most = self.config.encoder.max_length - 2
        if type(length) is not int or not 4 <= length <= most:
            raise InputError(f"passage_length={length} is out of range; choose 4 to {most}")
        layout, documents = Passages(length), list(named_texts(texts).values())
        rows = layout.start(tokenizer.vocabulary)
        for document in layout.tokenize(documents, tokenizer, sentences):
            rows.add(document)
        passages = [row["ids"] for row in rows.take()]
        if not passages:
            raise InputError("texts hold no word; give some")
        ids = np.stack(passages)
        return replace(self, library=Corpus(ids, self._encoded(ids)))

    def retrieve(self, question: str, k: int = 5) -> FoundPassages:
        """The k passages with the largest inner products, exactly.

        Raises `InputError` for an empty question, a long one, and a `k` that is out of range.
        """
        found = self._search(self._question_ids(question), k)
        return FoundPassages(question, self._passages(found))

    def answer(self, question: str, k: int | None = None) -> OpenAnswer:
        """The likeliest answer among the spans of the k passages that are found; by default as many as in the run.

        Raises `InputError` as `retrieve` does, and for a model that has not learned to answer.
        """
        if not self.config.answer_dim:
            self._refuse("answer")
        objective, longest = self._answering, self._corpus.ids.shape[1]
        k = min(objective.num_retrieved, self.num_passages) if k is None else k
        _check_k(k, self.num_passages)
        # Beside a passage and what closes it.
        ids = self._question_ids(question, room=self.config.reader.max_length - longest - 1)
        objective = replace(objective, num_retrieved=k, corpus_size=self.num_passages, refresh_every=0)
        read = jax.device_get(_read(objective, self.module, self.params, ids[None], self._corpus))
        scores = read.scores[0]
        passage, start, size = np.unravel_index(int(scores.argmax()), scores.shape)
        probability = float(np.exp(scores.max() - logsumexp(scores)))
        passages = self._passages((read.found.scores[0], read.found.numbers[0]))
        text = self._tokenizer().decode_span(read.ids[0, passage], int(start), int(start + size)).strip()
        return OpenAnswer(question, text, probability, passages[int(passage)], passages)

    def embed_texts(self, texts: str | list[str], *, questions: bool = False) -> Float[np.ndarray, "*B E"]:
        """Vectors of passages, or of questions: [B E] for a list, [E] for one. Raises `InputError` for long ones."""
        named = named_texts(texts)
        # What encodes passages puts the special ids around them.
        read = self._question_ids if questions else self._text_ids
        ids = [read(text, name) for name, text in named.items()]
        length = max(map(len, ids))
        rows = np.full((len(ids), length), self.tokenizer.vocabulary.pad_id, np.int32)
        for row, one in zip(rows, ids, strict=True):
            row[: len(one)] = one
        vocabulary, parts = self.tokenizer.vocabulary, []
        for start in range(0, len(rows), _ROWS):
            parts.append(
                np.asarray(_embed(self.module, self.params, rows[start : start + _ROWS], questions, vocabulary))
            )
        vectors = np.concatenate(parts)
        return vectors[0] if isinstance(texts, str) else vectors

    @property
    def num_passages(self) -> int:
        """Of the texts to look things up in: the largest `k`. Raises `InputError` for a model without texts."""
        return len(self._corpus.ids)

    @cached_property
    def _corpus(self) -> Corpus:
        if self.library is not None:
            return self.library
        experiment = self.experiment
        if experiment is None or not isinstance(experiment.objective, Retrieval | InverseCloze):
            raise InputError("this model came without passages to look things up in; give some by with_texts(texts)")
        objective, tokenizer = experiment.objective, self._tokenizer()
        layout = Passages(objective.passage_length)
        passages = experiment.data.prepare_corpus(layout, objective.layout, tokenizer=tokenizer)
        ids = np.full((len(passages), layout.length), tokenizer.vocabulary.pad_id, np.int32)
        passages.fill(ids)
        return Corpus(ids, self._encoded(ids))

    @property
    def _passage_length(self) -> int:
        objective = self.experiment.objective if self.experiment else None
        most = self.config.encoder.max_length - 2
        if self.config.reader is not None:
            most = min(most, self.config.reader.max_length - self._question_length - 1)
        return min(getattr(objective, "passage_length", 288), most)

    @property
    def _question_length(self) -> int:
        objective = self.experiment.objective if self.experiment else None
        return min(getattr(objective, "input_length", 64), self.config.encoder.max_length)

    @cached_property
    def _answering(self) -> OpenQuestionAnswering:
        """How the run reads passages for a question."""
        objective = self.experiment.objective if self.experiment else None
        if not isinstance(objective, OpenQuestionAnswering):
            objective = OpenQuestionAnswering(self._passage_length, input_length=self._question_length)
        return objective.for_vocabulary(self._tokenizer().vocabulary)

    def _question_ids(self, question: str, name: str = "question", room: int | None = None) -> Int[np.ndarray, "Q"]:
        """A text with its special ids, padded to one of few lengths, at most `room`."""
        most = self.config.encoder.max_length if room is None else min(room, self.config.encoder.max_length)
        ids, special = self._text_ids(question, name, most), special_ids_of(self._tokenizer().vocabulary)
        return special.join(min(power(special.count(1) + len(ids), 16), most), ids)

    def _text_ids(self, text: str, name: str, most: int | None = None) -> Int[np.ndarray, "Q"]:
        """The ids of a text, which with special ones are `most`, by default as many as an encoder reads."""
        tokenizer = self._tokenizer()
        ids = tokenizer.encode(text) if isinstance(text, str) else []
        if not len(ids):
            raise InputError(f"{name}={text!r} holds no word; write some")
        most = self.config.encoder.max_length if most is None else most
        size = special_ids_of(tokenizer.vocabulary).count(1) + len(ids)
        if size > most:
            raise InputError(f"{name} has {size} tokens, special ones included, and the model takes {most}; shorten it")
        return np.asarray(ids, np.int32)

    def _search(self, ids: Int[np.ndarray, "Q"], k: int) -> tuple[np.ndarray, np.ndarray]:
        """(scores, numbers) of the k best passages."""
        _check_k(k, self.num_passages)
        vector = _embed(self.module, self.params, ids[None], True, self.tokenizer.vocabulary)
        found = jax.device_get(_find(vector, self._corpus.vectors, k))
        return found.scores[0], found.passages[0]

    def _passages(self, found: tuple[np.ndarray, np.ndarray]) -> tuple[FoundPassage, ...]:
        tokenizer, corpus = self._tokenizer(), self._corpus
        passages = []
        for score, number in zip(*found, strict=True):
            ids = corpus.ids[number]
            text = tokenizer.decode(ids[ids != tokenizer.vocabulary.pad_id]).strip()
            passages.append(FoundPassage(text, float(score), int(number)))
        return tuple(passages)

    def _encoded(self, ids: Int[np.ndarray, "P L"]) -> Float[Array, "P E"]:
        """The vectors of passages, batch by batch."""
        vocabulary, parts = self._tokenizer().vocabulary, []
        for start in range(0, len(ids), _ROWS):
            batch = ids[start : start + _ROWS]
            # The last batch is filled up, where there are several.
            filled = np.resize(batch, (_ROWS, ids.shape[1])) if len(ids) > _ROWS else batch
            vectors = _embed(self.module, self.params, filled, False, vocabulary)
            parts.append(vectors[: len(batch)])
        return jax.numpy.concatenate(parts)


def _check_k(k: Any, count: int) -> None:
    if type(k) is not int or not 1 <= k <= count:
        raise InputError(f"k={k} is out of range; choose 1 to {count}, the number of passages")


@partial(jax.jit, static_argnums=(0, 3, 4))
def _embed(
    module: nn.Module, params: Any, ids: Int[Array, "B L"], questions: bool, vocabulary: Vocabulary
) -> Float[Array, "B E"]:
    function = question_vectors if questions else passage_vectors
    return module.apply({"params": params}, method=lambda model: function(model, ids, vocabulary))


@partial(jax.jit, static_argnums=2)
def _find(vector: Float[Array, "1 E"], vectors: Float[Array, "P E"], k: int) -> Any:
    return search(vector, vectors, k)


@partial(jax.jit, static_argnums=(0, 1))
def _read(
    objective: OpenQuestionAnswering, module: nn.Module, params: Any, ids: Int[Array, "1 Q"], corpus: Corpus
) -> Any:
    return objective.read(module, params, ids, corpus)
