"""The documents of a source as a row format reads them: in one piece, by sentences, as pairs, or examples of a task."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from t5x_lite.data.formats import RowFormat
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.readers import (
    ClassificationTokenizer,
    Document,
    MultipleChoiceTokenizer,
    QuestionAnsweringTokenizer,
    Reader,
    SentenceTokenizer,
    TaggingTokenizer,
    Texts,
    TextToTextTokenizer,
)
from t5x_lite.data.records.text import Source
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer

_CHUNK_CHARACTERS = 2 << 20


@dataclass(frozen=True)
class Documents:
    """A source and how it is read; raises `InputError` where the source has none of what the format reads."""

    source: Source
    format: RowFormat
    sentences: SentenceRule
    """Where sentences end, for formats that read them."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, self.reader.needs):
            raise InputError(
                f"source={type(self.source).__name__}(...) has no {self.reader.what}, of which "
                f"{type(self.format).__name__} makes its rows; {self.reader.remedy}"
            )

    def __iter__(self) -> Iterator[Document]:
        return self.reader.documents(self.source)

    @cached_property
    def reader(self) -> Reader:
        """How the format's kind of documents is read."""
        match self.format.reads:
            case "text":
                return Texts()
            case "sentences":
                return SentenceTokenizer(self.sentences)
            case "pairs":
                return TextToTextTokenizer()
            case "labels":
                return ClassificationTokenizer()
            case "tags":
                return TaggingTokenizer()
            case "questions":
                return QuestionAnsweringTokenizer()
            case "choices":
                return MultipleChoiceTokenizer()

    def chunks(self) -> Iterator[list[Document]]:
        """Documents in lists of about two million characters: memory is bounded, and encoding runs in batches."""
        chunk: list[Document] = []
        characters = 0
        for document in self:
            chunk.append(document)
            characters += len(self.content(document))
            if characters >= _CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk

    def tokenize(self, documents: list[Document], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
        """Each document as the format's builder takes it."""
        return self.reader.tokenize(documents, tokenizer)

    def content(self, document: Document) -> str:
        """The texts of a document as one, those of a pair together; a label is none of them."""
        return self.reader.content(document)

    def place(self, number: int) -> str:
        """Where the pair or example with this number, from 1, stands, to be read in a message."""
        return self.source.place(number)
