"""The examples of a store: which are for training, which are held out, and which of these are trained on too."""

import contextlib
import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Example, Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import EmptyCorpusError, Source
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


def hash_documents(documents: Iterable[str | bytes], report: Callable[[], None] = lambda: None) -> "Hashes":
    """The hash and the length of every document, 16 bytes each; `report` is called now and then."""
    hashes, lengths = array("Q"), array("Q")
    unreported = 0
    for text in documents:
        hashes.append(document_hash(text))
        lengths.append(len(text))
        unreported += len(text)
        if unreported >= _REPORT_EVERY:
            unreported = 0
            report()
    return Hashes(np.frombuffer(hashes, np.uint64), np.frombuffer(lengths, np.uint64))


class Hashes(NamedTuple):
    """Of documents, in their order: uint64 [N]."""

    hashes: np.ndarray
    lengths: np.ndarray
    """In characters."""


def held_out_threshold(documents: Hashes, held_out: float, unit_name: str = "documents") -> int:
    """The largest hash of a held-out document: those with the smallest are held out, until they have `held_out` (0 to
    0.5) of the characters.

    Whole documents move, copies together, so the share is met from above; each side gets at least one distinct
    document. Raises `InputError` for fewer than two distinct documents, which it calls `unit_name`.
    """
    distinct, index = np.unique(documents.hashes, return_inverse=True)
    if len(distinct) < 2:
        raise InputError(
            f"the corpus has {len(distinct)} distinct {unit_name}, and held_out={held_out} needs two at least; give "
            "more, or a held_out_source" + (", or set document='line'" if unit_name == "documents" else "")
        )
    total = np.cumsum(np.bincount(index, documents.lengths))
    last = min(int(np.searchsorted(total, held_out * int(documents.lengths.sum()))), len(distinct) - 2)
    return int(distinct[last])


Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Corpus:
    """All documents of a store: the share `held_out` of `documents`, or `held_out_documents`, are for evaluation."""

    documents: Documents
    held_out: float
    held_out_documents: Documents | None = None
    classes: tuple[str, ...] = ()
    """The names of those that labels are numbers of: see `Layout.classes_of`."""

    def shards(self) -> "tuple[Shard, ...]":
        """What is read apart: the shards of its sources, those to evaluate on last."""
        sides = [(self.documents, "train" if self.held_out_documents else "")]
        sides += [(self.held_out_documents, "held_out")] if self.held_out_documents else []
        sources = [(documents, split, source) for documents, split in sides for source in documents.source.shards()]
        return tuple(Shard(replace(documents, source=source), split) for documents, split, source in sources)


@dataclass(frozen=True)
class Shard:
    """A part of a corpus that is read apart from the others."""

    documents: Documents
    split: str = ""
    """The split of all its documents; empty where their hashes decide."""

    def split_of(self, document: Example, threshold: int | None) -> str:
        """ "train" or "held_out"; `threshold` is that of `held_out_threshold`."""
        if self.split:
            return self.split
        return "held_out" if document_hash(self.documents.layout.content(document)) <= threshold else "train"

    def contents(self) -> Iterator[str | bytes]:
        """What identifies each document; none where it has none, though other shards may."""
        with contextlib.suppress(EmptyCorpusError):
            yield from map(self.documents.layout.content, self.documents)

    def chunks(self) -> Iterator[list[Example]]:
        """Those of its documents."""
        with contextlib.suppress(EmptyCorpusError):
            yield from self.documents.chunks()


class Overlap(NamedTuple):
    """How many of `documents` held-out examples have a text that is trained on."""

    in_training: int
    same_answer: int
    """Those that are trained on with the same answer."""
    documents: int
    first: int = 0
    """The number of the first that is trained on, from 1; 0 when there is none."""


class TextHashes(NamedTuple):
    """Of examples, in their order: uint64 [N], of their texts in lower case with one blank between words."""

    texts: np.ndarray
    answers: np.ndarray
    """Of the texts with their answers."""


def hash_example(layout: Layout, example: Example) -> tuple[int, int]:
    """The hashes of an example's texts, and of them with its answer (see `TextHashes`)."""
    texts, answer = (" ".join(text.lower().split()) for text in layout.answer(example) or ("", ""))
    return document_hash(texts), document_hash(f"{texts}\0{answer}")


def to_text_hashes(pairs: Iterable[tuple[int, int]]) -> TextHashes:
    """Those that `hash_example` gave of each example."""
    return TextHashes(*np.fromiter(pairs, np.dtype((np.uint64, 2))).reshape(-1, 2).T)


def count_overlap(training: TextHashes, held_out: TextHashes) -> Overlap:
    """How many held-out examples are trained on."""
    same_text, same_answer = (np.isin(*sides) for sides in zip(held_out, training, strict=True))
    first = int(np.flatnonzero(same_text)[0]) + 1 if same_text.any() else 0
    return Overlap(int(same_text.sum()), int(same_answer.sum()), len(same_text), first)


def overlap(training: Iterable[Documents], held_out: Documents) -> Overlap:
    """The overlap of held-out documents with those of some sources."""
    sides = itertools.chain.from_iterable(training), held_out
    return count_overlap(*(to_text_hashes(hash_example(held_out.layout, one) for one in side) for side in sides))


def format_overlap(counts: Overlap, unit: str, location: str, *, has_answers: bool = True) -> str:
    """The overlap as a sentence.

    >>> format_overlap(Overlap(3, 2, 1200), "pairs", "dev.tsv:7")
    '3 of 1,200 pairs stand in the training data too, 2 of them with the same answer; the first is dev.tsv:7'
    """
    same = f", {counts.same_answer:,} of them with the same answer" if has_answers else ""
    share = f"{counts.in_training:,} of {counts.documents:,} {unit}"
    return f"{share} stand in the training data too{same}; the first is {location}"
