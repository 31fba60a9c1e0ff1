"""The passages of a corpus, which a model looks things up in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from t5x_lite.data.layouts.base import Row
from t5x_lite.data.stored_rows import read_rows

_TOGETHER = 4096
"""Passages that are read at a time."""


@dataclass(frozen=True)
class PassageRows:
    """All passages, numbered in the order of these sequences of rows."""

    key: str
    """Of the store that they are in."""
    parts: Sequence[Sequence[Row]]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def fill(self, ids: Int[np.ndarray, "P L"]) -> None:
        """Writes their ids into the first rows of an array."""
        start = 0
        for rows in self.parts:
            for first in range(0, len(rows), _TOGETHER):
                for row in read_rows(rows, list(range(first, min(first + _TOGETHER, len(rows))))):
                    ids[start] = row["ids"]
                    start += 1
