"""Rows of two segments of one document, and beside them one of another document."""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Column, EncoderRows, Layout, RowLength, RowSpec, truncated_lengths
from t5x_lite.data.layouts.text import SentenceLayout
from t5x_lite.tokenizers.vocabulary import Vocabulary

_BLOCK_DOCUMENTS = 1024
_BLOCK_IDS = 4 << 20
_SHORT_SHARE = 0.1


class _Document(NamedTuple):
    """The sentences of a document, joined."""

    ids: np.ndarray
    ends: list[int]
    digest: bytes
    """Of the ids: documents with the same text are one."""


class PairRows(EncoderRows):
    """See `Pairs`. With others, documents wait until a block of them is complete and draw from it and the block before,
    so that those in the last, small block have others to draw."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._special = self._special._replace(separators=1)  # which BERT and ALBERT, whose rows these are, have
        self._room = layout.length - 3
        # One generator for the pairs and one for the others: the pairs are the same with and without others.
        self._random, self._random_other = (np.random.default_rng(seed) for seed in range(2))
        self._too_short = 0
        self._before: list[_Document] = []
        self._start_block()

    def _start_block(self) -> None:
        self._block: list[_Document] = []
        self._distinct: dict[bytes, _Document] = {}
        self._block_ids = 0

    def add(self, document: list[np.ndarray]) -> None:
        self.documents += 1
        sentences = [sentence for sentence in document if len(sentence)]
        self.tokens += sum(map(len, sentences))
        if len(sentences) < 2:
            self._too_short += 1
            self.skipped += 1
        if not sentences:
            return
        ids, ends = np.concatenate(sentences), np.cumsum(list(map(len, sentences))).tolist()
        joined = _Document(ids, ends, hashlib.blake2b(ids.data, digest_size=16).digest())
        if not self._layout.with_other:
            for first, second, _ in self._pairs(joined):
                self._add_row(first, second)
            return
        same = self._distinct.setdefault(joined.digest, joined)
        self._block.append(same if same.ends == joined.ends else joined)  # copies are in memory once
        self._block_ids += len(ids)
        is_full = len(self._block) >= _BLOCK_DOCUMENTS or self._block_ids >= _BLOCK_IDS
        if is_full and len(self._distinct) > 1:
            self.finish()

    def finish(self) -> None:
        """Makes rows of the block's documents, if there is any other document to draw from."""
        # Copies stand together, to be passed over in one step.
        documents = sorted([*self._before, *self._block], key=lambda document: document.digest)
        digests = [document.digest for document in documents]
        for document in self._block:
            first, last = bisect_left(digests, document.digest), bisect_right(digests, document.digest)
            if last - first == len(documents):
                self.skipped += len(document.ends) > 1
                continue
            for a, b, target in self._pairs(document):
                number = _below(len(documents) - (last - first), self._random_other)
                other = documents[number if number < first else number + last - first]
                self._add_row(a, b, self._segment(other, target - len(a), len(a)))
        self._before = self._block
        self._start_block()

    def _pairs(self, document: _Document) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """(A, B, ids that were aimed at for both) of a document of two sentences or more."""
        ends, sentence = document.ends, 0
        while len(ends) > 1 and sentence < len(ends):
            target = self._target()
            # A last one on its own takes the one before it along.
            sentence = min(sentence, len(ends) - 2)
            start = ends[sentence - 1] if sentence else 0
            stop = bisect_left(ends, start + target) + 1
            stop = min(max(stop, sentence + 2), len(ends))
            cut = sentence + 1 + _below(stop - sentence - 1, self._random)
            segments = document.ids[start : ends[cut - 1]], document.ids[ends[cut - 1] : ends[stop - 1]]
            kept = truncated_lengths(list(map(len, segments)), self._room)
            first, second = (_shortened(*pair, self._random) for pair in zip(segments, kept, strict=True))
            yield first, second, target
            sentence = stop

    def _target(self) -> int:
        """The least number of ids in A and B together; 1 where a unit is a sentence, which then stays alone.

        Every tenth row is shorter, so that a model also meets rows as short as they come later.
        """
        if self._layout.unit == "sentence":
            return 1
        if self._random.random() < _SHORT_SHARE:
            return 2 + _below(self._room - 1, self._random)
        return self._room

    def _segment(self, document: _Document, target: int, beside: int) -> np.ndarray:
        """C: from a random sentence on, `target` ids or more where there are so many, as far as they fit beside A."""
        ends = document.ends
        sentence = _below(len(ends), self._random_other)
        start = ends[sentence - 1] if sentence else 0
        stop = max(bisect_left(ends, start + target), sentence)
        ids = document.ids[start : ends[min(stop, len(ends) - 1)]]
        return _shortened(ids, min(len(ids), self._room - beside), self._random_other)

    def _add_row(self, first: np.ndarray, second: np.ndarray, other: np.ndarray | None = None) -> None:
        columns = {"ids": self._special.join(self._layout.length, first, second)}
        padding = self._room - len(first) - len(second)
        if other is not None:
            columns["other"] = np.full(self._layout.length - 4, self._special.pad_id, np.int32)
            columns["other"][: len(other)] = other
            padding += self._layout.length - 4 - len(other)
        self._emit(padding, **columns)

    @property
    def shortage(self) -> tuple[str, str]:
        documents = f"{self.documents} documents, {self._too_short} of them of one sentence"
        if self._too_short < self.documents:
            return f"{documents}, and a row needs two documents of different text", "shorter documents"
        remedy = "documents of more sentences (document='file', or data.sentences='line' where each line is one)"
        return f"{documents}, and a row needs two sentences of a document", remedy


