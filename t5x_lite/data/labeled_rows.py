"""Rows of one example each, with its label (see `formats.Labeled`)."""

import numpy as np

from t5x_lite.data.layouts.base import MarkedRows, SpecialIds


class LabeledRows(MarkedRows):
    """See `Labeled`."""

    def __init__(self, length: int, marks: SpecialIds) -> None:
        super().__init__(length + 2, marks)
        self._length = length

    def add(self, document: list[np.ndarray]) -> None:
        *texts, label = document
        self.documents += 1
        self.tokens += sum(map(len, texts))
        room = self._length - 1 - len(texts)
        if (size := sum(map(len, texts))) > room:
            self.too_long += 1
            problem = f"it has {size + 1 + len(texts)} ids, special ones included, which is over length={self._length}"
            self.first_too_long = self.first_too_long or (self.documents, f"{problem} (the objective's input_length)")
        row, end = self._new_row(), 1
        row[0] = self.marks.cls_id
        for text, kept in zip(texts, kept_of_two([len(text) for text in texts], room), strict=True):
            row[end : end + kept] = text[:kept]
            row[end + kept] = self.marks.sep_id
            end += kept + 1
        row[self._length :] = label

    def take(self) -> np.ndarray:
        before = self.padding
        rows = super().take()
        self.padding = before + int((rows[:, : self._length] == self.marks.pad_id).sum())
        return rows

    def finish(self) -> None:
        """Nothing: every example has its row already."""

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} examples and a row needs one", "more examples"


def kept_of_two(sizes: list[int], room: int) -> list[int]:
    """How many tokens of one text or two are kept: the longer one loses a token at a time, of equal ones the second.

    >>> kept_of_two([2, 9], 6), kept_of_two([9, 2], 6), kept_of_two([9, 9], 5), kept_of_two([9], 6)
    ([2, 4], [4, 2], [3, 2], [6])
    """
    if len(sizes) == 1 or sum(sizes) <= room:
        return [min(size, room) for size in sizes]
    first, second = sizes
    # Where either fits beside half of the room for the other one, that one alone is cut.
    first = min(first, max(room - second, room - room // 2))
    return [first, room - first]
