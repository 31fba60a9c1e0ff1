"""Several corpora, such as tasks, that one model is trained on together: Raffel et al. 2020, section 3.5.2."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from t5x_lite.data.records.base import Source, digest
from t5x_lite.errors import InputError
from t5x_lite.validation import NonNegative, PositiveFloat, Validated


@dataclass(frozen=True)
class Rates(Validated, ABC):
    """How often examples of each corpus are drawn."""

    @abstractmethod
    def of(self, sizes: Sequence[int]) -> list[float]:
        """The share of each corpus among the examples that are drawn, from their numbers of examples."""


@dataclass(frozen=True)
class Proportional(Rates):
    """By the number of examples; at most as if there were `limit` of them, and the shares to the power 1 / T.

    >>> sizes = [100, 300, 600]
    >>> Proportional().of(sizes), Proportional(limit=100).of([50, 100, 9999])
    ([0.1, 0.3, 0.6], [0.2, 0.4, 0.4])
    >>> [round(share, 3) for share in Proportional(temperature=2.0).of([100, 400, 900])]
    [0.167, 0.333, 0.5]
    """

    limit: NonNegative = 0
    """The artificial limit K on a corpus's examples, such as 2**21 in T5; 0 is none."""
    temperature: PositiveFloat = 1.0
    """T: 1 is proportional, more comes closer to equal shares."""

    def of(self, sizes: Sequence[int]) -> list[float]:
        counted = [min(size, self.limit) if self.limit else size for size in sizes]
        return _shares([(size / sum(counted)) ** (1 / self.temperature) for size in counted])


@dataclass(frozen=True)
class Equal(Rates):
    """From all corpora equally often.

    >>> Equal().of([1, 999])
    [0.5, 0.5]
    """

    def of(self, sizes: Sequence[int]) -> list[float]:
        return _shares([1.0] * len(sizes))


@dataclass(frozen=True)
class Fixed(Rates):
    """At rates that are given, in the order of the corpora.

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
        return _shares(self.rates)


def _shares(weights: Sequence[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


@dataclass(frozen=True)
class Part:
    """A corpus of a mixture."""

    name: str
    """As figures call it."""
    source: Source
    """What is trained on."""
    held_out_source: Source | None = None
    """What is evaluated on; None holds out a part of `source`."""


@contextmanager
def of_part(name: str) -> Iterator[None]:
    """Says which part an `InputError` is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"part {name!r} of the mixture: {error}") from None


@dataclass(frozen=True)
class Mixture(Source):
    """Corpora of one kind, each tokenized by the same tokenizer into a store of its own."""

    parts: tuple[Part, ...]
    """The corpora, each with a name of its own."""
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
        """Those of all parts."""
        for part in self.parts:
            with of_part(part.name):
                yield from part.source.documents()

    def fingerprint(self) -> str:
        fingerprints = []
        for part in self.parts:
            with of_part(part.name):
                fingerprints.append((part.name, part.source.fingerprint()))
        return digest("Mixture", fingerprints)
