"""Rows of examples as a decoder reads them: ids of their own begin, divide and end the texts.

Radford et al. 2018, section 3.3. The three marks are the ids right behind the vocabulary's, which no pretraining has
seen.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from t5x_lite.data.labeled_rows import LabeledRows
from t5x_lite.data.layouts.base import RowBuilder, SpecialIds, UnfitDocumentError
from t5x_lite.data.task_formats import ChoiceSets, Labeled
from t5x_lite.data.task_rows import ChoiceRows
from t5x_lite.tokenizers.vocabulary import Vocabulary

_MARKS = ("start", "delimiter", "extract")


@dataclass(frozen=True)
class Delimited(Labeled):
    """An example a row: `start A extract pad ...` or `start A delimiter B extract pad ...`, and behind these `length`
    ids its label, as in `Labeled`.

    >>> from t5x_lite.data.readers import halves
    >>> rows = Delimited(8).start(Vocabulary(size=100))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12], np.int32), halves(1.0)])
    >>> rows.take()
    array([[  100,    10,    11,   101,    12,   102,     0,     0, 16256,
                0]], dtype=int32)
    """

    pairs: bool = False
    """Every example must have two texts."""

    added_ids: ClassVar[tuple[str, ...]] = _MARKS

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return DelimitedRows(self.length, vocabulary, self.pairs)


@dataclass(frozen=True)
class DelimitedChoices(ChoiceSets):
    """An example a row: `start text delimiter answer extract pad ...` for each answer, `length` ids each, and behind
    them which one is right, as in `ChoiceSets`.

    >>> rows = DelimitedChoices(8, num_choices=2).start(Vocabulary(size=100))
    >>> rows.add([np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22], [1])])
    >>> rows.take()[0, :-1].reshape(2, 8)
    array([[100,  10,  11, 101,  20, 102,   0,   0],
           [100,  10,  11, 101,  21,  22, 102,   0]], dtype=int32)
    """

    added_ids: ClassVar[tuple[str, ...]] = _MARKS

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return DelimitedChoiceRows(self.length, self.num_choices, vocabulary)


class DelimitedRows(LabeledRows):
    """See `Delimited`."""

    def __init__(self, length: int, vocabulary: Vocabulary, pairs: bool) -> None:
        super().__init__(length, _outer_marks(vocabulary))
        self._delimiter, self._pairs = vocabulary.size + 1, pairs

    def add(self, document: list[np.ndarray]) -> None:
        *texts, _ = document
        if self._pairs and len(texts) < 2:
            raise UnfitDocumentError(
                "it has one text, which cannot be read in both orders; name the fields of a pair in data.source.texts, "
                "or set objective.both_orders to False"
            )
        super().add(document)
        if len(texts) == 2:
            _divide(self._ready[-1], self.marks.sep_id, self._delimiter)


class DelimitedChoiceRows(ChoiceRows):
    """See `DelimitedChoices`."""

    def __init__(self, length: int, num_choices: int, vocabulary: Vocabulary) -> None:
        super().__init__(length, num_choices, _outer_marks(vocabulary))
        self._delimiter = vocabulary.size + 1

    def add(self, document: list[np.ndarray]) -> None:
        super().add(document)
        for one in np.split(self._ready[-1][:-1], len(document) - 2):
            _divide(one, self.marks.sep_id, self._delimiter)


def _outer_marks(vocabulary: Vocabulary) -> SpecialIds:
    """Of rows that are laid out as an encoder's, with `extract` where that has a separator."""
    return SpecialIds(vocabulary.size, vocabulary.size + 2, vocabulary.pad_id)


def _divide(row: np.ndarray, extract: int, delimiter: int) -> None:
    """Has the first `extract` of a row be the delimiter."""
    row[(row == extract).argmax()] = delimiter