def _below(bound: int, random: np.random.Generator) -> int:
    """0 to bound - 1, in a third of the time of `random.integers`."""
    return int(random.random() * bound)


def _shortened(ids: np.ndarray, length: int, random: np.random.Generator) -> np.ndarray:
    """`length` ids: each surplus one goes from the front or from the end, by the toss of a coin."""
    surplus = len(ids) - length
    front = int(random.binomial(surplus, 0.5)) if surplus else 0
    return ids[front : front + length]


@dataclass(frozen=True)
class Pairs(SentenceLayout):
    """BERT's rows (Devlin et al. 2019, section 3.1 and A.2): `[CLS] A [SEP] B [SEP] pad ...`, where B follows A.

    A unit of "segment" takes sentences of one document until they fill the row, in every tenth row a random part of
    it, and cuts them at a random sentence end into A and B. A unit of "sentence" takes one each (sentence-pair in Liu
    et al. 2019, section 4.2, here with a single [SEP] between the two). What is too long loses ids of its longer
    segment, at random at both ends. A last sentence on its own comes with the one before it as A. Documents of one
    sentence give no pair; `RowBuilder.skipped` counts them.

    `with_other` adds the column `other`, `C pad ...`, a segment of another document to put instead of B: at
    least one id, none of them special, and `[CLS] A [SEP] C [SEP]` fits `length`. It begins at a random sentence and is
    as long as BERT makes it: until A and C fill the row, or its document ends. It is drawn from the documents near this
    one (a thousand or two), whose text is another.

    >>> import numpy as np
    >>> vocabulary = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
    >>> rows = Pairs(8, unit="sentence", with_other=True).start(vocabulary)
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.add([np.array([20, 21, 22], np.int32)])
    >>> rows.finish()
    >>> [{name: column.tolist() for name, column in row.items()} for row in rows.take()]
    [{'ids': [2, 10, 11, 3, 12, 3, 0, 0], 'other': [20, 21, 22, 0]}]
    """

    length: RowLength
    unit: Literal["segment", "sentence"] = "segment"
    with_other: bool = False

    builder = PairRows

    @property
    def spec(self) -> RowSpec:
        other = {"other": Column((self.length - 4,), is_ids=True)} if self.with_other else {}
        return super().spec | other
