"""Which documents are held out: a rule by content, so that copies of a document stay on one side."""

import hashlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from t5x_lite.errors import InputError

_REPORT_EVERY = 1 << 22


def document_hash(text: str) -> int:
    """64 bits of the content."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class HeldOutSplit:
    """Documents with a hash up to `threshold` are held out."""

    threshold: int
    documents: int
    """In the corpus, copies counted."""
    characters: int
    """In the corpus, copies counted."""

    def holds_out(self, text: str) -> bool:
        """Whether the document is held out."""
        return document_hash(text) <= self.threshold


def split_documents(
    documents: Iterable[str], held_out: float, report: Callable[[int], None] = lambda characters: None
) -> HeldOutSplit:
    """Hold out the documents with the smallest hashes until they have `held_out` of the characters.

    Whole documents move, copies together, so the share is met from above; each side gets at least one distinct
    document. Memory is 16 bytes a document.

    Args:
      documents: the corpus.
      held_out: fraction of the characters, between 0 and 0.5.
      report: is told the characters seen, now and then.

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
    distinct, place = np.unique(np.frombuffer(hashes, np.uint64), return_inverse=True)
    if len(distinct) < 2:
        raise InputError(
            f"the corpus has {len(distinct)} distinct document(s), and held_out={held_out} needs two at least; "
            "set document='line', give more text, or a held_out_source"
        )
    total = np.cumsum(np.bincount(place, np.frombuffer(lengths, np.uint64)))
    last = min(int(np.searchsorted(total, held_out * characters)), len(distinct) - 2)
    return HeldOutSplit(int(distinct[last]), len(hashes), characters)
