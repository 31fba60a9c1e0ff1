"""Held-out examples that stand in the training data too, whatever their upper case and white space."""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from t5x_lite.data.documents import Documents
from t5x_lite.data.held_out_split import document_hash
from t5x_lite.data.readers import Document, Reader


class Overlap(NamedTuple):
    """How many of some held-out examples have a text that is trained on."""

    found: int
    same_answer: int
    """Those of them that are trained on with the same answer."""
    documents: int
    """All that are held out."""
    first: int = 0
    """The number of the first of those that are trained on, from 1; 0 when there is none."""


class OverlapCounter:
    """Takes documents of training and held-out ones in any order; remembers 16 bytes of each.

    Args:
      reader: tells what is asked in a document and what is right.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._hashes = {split: (array("Q"), array("Q")) for split in ("train", "held_out")}

    def add(self, document: Document, split: str) -> None:
        """A document of "train" or "held_out"."""
        texts, answer = map(normalized, self._reader.asked(document) or ("", ""))
        asked, answered = self._hashes[split]
        asked.append(document_hash(texts))
        answered.append(document_hash(f"{texts}\0{answer}"))

    def count(self) -> Overlap:
        """Of the documents taken so far."""
        asked, answered = (
            np.isin(*(np.frombuffer(self._hashes[split][kind], np.uint64) for split in ("held_out", "train")))
            for kind in (0, 1)
        )
        first = int(np.flatnonzero(asked)[0]) + 1 if asked.any() else 0
        return Overlap(int(asked.sum()), int(answered.sum()), len(asked), first)


def normalized(text: str) -> str:
    """In lower case, words apart by one blank.

    >>> normalized(" The  cat\\nsat")
    'the cat sat'
    """
    return " ".join(text.lower().split())


def has_examples(documents: Documents) -> bool:
    """Whether documents are examples, of which texts are asked, and not running text."""
    return type(documents.reader).asked is not Reader.asked


def overlap(training: Iterable[Documents], held_out: Documents) -> Overlap:
    """That of the documents of some sources with those of another one."""
    counter = OverlapCounter(held_out.reader)
    for split, document in _in_order(training, held_out):
        counter.add(document, split)
    return counter.count()


def _in_order(training: Iterable[Documents], held_out: Documents) -> Iterator[tuple[str, Document]]:
    for documents in training:
        yield from (("train", document) for document in documents)
    yield from (("held_out", document) for document in held_out)


def format_overlap(found: Overlap, unit: str, place: str, *, has_answers: bool = True) -> str:
    """As a sentence for people.

    >>> spell(Overlap(3, 2, 1200), "pairs", "dev.tsv:7")
    '3 of 1,200 pairs stand in the training data too, 2 of them with the same answer; the first is dev.tsv:7'
    """
    same = f", {found.same_answer:,} of them with the same answer" if has_answers else ""
    return f"{found.found:,} of {found.documents:,} {unit} stand in the training data too{same}; the first is {place}"
