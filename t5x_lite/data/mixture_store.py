"""The token stores of a mixture's parts as one: their rows in one sequence, and the order in which they are drawn."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_lite.data.layouts.base import Example, Row
from t5x_lite.data.mixtures import Rates
from t5x_lite.data.records.base import digest
from t5x_lite.data.store import TokenStore
from t5x_lite.data.stored_rows import RowSequence, read_rows

if TYPE_CHECKING:
    import grain


class MixedRows(RowSequence):
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

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        """Many rows, with one read of each corpus."""
        indices = np.array(list(indices), np.int64)
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        rows: list[Any] = [None] * len(indices)
        for owner in np.unique(owners):
            positions, part = np.flatnonzero(owners == owner), self._parts[owner]
            numbers = (indices[positions] - self._starts[owner]).tolist()
            for position, row in zip(positions, read_rows(part, numbers), strict=True):
                rows[position] = row
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


@dataclass(frozen=True, eq=False)
class MixtureStore(TokenStore):
    """A store for each part of a mixture. `train` has all their rows, drawn at the mixture's rates by `batches`;
    `held_out` has those of the parts in turns; `figures` has "train" and "held_out" of each part behind its name."""

    parts: dict[str, TokenStore]
    """By name."""
    shares: dict[str, float]
    """Of each part among the examples that are drawn."""

    def held_out_documents(self) -> Iterator[Example]:
        """What the held-out rows of each part were made of, those of one part behind those of another."""
        return itertools.chain.from_iterable(store.held_out_documents() for store in self.parts.values())

    @property
    def rows_to_show(self) -> Sequence[Row]:
        """Those of the parts in turns."""
        return RowsInTurns([store.train for store in self.parts.values()])

    @property
    def remarks(self) -> list[str]:
        """How much of the training each part is, and those of the parts."""
        shares = ", ".join(f"{name} {share:.2%}" for name, share in self.shares.items())
        of_parts = [f"{name}: {remark}" for name, store in self.parts.items() for remark in store.remarks]
        return [f"mixture, shares of examples: {shares}", *of_parts]

    @classmethod
    def of(cls, stores: dict[str, TokenStore], rates: Rates) -> "MixtureStore":
        """The stores of the parts, by name, with rows drawn at these rates of their examples."""
        sizes = list(map(_num_examples, stores.values()))
        shares = rates.of(sizes)
        # Rates are of examples; a row of several is drawn as much less often.
        of_rows = [
            share * len(store.train) / size for share, size, store in zip(shares, sizes, stores.values(), strict=True)
        ]
        first = next(iter(stores.values()))
        return cls(
            key=digest([(name, store.key) for name, store in stores.items()], rates),
            path=first.path.parent,
            tokenizer=first.tokenizer,
            train=MixedRows([store.train for store in stores.values()], of_rows),
            held_out=RowsInTurns([store.held_out for store in stores.values()]),
            layout=first.layout,
            figures={
                f"{name} {split}": figures for name, store in stores.items() for split, figures in store.figures.items()
            },
            corpus=None,
            parts=stores,
            shares=dict(zip(stores, shares, strict=True)),
        )


def _num_examples(store: TokenStore) -> int:
    """What counts as examples in a store's rows: pairs and labelled texts, else rows."""
    if not store.layout.has_examples:
        return len(store.train)
    return store.figures["train"].documents - store.figures["train"].skipped_documents
