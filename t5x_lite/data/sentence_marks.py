"""Rows that know their sentences."""

from dataclasses import dataclass

import numpy as np

from t5x_lite.data.formats import Sentences
from t5x_lite.data.layouts.base import SentenceRows, SpecialIds
from t5x_lite.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class MarkedSentences(Sentences):
    """BART's rows: those of `Sentences`, and behind each row the number of the sentence that each id belongs to.

    Sentences count from 1 in every row; special ids and padding have number 0. Each document begins a row, unless
    `across_documents` says otherwise.

    >>> import numpy as np
    >>> rows = MarkedSentences(6).start(Vocabulary(size=100, pad_id=9, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.finish()
    >>> rows.take()
    array([[ 2, 10, 11, 12,  3,  9,  0,  1,  1,  2,  0,  0]], dtype=int32)
    """

    across_documents: bool = False

    @property
    def row_length(self) -> int:
        return 2 * self.length

    def start(self, vocabulary: Vocabulary) -> "MarkedSentenceRows":
        marks = super().start(vocabulary).marks
        return MarkedSentenceRows(self.length, marks, across_documents=self.across_documents)


class MarkedSentenceRows(SentenceRows):
    """See `MarkedSentences`."""

    def __init__(self, length: int, marks: SpecialIds, *, across_documents: bool) -> None:
        super().__init__(length, marks, across_documents=across_documents)
        self._length, self.row_length = length, 2 * length

    def take(self) -> np.ndarray:
        rows = super().take()
        # Every id takes two places of a row, and so does padding.
        ids, numbers = np.split(rows == self.marks.pad_id, 2, axis=1)
        self.padding += int(ids.sum()) - int(numbers.sum())
        return rows

    def _end_row(self) -> None:
        is_text = [piece is not self._separator for piece in self._pieces]
        numbers = np.repeat(np.cumsum(is_text) * is_text, [len(piece) for piece in self._pieces])
        super()._end_row()
        if len(numbers):
            row = self._ready[-1]
            row[self._length :] = 0
            row[self._length + 1 : self._length + 1 + len(numbers)] = numbers
