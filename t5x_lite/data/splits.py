"""The examples of a store: which are for training, which are held out, and which of these are trained on too."""

import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Example, Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Source
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer

_CHUNK_CHARACTERS = 2 << 20
_CHUNK_EXAMPLES = 1 << 16
_REPORT_EVERY = 1 << 22


class Documents:
    """The examples of a source as a layout reads them.

    Raises `InputError` where the source has none of what the layout reads.
    """

    def __init__(self, source: Source, layout: Layout, sentences: SentenceRule) -> None:
        if not isinstance(source, layout.source_type):
            option = f" ({layout.source_option} on the command line)" if layout.source_option else ""
            raise InputError(
                f"source={type(source).__name__}(...) has no {layout.unit_name}, of which {type(layout).__name__} "
                f"makes its rows; give {layout.source_type.__name__}{option}"
            )
        self.source, self.layout, self._sentences = source, layout, sentences

    def __iter__(self) -> Iterator[Example]:
        return self.layout.examples(self.source)

    def chunks(self) -> Iterator[list[Example]]:
        """Examples in lists of about two million characters: memory is bounded, and encoding runs in batches."""
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

    def tokenize(self, examples: list[Example], tokenizer: Tokenizer | None) -> Iterator[list[Any]]:
        """Each example as the layout's builder takes it."""
        return self.layout.tokenize(examples, tokenizer, self._sentences)


def document_hash(content: str | bytes) -> int:
    """64 bits of the content."""
    content = content.encode() if isinstance(content, str) else content
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class HeldOutSplit:
    """Documents with a hash up to `threshold` are held out."""

    threshold: int
    documents: int
    """In the corpus, copies counted."""
    characters: int
    """In the corpus, copies counted."""

    def holds_out(self, text: str | bytes) -> bool:
        """Whether the document is held out."""
        return document_hash(text) <= self.threshold


def split_documents(
    documents: Iterable[str | bytes], held_out: float, report: Callable[[int], None] = lambda characters: None
) -> HeldOutSplit:
    """Hold out the documents with the smallest hashes until they have `held_out` of the characters.

    Whole documents move, copies together, so the share is met from above; each side gets at least one distinct
    document. Memory is 16 bytes a document.

    Args:
      documents: the corpus.
      held_out: fraction of the characters, between 0 and 0.5.
      report: called now and then with the number of characters seen.

    Raises:
      InputError: fewer than two distinct documents.
    """
    hashes, lengths = array("Q"), array("Q")
    characters = reported = 0
    for text in documents:
        hashes.append(document_hash(text))
        lengths.append(len(text))
        characters += len(text)
        if characters - reported >= _REPORT_EVERY:
            report(reported := characters)
    distinct, index = np.unique(np.frombuffer(hashes, np.uint64), return_inverse=True)
    if len(distinct) < 2:
        raise InputError(
            f"the corpus has {len(distinct)} distinct document(s), and held_out={held_out} needs two at least; "
            "set document='line', give more text, or a held_out_source"
        )
    total = np.cumsum(np.bincount(index, np.frombuffer(lengths, np.uint64)))
    last = min(int(np.searchsorted(total, held_out * characters)), len(distinct) - 2)
    return HeldOutSplit(int(distinct[last]), len(hashes), characters)


Progress = Callable[[str, float | None], None]


class Part(NamedTuple):
    """Documents and the split, "train" or "held_out", of each."""

    documents: Documents
    split_of: Callable[[Example], str]
    characters: int | None
    """In all of them, where they have been counted."""


@dataclass(frozen=True)
class Corpus:
    """All documents of a store."""

    documents: Documents
    held_out: float
    """Share that is held out where it has no documents of its own."""
    held_out_documents: Documents | None

    def held_out_key(self) -> Any:
        """What decides which documents are held out."""
        return ["source", self.held_out_documents.source.fingerprint()] if self.held_out_documents else self.held_out

    def documents_of(self, split: str) -> Iterator[Example]:
        """Those of "train" or "held_out", in their order."""
        parts = self.parts(lambda stage, share: None)
        return (document for part in parts for document in part.documents if part.split_of(document) == split)

    def parts(self, report: Progress) -> list[Part]:
        """The documents by where they come from; `InputError` where a share of them cannot be held out."""
        if self.held_out_documents:
            return [
                Part(self.documents, lambda document: "train", None),
                Part(self.held_out_documents, lambda document: "held_out", None),
            ]
        report("split documents", None)
        content = self.documents.layout.content
        texts = map(content, self.documents)
        split = split_documents(texts, self.held_out, lambda characters: report("split documents", None))
        split_of = lambda document: "held_out" if split.holds_out(content(document)) else "train"  # noqa: E731
        return [Part(self.documents, split_of, split.characters)]


def location_in_split(parts: list[Part], name: str, number: int) -> str:
    """Where pair `number`, from 1, of a split stands; found by reading up to it."""
    for part in parts:
        for position, document in enumerate(part.documents, start=1):
            number -= part.split_of(document) == name
            if not number:
                return part.documents.source.location(position)
    raise ValueError(f"the {name} split has fewer documents; they changed while they were read")


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
      layout: tells input and answer of a document.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._hashes = {split: (array("Q"), array("Q")) for split in ("train", "held_out")}

    def add(self, document: Example, split: str) -> None:
        """A document of "train" or "held_out"."""
        texts, answer = map(normalized, self._layout.answer(document) or ("", ""))
        of_texts, of_answers = self._hashes[split]
        of_texts.append(document_hash(texts))
        of_answers.append(document_hash(f"{texts}\0{answer}"))

    def count(self) -> Overlap:
        """Of the documents taken so far."""
        same_text, same_answer = (
            np.isin(*(np.frombuffer(self._hashes[split][kind], np.uint64) for split in ("held_out", "train")))
            for kind in (0, 1)
        )
        first = int(np.flatnonzero(same_text)[0]) + 1 if same_text.any() else 0
        return Overlap(int(same_text.sum()), int(same_answer.sum()), len(same_text), first)


def normalized(text: str) -> str:
    """In lower case, words apart by one blank.

    >>> normalized(" The  cat\\nsat")
    'the cat sat'
    """
    return " ".join(text.lower().split())


def overlap(training: Iterable[Documents], held_out: Documents) -> Overlap:
    """That of the documents of some sources with those of another one."""
    counter = OverlapCounter(held_out.layout)
    for document in itertools.chain.from_iterable(training):
        counter.add(document, "train")
    for document in held_out:
        counter.add(document, "held_out")
    return counter.count()


def format_overlap(found: Overlap, unit: str, location: str, *, has_answers: bool = True) -> str:
    """As a sentence for people.

    >>> format_overlap(Overlap(3, 2, 1200), "pairs", "dev.tsv:7")
    '3 of 1,200 pairs stand in the training data too, 2 of them with the same answer; the first is dev.tsv:7'
    """
    same = f", {found.same_answer:,} of them with the same answer" if has_answers else ""
    return (
        f"{found.found:,} of {found.documents:,} {unit} stand in the training data too{same}; the first is {location}"
    )
