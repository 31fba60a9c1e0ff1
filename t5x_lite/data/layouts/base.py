"""What makes the rows of `t5x_lite.data.formats`: documents in, whole rows out, memory bounded."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from t5x_lite.errors import InputError


class SpecialIds(NamedTuple):
    """The special ids of an encoder's rows."""

    cls_id: int
    sep_id: int
    pad_id: int


class UnfitDocumentError(InputError):
    """A document that no row can hold; says what is wrong with it and the remedy, not which one it is."""


class RowBuilder(ABC):
    """Takes documents and hands out rows. How documents are spread over calls makes no difference to the rows."""

    def __init__(self, row_length: int) -> None:
        self.row_length = row_length
        self.documents = 0
        """Documents taken."""
        self.skipped = 0
        """Documents that begin no row of their own; beside a pair they may still be the other document."""
        self.tokens = 0
        """Ids of the documents; a stream counts the EOS after each."""
        self.rows = 0
        """Rows handed out."""
        self.padding = 0
        """Ids that are padding in the rows handed out, known once all of them are."""
        self.too_long = 0
        """Documents that were left out or lost ids since no row can hold them."""
        self.first_too_long: tuple[int, str] | None = None
        """(number, what is wrong with it) of the first of them, where the documents taken count from 1."""

    @abstractmethod
    def add(self, document: list[np.ndarray]) -> None:
        """The next document: ids int32 [L] of each sentence, of both sides of a pair, or of the whole text, as the
        format reads it. Raises `UnfitDocumentError` for one that no row can hold."""

    @abstractmethod
    def take(self) -> np.ndarray:
        """The rows that are ready, int32 [n, row_length], each handed out once."""

    @abstractmethod
    def finish(self) -> None:
        """There are no more documents: makes ready what can still be a row."""

    @property
    @abstractmethod
    def shortage(self) -> tuple[str, str]:
        """(what there is and what a row needs, remedy), for the sentence that says why there is no row."""


class StreamRows(RowBuilder):
    """See `Stream`."""

    def __init__(self, length: int, eos_id: int) -> None:
        super().__init__(length)
        self._eos = np.array([eos_id], np.int32)
        self._pieces: list[np.ndarray] = []

    def add(self, document: list[np.ndarray]) -> None:
        self._pieces += [*document, self._eos]
        self.documents += 1
        self.tokens += sum(map(len, document)) + 1

    def take(self) -> np.ndarray:
        ids = np.concatenate([np.empty(0, np.int32), *self._pieces])
        count = len(ids) // self.row_length
        self._pieces = [ids[count * self.row_length :]]
        self.rows += count
        return ids[: count * self.row_length].reshape(count, self.row_length)

    def finish(self) -> None:
        """Nothing: a partial row is dropped."""

    @property
    def shortage(self) -> tuple[str, str]:
        needs = f"{self.tokens} tokens and row_length={self.row_length} needs at least as many"
        return needs, "a shorter row_length"


class MarkedRows(RowBuilder):
    """Base of those whose rows are marked by special ids and end with padding."""

    def __init__(self, row_length: int, marks: SpecialIds) -> None:
        super().__init__(row_length)
        self.marks = marks
        self._ready: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        rows = np.stack(self._ready) if self._ready else np.empty((0, self.row_length), np.int32)
        self._ready = []
        self.rows += len(rows)
        self.padding += int((rows == self.marks.pad_id).sum())
        return rows

    def _new_row(self) -> np.ndarray:
        """A row still to be filled, which is to be among those that are ready."""
        row = np.full(self.row_length, self.marks.pad_id, np.int32)
        self._ready.append(row)
        return row


class SentenceRows(MarkedRows):
    """See `Sentences`."""

    def __init__(self, length: int, marks: SpecialIds, *, across_documents: bool) -> None:
        super().__init__(length, marks)
        self._across_documents = across_documents
        self._room = length - 2
        self._separator = np.array([marks.sep_id], np.int32)
        self._pieces: list[np.ndarray] = []
        self._filled = 0

    def add(self, document: list[np.ndarray]) -> None:
        self.documents += 1
        separator = 1 if self._across_documents else 0
        before = self.tokens
        for sentence in document:
            self.tokens += len(sentence)
            for start in range(0, len(sentence), self._room):
                self._append(sentence[start : start + self._room], separator)
                separator = 0
        if self.tokens == before:
            self.skipped += 1
        if not self._across_documents:
            self._end_row()

    def _append(self, piece: np.ndarray, separator: int) -> None:
        """Adds a piece that fits a row, to this one where there is room for it, and behind a separator if asked."""
        if self._filled + separator + len(piece) > self._room:
            self._end_row()
        if separator and self._filled:
            self._pieces.append(self._separator)
            self._filled += 1
        self._pieces.append(piece)
        self._filled += len(piece)

    def _end_row(self) -> None:
        if self._filled:
            row = self._new_row()
            row[0] = self.marks.cls_id
            np.concatenate(self._pieces, out=row[1 : self._filled + 1])
            row[self._filled + 1] = self.marks.sep_id
        self._pieces, self._filled = [], 0

    def finish(self) -> None:
        self._end_row()

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.tokens} tokens and a row needs one", "text that the tokenizer knows"
