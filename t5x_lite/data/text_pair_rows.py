"""Rows of sources and targets, several pairs in each (see `formats.TextPairs`)."""

import numpy as np

from t5x_lite.data.layouts.base import RowBuilder, UnfitDocumentError

# Of 58,600 sentence pairs in rows of 64 + 64 ids 12.6 % is padding with one open row, 5.7 % with 32 and with 128.
_OPEN_ROWS = 32


class TextPairRows(RowBuilder):
    """See `TextPairs`. A pair goes into the oldest open row that has room for both of its sides; where none has, the
    fullest row is closed for a new one."""

    def __init__(
        self, length: int, target_length: int, *, pad_id: int, eos_id: int, packed: bool, too_long: str
    ) -> None:
        super().__init__(length + target_length)
        self._lengths = length, target_length
        self._pad_id, self._eos_id = pad_id, eos_id
        self._max_open = _OPEN_ROWS if packed else 0
        self._too_long = too_long
        self._open: list[_OpenRow] = []
        self._ready: list[np.ndarray] = []

    def add(self, document: list[np.ndarray]) -> None:
        self.documents += 1
        self._check_ids(document)
        if any(len(ids) >= length for ids, length in zip(document, self._lengths, strict=True)):
            problem = self._describe(document)
            if self._too_long == "error":
                raise UnfitDocumentError(f"{problem}; raise it, or set too_long='skip' or 'cut'")
            self.too_long += 1
            self.first_too_long = self.first_too_long or (self.documents, problem)
            if self._too_long == "skip":
                self.skipped += 1
                return
            document = [ids[: length - 1] for ids, length in zip(document, self._lengths, strict=True)]
        source, target = document
        self.tokens += len(source) + len(target) + 2
        row = self._row_for(len(source) + 1, len(target) + 1)
        row.append(source, target, self._eos_id)
        if not self._max_open or row.is_full:
            self._close(row)

    def _check_ids(self, document: list[np.ndarray]) -> None:
        for side, ids in zip(("source", "target"), document, strict=True):
            for name, special in (("EOS", self._eos_id), ("PAD", self._pad_id)):
                if (ids == special).any():
                    raise UnfitDocumentError(
                        f"the {side} has the id {special}, which is {name} and closes or fills rows; remove that token "
                        "from the text or from the tokenizer"
                    )

    def _describe(self, document: list[np.ndarray]) -> str:
        length, target_length = self._lengths
        limits = f"length={length} (the objective's input_length)", f"target_length={target_length}"
        return " and ".join(
            f"the {side} has {len(ids) + 1} ids, its EOS included, which is over {limit}"
            for side, limit, ids, length in zip(("source", "target"), limits, document, self._lengths, strict=True)
            if len(ids) >= length
        )

    def _row_for(self, source: int, target: int) -> "_OpenRow":
        for row in self._open:
            if row.source_room >= source and row.target_room >= target:
                return row
        if self._open and len(self._open) >= self._max_open:
            self._close(min(self._open, key=lambda row: min(row.source_room, row.target_room)))
        row = _OpenRow(self._lengths, self._pad_id)
        self._open.append(row)
        return row

    def _close(self, row: "_OpenRow") -> None:
        self._open.remove(row)
        self._ready.append(row.ids)
        self.padding += row.source_room + row.target_room

    def take(self) -> np.ndarray:
        rows = np.stack(self._ready) if self._ready else np.empty((0, self.row_length), np.int32)
        self._ready = []
        self.rows += len(rows)
        return rows

    def finish(self) -> None:
        for row in list(self._open):
            self._close(row)

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} pairs, {self.skipped} of them longer than a row", "longer rows"


class _OpenRow:
    """A row with room for more."""

    def __init__(self, lengths: tuple[int, int], pad_id: int) -> None:
        self.source_room, self.target_room = lengths
        self._target_start = lengths[0]
        self.ids = np.full(sum(lengths), pad_id, np.int32)

    @property
    def is_full(self) -> bool:
        """Whether no side of a pair, which has an id and EOS, fits any more."""
        return min(self.source_room, self.target_room) < 2

    def append(self, source: np.ndarray, target: np.ndarray, eos_id: int) -> None:
        start = self._target_start - self.source_room
        self.ids[start : start + len(source)] = source
        self.ids[start + len(source)] = eos_id
        start = len(self.ids) - self.target_room
        self.ids[start : start + len(target)] = target
        self.ids[start + len(target)] = eos_id
        self.source_room -= len(source) + 1
        self.target_room -= len(target) + 1
