"""What a document is to a format: how a source is read for it, and what the tokenizer makes of it."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from t5x_lite.data.layouts.sentences import SentenceRule, split_sentences
from t5x_lite.data.records.pairs import PairSource
from t5x_lite.data.records.text import Source
from t5x_lite.data.tasks.classification import LabeledText, LabeledTexts
from t5x_lite.data.tasks.multiple_choice import Choice, Choices
from t5x_lite.data.tasks.question_answering import ContextQuestion, Questions
from t5x_lite.data.tasks.tagging import TaggedSentence, TaggedWords
from t5x_lite.tokenizers.base import Tokenizer

Document = Any
"""A text, a pair of texts, or an example of a task."""

Pieces = list[np.ndarray]
"""A document as `RowBuilder.add` takes it: arrays of int32."""


class Reader(abc.ABC):
    """Documents of one kind."""

    needs: ClassVar[type[Source]] = Source
    """The sources that have such documents."""
    what: ClassVar[str] = "text"
    """What those sources have and others have not."""
    remedy: ClassVar[str] = ""
    """How to come by such a source."""

    @abc.abstractmethod
    def documents(self, source: Any) -> Iterator[Document]:
        """Those of a source, in its order."""

    @abc.abstractmethod
    def content(self, document: Document) -> str:
        """The texts of a document as one: equal documents are the same, whatever their labels."""

    @abc.abstractmethod
    def tokenize(self, documents: list[Document], tokenizer: Tokenizer) -> Iterator[Pieces]:
        """Each document's ids, and what else the rows hold."""

    def asked(self, document: Document) -> tuple[str, str] | None:
        """(what is asked, what is right) of an example, as texts; None for running text."""
        return None


class Texts(Reader):
    """Texts in one piece."""

    def documents(self, source: Source) -> Iterator[str]:
        return source.documents()

    def content(self, document: str) -> str:
        return document

    def tokenize(self, documents: list[str], tokenizer: Tokenizer) -> Iterator[Pieces]:
        return ([ids] for ids in tokenizer.encode_batch(documents))


class SentenceTokenizer(Texts):
    """Texts, sentence by sentence."""

    def __init__(self, rule: SentenceRule) -> None:
        self.rule: SentenceRule = rule

    def tokenize(self, documents: list[str], tokenizer: Tokenizer) -> Iterator[Pieces]:
        return _encode([_with_blanks(split_sentences(text, self.rule)) for text in documents], tokenizer)


