"""The examples of a store: which are for training, which are held out, and which of these are trained on too."""

import functools
import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Example, Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Source
from t5x_lite.errors import InputError

_CHUNK_CHARACTERS = 2 << 20
_CHUNK_EXAMPLES = 1 << 16
_REPORT_EVERY = 1 << 22


@dataclass(frozen=True)
class Documents:
    """The examples of a source as a layout reads them; `InputError` where the source has none of those."""

    source: Source
    layout: Layout
    sentences: SentenceRule

    def __post_init__(self) -> None:
        if not isinstance(self.source, self.layout.source_type):
            option = f" ({self.layout.source_option} on the command line)" if self.layout.source_option else ""
            raise InputError(
                f"source={type(self.source).__name__}(...) has no {self.layout.unit_name}, of which "
                f"{type(self.layout).__name__} makes its rows; give {self.layout.source_type.__name__}{option}"
            )

    def __iter__(self) -> Iterator[Example]:
        return self.layout.examples(self.source)

    def chunks(self) -> Iterator[list[Example]]:
        """Lists of examples of about two million characters, to bound memory and to encode in batches."""
        chunk: list[Example] = []
        characters = 0
        for example in self:
            chunk.append(example)
            characters += len(self.layout.content(example))
            if characters >= _CHUNK_CHARACTERS or len(chunk) >= _CHUNK_EXAMPLES:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk


def document_hash(content: str | bytes) -> int:
    """64 bits of the content."""
    content = content.encode() if isinstance(content, str) else content
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def split_documents(
    documents: Iterable[str | bytes], held_out: float, report: Callable[[], None] = lambda: None
) -> tuple[Callable[[str | bytes], bool], int]:
    """(whether a document is held out, characters in all): those with the smallest hashes, until they have `held_out`
    (0 to 0.5) of the characters.

    Whole documents move, copies together, so the share is met from above; each side gets at least one distinct
    document. Memory is 16 bytes a document. `report` is called now and then. Raises `InputError` for fewer than two
    distinct documents.
    """
    hashes, lengths = array("Q"), array("Q")
    characters = reported = 0
    for text in documents:
        hashes.append(document_hash(text))
        lengths.append(len(text))
        characters += len(text)
        if characters - reported >= _REPORT_EVERY:
            reported = characters
            report()
    distinct, index = np.unique(np.frombuffer(hashes, np.uint64), return_inverse=True)
    if len(distinct) < 2:
        raise InputError(
            f"the corpus has {len(distinct)} distinct document(s), and held_out={held_out} needs two at least; "
            "set document='line', give more text, or a held_out_source"
        )
    total = np.cumsum(np.bincount(index, np.frombuffer(lengths, np.uint64)))
    last = min(int(np.searchsorted(total, held_out * characters)), len(distinct) - 2)
    threshold = int(distinct[last])
    return lambda content: document_hash(content) <= threshold, characters


Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Corpus:
    """All documents of a store: the share `held_out` of `documents`, or `held_out_documents`, are for evaluation."""

    documents: Documents
    held_out: float
    held_out_documents: Documents | None = None

    def documents_of(self, split: str) -> Iterator[Example]:
        """The documents of "train" or "held_out", in order."""
        parts = self.parts(lambda stage, share: None)
        return (document for documents, split_of, _ in parts for document in documents if split_of(document) == split)

    def parts(self, report: Progress) -> list[tuple[Documents, Callable[[Example], str], int | None]]:
        """(documents, the split of each, characters of all where they are counted) of each source. Raises `InputError`
        where a share of the documents cannot be held out."""
        if self.held_out_documents:
            sources = {"train": self.documents, "held_out": self.held_out_documents}
            return [(documents, lambda _, split=split: split, None) for split, documents in sources.items()]
        content, progress = self.documents.layout.content, functools.partial(report, "split documents", None)
        progress()
        holds_out, characters = split_documents(map(content, self.documents), self.held_out, progress)
        return [(self.documents, lambda one: "held_out" if holds_out(content(one)) else "train", characters)]


class Overlap(NamedTuple):
    """How many of `documents` held-out examples have a text that is trained on."""

    in_training: int
    same_answer: int
    """Those that are trained on with the same answer."""
    documents: int
    first: int = 0
    """The number of the first that is trained on, from 1; 0 when there is none."""


class OverlapCounter:
    """Compares held-out documents with those trained on, in any order; keeps 16 bytes of each."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._hashes = {split: (array("Q"), array("Q")) for split in ("train", "held_out")}

    def add(self, document: Example, split: str) -> None:
        """Counts a document of "train" or "held_out"."""
        # In lower case, with one blank between words.
        texts, answer = (" ".join(text.lower().split()) for text in self._layout.answer(document) or ("", ""))
        of_texts, of_answers = self._hashes[split]
        of_texts.append(document_hash(texts))
        of_answers.append(document_hash(f"{texts}\0{answer}"))

    def count(self) -> Overlap:
        """The overlap of the documents so far."""
        pairs = zip(self._hashes["held_out"], self._hashes["train"], strict=True)
        same_text, same_answer = (np.isin(*(np.frombuffer(side, np.uint64) for side in pair)) for pair in pairs)
        first = int(np.flatnonzero(same_text)[0]) + 1 if same_text.any() else 0
        return Overlap(int(same_text.sum()), int(same_answer.sum()), len(same_text), first)


def overlap(training: Iterable[Documents], held_out: Documents) -> Overlap:
    """The overlap of held-out documents with those of some sources."""
    counter = OverlapCounter(held_out.layout)
    for split, documents in (("train", itertools.chain.from_iterable(training)), ("held_out", held_out)):
        for document in documents:
            counter.add(document, split)
    return counter.count()


def format_overlap(counts: Overlap, unit: str, location: str, *, has_answers: bool = True) -> str:
    """The overlap as a sentence.

    >>> format_overlap(Overlap(3, 2, 1200), "pairs", "dev.tsv:7")
    '3 of 1,200 pairs stand in the training data too, 2 of them with the same answer; the first is dev.tsv:7'
    """
    same = f", {counts.same_answer:,} of them with the same answer" if has_answers else ""
    share = f"{counts.in_training:,} of {counts.documents:,} {unit}"
    return f"{share} stand in the training data too{same}; the first is {location}"
