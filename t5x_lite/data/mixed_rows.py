"""The rows of several corpora as one sequence, and the order in which they are drawn."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_lite.data.layouts.base import Row

if TYPE_CHECKING:
    import grain


class MixedRows(Sequence[Row]):
    """Rows of one layout, those of one corpus behind those of the other.

    Args:
      parts: the rows of each corpus.
      rates: how often a row of each is drawn, in any unit.
    """

    def __init__(self, parts: Sequence[Sequence[Row]], rates: Sequence[float]) -> None:
        self._parts = parts
        self._rates = rates
        self._starts = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.__getitems__([int(index) % len(self)])[0]

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        """Many rows, with one read of each corpus."""
        indices = np.array(list(indices), np.int64)
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        rows: list[Any] = [None] * len(indices)
        for owner in np.unique(owners):
            places, part = np.flatnonzero(owners == owner), self._parts[owner]
            numbers = (indices[places] - self._starts[owner]).tolist()
            many = getattr(part, "__getitems__", None)
            for place, row in zip(places, many(numbers) if many else [part[i] for i in numbers], strict=True):
                rows[place] = row
        return rows

    def order(self, seed: int, *, shuffle: bool) -> "grain.MapDataset":
        """The numbers of the rows as they are drawn, without end.

        Corpora take turns at their rates, to within a hundredth of them; where a corpus stands follows from the place
        alone. Every pass through a corpus is a permutation of its rows, each another one.
        """
        import grain

        turns = []
        for number, (start, end) in enumerate(zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True)):
            rows = grain.MapDataset.range(start, end)
            if shuffle:
                rows = rows.shuffle(seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
            turns.append(rows.repeat())
        return grain.MapDataset.mix(turns, list(self._rates))


class RowsInTurns(MixedRows):
    """The same rows, the first of each corpus first, then the second, and so on, so far as a corpus has them."""

    def __init__(self, parts: Sequence[Sequence[Row]]) -> None:
        super().__init__(parts, [1.0] * len(parts))
        numbers = np.concatenate([np.arange(len(part)) for part in parts])
        self._in_turns = np.argsort(numbers, kind="stable")

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        return super().__getitems__(self._in_turns[list(indices)])