class TextToTextTokenizer(Reader):
    """A source and a target."""

    needs = PairSource
    what = "pairs"
    remedy = "give TsvPairs, JsonlPairs, ParallelFiles or TfdsPairs (--pairs on the command line)"

    def documents(self, source: PairSource) -> Iterator[tuple[str, str]]:
        return source.pairs()

    def content(self, document: tuple[str, str]) -> str:
        return "\0".join(document)

    def asked(self, document: tuple[str, str]) -> tuple[str, str]:
        return document

    def tokenize(self, documents: list[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[Pieces]:
        sources, targets = map(list, zip(*documents, strict=True))
        sides = tokenizer.encode_batch(sources), tokenizer.target_side.encode_batch(targets)
        return map(list, zip(*sides, strict=True))


class ClassificationTokenizer(Reader):
    """One text or two; behind their ids the halves of the label (see `halves`)."""

    needs = LabeledTexts
    what = "labels"
    remedy = "give LabeledTexts"

    def documents(self, source: LabeledTexts) -> Iterator[LabeledText]:
        return source.labeled()

    def content(self, document: LabeledText) -> str:
        return "\0".join(document.texts)

    def asked(self, document: LabeledText) -> tuple[str, str]:
        return self.content(document), str(document.label)

    def tokenize(self, documents: list[LabeledText], tokenizer: Tokenizer) -> Iterator[Pieces]:
        texts = _encode([document.texts for document in documents], tokenizer)
        return ([*ids, halves(document.label)] for ids, document in zip(texts, documents, strict=True))


class TaggingTokenizer(Reader):
    """Words: the ids of all of them, how many each has, and their tags by number.

    Of a word that the tokenizer sees nothing in, the unknown token stands.
    """

    needs = TaggedWords
    what = "tags"
    remedy = "give TaggedWords"

    def documents(self, source: TaggedWords) -> Iterator[TaggedSentence]:
        return source.tagged()

    def content(self, document: TaggedSentence) -> str:
        return " ".join(document.words)

    def asked(self, document: TaggedSentence) -> tuple[str, str]:
        return self.content(document), str(document.tags)

    def tokenize(self, documents: list[TaggedSentence], tokenizer: Tokenizer) -> Iterator[Pieces]:
        unknown = np.array([tokenizer.vocabulary.unk_id], np.int32)
        words = _encode([_with_blanks(document.words) for document in documents], tokenizer)
        for of_words, document in zip(words, documents, strict=True):
            pieces = [ids if len(ids) else unknown for ids in of_words]
            sizes, tags = np.array([len(ids) for ids in pieces], np.int32), np.array(document.tags, np.int32)
            yield [np.concatenate(pieces), sizes, tags]


class QuestionAnsweringTokenizer(Reader):
    """A question and a text that answers it: the ids of both, and the first and the last token of the first answer,
    counted in the text; none where there is no answer."""

    needs = Questions
    what = "questions"
    remedy = "give Questions"

    def documents(self, source: Questions) -> Iterator[ContextQuestion]:
        return source.questions()

    def content(self, document: ContextQuestion) -> str:
        # The questions on one text stay on one side of a split.
        return document.context

    def asked(self, document: ContextQuestion) -> tuple[str, str]:
        return f"{document.question}\0{document.context}", "\0".join(document.answers[:1])

    def tokenize(self, documents: list[ContextQuestion], tokenizer: Tokenizer) -> Iterator[Pieces]:
        texts = list(dict.fromkeys(document.context for document in documents))
        contexts = dict(zip(texts, tokenizer.encode_with_offsets(texts), strict=True))
        questions = tokenizer.encode_batch([document.question for document in documents])
        for document, question in zip(documents, questions, strict=True):
            ids, spans = contexts[document.context]
            answer = np.empty(0, np.int32)
            if document.answers:
                answer = _tokens_of(spans, document.starts[0], document.starts[0] + len(document.answers[0]))
            yield [question, ids, answer]


class MultipleChoiceTokenizer(Reader):
    """A text and several answers: the ids of the text, those of each answer, and which is right."""

    needs = Choices
    what = "choices"
    remedy = "give Choices"

    def documents(self, source: Choices) -> Iterator[Choice]:
        return source.chosen()

    def content(self, document: Choice) -> str:
        return "\0".join((document.context, *document.choices))

    def asked(self, document: Choice) -> tuple[str, str]:
        return self.content(document), str(document.label)

    def tokenize(self, documents: list[Choice], tokenizer: Tokenizer) -> Iterator[Pieces]:
        texts = _encode([(document.context, *document.choices) for document in documents], tokenizer)
        return ([*ids, np.array([document.label], np.int32)] for ids, document in zip(texts, documents, strict=True))


def halves(number: float) -> np.ndarray:
    """A float32 as two ids of 16 bits, int32 [2], which any store of ids can hold: see `formats.Labeled.label_of`.

    >>> halves(2.5).tolist()
    [16416, 0]
    """
    bits = int(np.float32(number).view(np.uint32))
    return np.array([bits >> 16, bits & 0xFFFF], np.int32)


def _encode(documents: Sequence[Sequence[str]], tokenizer: Tokenizer) -> Iterator[Pieces]:
    """The ids of every text of each document."""
    ids = iter(tokenizer.encode_batch([text for document in documents for text in document]))
    return ([next(ids) for _ in document] for document in documents)


def _with_blanks(texts: Sequence[str]) -> tuple[str, ...]:
    """Sentences or words as they stand in running text, for tokenizers to which " The" and "The" are two."""
    return (*texts[:1], *(f" {text}" for text in texts[1:]))


def _tokens_of(spans: np.ndarray, start: int, end: int) -> np.ndarray:
    """The first and the last token [2] that have a part in some characters; empty where none has.

    >>> _tokens_of(np.array([[0, 3], [3, 7], [8, 9]]), 4, 9).tolist()
    [1, 2]
    """
    found = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start))
    return found[[0, -1]].astype(np.int32) if len(found) else np.empty(0, np.int32)
