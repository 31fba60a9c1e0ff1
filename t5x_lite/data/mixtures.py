"""Several corpora, such as tasks, that one model is trained on together: Raffel et al. 2020, section 3.5.2."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from t5x_lite.data.layouts.base import Example, Row
from t5x_lite.data.records.base import Source, digest
from t5x_lite.data.store import TokenStore
from t5x_lite.data.stored_rows import MixedRows, RowsInTurns
from t5x_lite.errors import InputError
from t5x_lite.validation import NonNegative, PositiveFloat, Validated


@dataclass(frozen=True)
class Rates(Validated, ABC):
    """How often examples of each corpus are drawn."""

    @abstractmethod
    def of(self, sizes: Sequence[int]) -> list[float]:
        """The share of each corpus among the examples drawn, from the numbers of their examples."""


@dataclass(frozen=True)
class Proportional(Rates):
    """By the number of examples, at most `limit`, to the power 1 / T.

    >>> sizes = [100, 300, 600]
    >>> Proportional().of(sizes), Proportional(limit=100).of([50, 100, 9999])
    ([0.1, 0.3, 0.6], [0.2, 0.4, 0.4])
    >>> [round(share, 3) for share in Proportional(temperature=2.0).of([100, 400, 900])]
    [0.167, 0.333, 0.5]
    """

    limit: NonNegative = 0
    """K, an artificial size limit such as T5's 2**21; 0 for none."""
    temperature: PositiveFloat = 1.0
    """T: 1 is proportional, more comes closer to equal shares."""

    def of(self, sizes: Sequence[int]) -> list[float]:
        counted = [min(size, self.limit) if self.limit else size for size in sizes]
        weights = [(size / sum(counted)) ** (1 / self.temperature) for size in counted]
        return [weight / sum(weights) for weight in weights]


@dataclass(frozen=True)
class Equal(Rates):
    """From all corpora equally often.

    >>> Equal().of([1, 999])
    [0.5, 0.5]
    """

    def of(self, sizes: Sequence[int]) -> list[float]:
        return [1 / len(sizes)] * len(sizes)


@dataclass(frozen=True)
class Fixed(Rates):
    """At the given rates, in the order of the corpora.

    >>> Fixed((3.0, 1.0)).of([1, 999])
    [0.75, 0.25]
    """

    rates: tuple[float, ...]
    """One for each corpus, in any unit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rates or not all(0 < rate < float("inf") for rate in self.rates):
            raise InputError(f"rates={self.rates} are not rates; give each part of the mixture one above 0")

    def of(self, sizes: Sequence[int]) -> list[float]:
        if len(sizes) != len(self.rates):
            raise InputError(f"rates={self.rates} do not go with {len(sizes)} parts of a mixture; give one for each")
        return [rate / sum(self.rates) for rate in self.rates]


@dataclass(frozen=True)
class Part:
    """A corpus of a mixture."""

    name: str
    source: Source
    held_out_source: Source | None = None
    """For evaluation; None holds out a part of `source`."""


@contextmanager
def of_part(name: str) -> Iterator[None]:
    """Adds the name of a part to an `InputError`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"part {name!r} of the mixture: {error}") from None


@dataclass(frozen=True)
class Mixture(Source):
    """Corpora that one tokenizer turns into a store each."""

    parts: tuple[Part, ...]
    """The corpora, under distinct names."""
    rates: Rates = Proportional()
    """How often examples of each are drawn: Proportional, Equal or Fixed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names) or not all(names):
            raise InputError(f"parts={tuple(names)} are not names of a mixture's parts; give one or more, each once")
        if bad := [name for name in names if "/" in name]:
            raise InputError(f"parts={bad[0]!r} has a slash, which stands between a part and its figures; write none")
        if nested := [part.name for part in self.parts if isinstance(part.source, Mixture)]:
            raise InputError(f"parts={nested[0]!r} is a mixture in a mixture; name its parts instead")
        if isinstance(self.rates, Fixed):
            self.rates.of([1] * len(names))

    def documents(self) -> Iterator[str]:
        for part in self.parts:
            with of_part(part.name):
                yield from part.source.documents()

    def shards(self) -> list[Source]:
        shards: list[Source] = []
        for part in self.parts:
            of_part = part.source.shards()
            # What is wrong with a part is said with its name.
            shards += of_part if len(of_part) > 1 else [replace(self, parts=(part,), rates=Proportional())]
        return shards

    def fingerprint(self) -> str:
        fingerprints = []
        for part in self.parts:
            with of_part(part.name):
                fingerprints.append((part.name, part.source.fingerprint()))
        return digest("Mixture", fingerprints)


@dataclass(frozen=True, eq=False)
class MixtureStore(TokenStore):
    """The stores of a mixture's parts. `train` has all their rows, which `batches` draws at the mixture's rates;
    `held_out` takes the parts in turns; the keys of `figures` are such as "name train"."""

    parts: dict[str, TokenStore]
    shares: dict[str, float]
    """The share of each part among the examples drawn."""

    def __exit__(self, *error: Any) -> None:
        for store in self.parts.values():
            store.__exit__(*error)

    def held_out_documents(self) -> Iterator[Example]:
        return itertools.chain.from_iterable(store.held_out_documents() for store in self.parts.values())

    @property
    def rows_to_show(self) -> Sequence[Row]:
        return RowsInTurns([store.train for store in self.parts.values()])

    @property
    def remarks(self) -> list[str]:
        """The share of each part, and the remarks of the parts."""
        shares = ", ".join(f"{name} {share:.2%}" for name, share in self.shares.items())
        of_parts = [f"{name}: {remark}" for name, store in self.parts.items() for remark in store.remarks]
        return [f"mixture, shares of examples: {shares}", *of_parts]

    @classmethod
    def of(cls, stores: dict[str, TokenStore], rates: Rates) -> "MixtureStore":
        """The stores of the parts, by name, with rows drawn at these rates of their examples."""
        first, *_ = every = list(stores.values())
        sizes = [store.num_examples for store in every]
        shares = rates.of(sizes)
        # Rates are of examples; a row of several is drawn as much less often.
        of_rows = [share * len(store.train) / size for share, size, store in zip(shares, sizes, every, strict=True)]
        return cls(
            key=digest([(name, store.key) for name, store in stores.items()], rates),
            path=first.path.parent,
            tokenizer=first.tokenizer,
            train=MixedRows([store.train for store in every], of_rows),
            held_out=RowsInTurns([store.held_out for store in every]),
            layout=first.layout,
            figures={f"{name} {split}": one for name, store in stores.items() for split, one in store.figures.items()},
            corpus=None,
            threshold=None,
            classes=first.classes,
            parts=stores,
            shares=dict(zip(stores, shares, strict=True)),
        )
