"""The documents of a source as a row format reads them: in one piece, by sentences, as pairs, or with a label."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from t5x_lite.data.base_tokenizer import Tokenizer
from t5x_lite.data.formats import RowFormat
from t5x_lite.data.labeled_texts import LabeledTexts
from t5x_lite.data.pair_sources import PairSource
from t5x_lite.data.sentences import SentenceRule, split_sentences
from t5x_lite.data.sources import Source
from t5x_lite.errors import InputError

Document = tuple[str, ...]
"""A text, the two of a pair, or the texts of an example and its label, a number as Python writes it."""

_CHUNK_CHARACTERS = 2 << 20


@dataclass(frozen=True)
class Documents:
    """A source and how it is read; raises `InputError` where pairs or labels are to be read and the source has none."""

    source: Source
    format: RowFormat
    sentences: SentenceRule
    """Where sentences end, for formats that read them."""

    def __post_init__(self) -> None:
        if self.format.reads == "pairs" and not isinstance(self.source, PairSource):
            raise InputError(
                f"source={type(self.source).__name__}(...) has no pairs, of which {type(self.format).__name__} makes "
                "its rows; give TsvPairs, JsonlPairs, ParallelFiles or TfdsPairs (--pairs on the command line)"
            )
        if self.format.reads == "labels" and not isinstance(self.source, LabeledTexts):
            raise InputError(
                f"source={type(self.source).__name__}(...) has no labels, which {type(self.format).__name__} puts into "
                "its rows; give LabeledTexts"
            )

    def __iter__(self) -> Iterator[Document]:
        if self.format.reads == "pairs":
            return self.source.pairs()
        if self.format.reads == "labels":
            return ((*example.texts, repr(example.label)) for example in self.source.labeled())
        return ((text,) for text in self.source.documents())

    def chunks(self) -> Iterator[list[Document]]:
        """Documents in lists of about two million characters: memory is bounded, and encoding runs in batches."""
        chunk: list[Document] = []
        characters = 0
        for document in self:
            chunk.append(document)
            characters += sum(map(len, document))
            if characters >= _CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk

    def tokenize(self, documents: list[Document], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
        """Each document's ids: of its sentences, of both sides of a pair, or of the text in one piece. Behind those of
        an example's texts stand the halves of its label (see `halves`)."""
        if self.format.reads == "pairs":
            sources, targets = map(list, zip(*documents, strict=True))
            sides = tokenizer.encode_batch(sources), tokenizer.target_side.encode_batch(targets)
            return map(list, zip(*sides, strict=True))
        labels: list[list[np.ndarray]] = [[]] * len(documents)
        if self.format.reads == "labels":
            labels = [[halves(float(label))] for *_, label in documents]
            documents = [texts for *texts, _ in documents]
        if self.format.reads == "sentences":
            documents = [_with_blanks(split_sentences(text, self.sentences)) for (text,) in documents]
        ids = iter(tokenizer.encode_batch([piece for document in documents for piece in document]))
        return ([*(next(ids) for _ in document), *label] for document, label in zip(documents, labels, strict=True))

    def content(self, document: Document) -> str:
        """The texts of a document as one, those of a pair together; a label is none of them."""
        return "\0".join(document[:-1] if self.format.reads == "labels" else document)

    def place(self, number: int) -> str:
        """Where the pair or example with this number, from 1, stands, to be read in a message."""
        return self.source.place(number)


def halves(number: float) -> np.ndarray:
    """A float32 as two ids of 16 bits, int32 [2], which any store of ids can hold: see `formats.Labeled.label_of`.

    >>> halves(2.5).tolist()
    [16416, 0]
    """
    bits = int(np.float32(number).view(np.uint32))
    return np.array([bits >> 16, bits & 0xFFFF], np.int32)


def _with_blanks(sentences: list[str]) -> Document:
    """Sentences as they stand in running text, for tokenizers to which " The" and "The" are two."""
    return (*sentences[:1], *(f" {sentence}" for sentence in sentences[1:]))
