"""What a metric is: the figures over all examples, their bootstrap intervals, and how they are shown."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int, Shaped

from t5x_lite.data.tasks.templates import class_of, number_of, tags_of
from t5x_lite.errors import InputError
from t5x_lite.objectives.base import Predictions

Figures = dict[str, float]
Ratios = dict[str, tuple[Shaped[np.ndarray, "N"], Shaped[np.ndarray, "N"] | int]]
Intervals = dict[str, tuple[float, float]]
"""The ends of the 95 % interval of each figure."""


_FORMATS = {"share": ".1%", "percent": ".1f", "number": ".3f"}


@dataclass(frozen=True)
class Metric(ABC):
    """One way to compare predictions with references.

    A config binds a metric by its name or, also one from outside the package, as a value:
    `Evaluation(metrics=("bleu", Length()))`. Its figures are in the records of a run, in the mean over a mixture and,
    with an interval, in what `evaluate` reports.

    >>> @dataclass(frozen=True)
    ... class Length(Metric):
    ...     name = "length"
    ...     compares = ("texts",)
    ...
    ...     def compute(self, predictions):
    ...         wanted = sum(len(texts[0]) for texts in predictions.references)
    ...         return sum(map(len, predictions.predicted)) / max(wanted, 1)
    >>> Length().figures(Predictions("texts", ["a cat"], [("a dog or a cat",)]))
    {'length': 0.35714285714285715}
    """

    name: ClassVar[str]
    """Its name in configs, and that of its figure where there is one alone."""
    compares: ClassVar[tuple[str, ...]] = ()
    """Each `Predictions.type` that it compares; empty: any."""
    reads_texts: ClassVar[bool] = True
    """Whether texts that a model writes may be read as the first of these types."""
    scale: ClassVar[Literal["share", "percent", "number"]] = "share"
    """Whether figures go from 0 to 1 and are shown in per cent, go from 0 to 100, or are other numbers."""
    labels: ClassVar[Mapping[str, str]] = {}
    """The label of a figure in reports, where that is not its name with blanks."""

    @abstractmethod
    def compute(self, predictions: Predictions) -> float | Figures:
        """The figure over all examples, of which there is at least one; or several figures by name.

        Raises `InputError` for predictions that lack what it needs, such as groups.
        """

    def read(self, texts: Predictions) -> Predictions:
        """Texts as the predictions that it compares; raises `InputError` for classes whose words are not known.

        What is the word of no class is `NO_CLASS`, and what is not a number `NO_NUMBER`.
        """
        predicted, first = texts.predicted, [references[0] for references in texts.references]
        match self.compares[0]:
            case "classes":
                if not texts.words:
                    raise InputError(
                        f"metric {self.name!r} needs the words of the classes by number; give TextToText with a task's"
                    )
                predicted, references = ([class_of(text, texts.words) for text in side] for side in (predicted, first))
            case "numbers":
                predicted, references = (list(map(number_of, side)) for side in (predicted, first))
            case "tags":
                references = [text.split() for text in first]
                predicted = [tags_of(text, len(tags)) for text, tags in zip(predicted, references, strict=True)]
            case _:
                return texts
        return replace(texts, type=self.compares[0], predicted=predicted, references=references)

    def resampled(self, predictions: Predictions) -> Callable[[Int[np.ndarray, "M"]], Figures]:
        """A function from the numbers of M drawn examples to the figures over them. By default it calls `compute`."""
        return lambda drawn: self.figures(predictions.take(drawn))

    def intervals(self, predictions: Predictions, *, resamples: int = 1000, seed: int = 0) -> Intervals:
        """The 95 % intervals of the figures: see `bootstrap`. Examples of one group are drawn together."""
        count, groups = len(predictions.predicted), predictions.groups
        return bootstrap(self.resampled(predictions), count, groups=groups, resamples=resamples, seed=seed)

    @property
    def signature(self) -> str:
        """What the figure depends on, such as the tokenization; empty where there is nothing to add."""
        return ""

    def figures(self, predictions: Predictions) -> Figures:
        """What `compute` gives, by name."""
        value = self.compute(predictions)
        return value if isinstance(value, dict) else {self.name: float(value)}

    def label(self, figure: str) -> str:
        """The name of a figure in reports."""
        return self.labels.get(figure, figure.replace("_", " "))

    def format(self, figure: str, value: float) -> str:
        """A figure as reports show it."""
        return f"{self.label(figure)} {value:{_FORMATS[self.scale]}}"

    def share(self, value: float) -> float:
        """A figure for means over several metrics: from 0 to 1 where it goes from 0 to 100."""
        return value / 100 if self.scale == "percent" else value


@dataclass(frozen=True)
class RatioMetric(Metric):
    """A metric whose figures are sums over the examples, one divided by the other; its intervals are quick."""

    @abstractmethod
    def ratios(self, predictions: Predictions) -> Ratios:
        """(numerator, denominator) of each figure, by example: the figure is the ratio of their sums. A denominator of
        1 means 1 for each example."""

    def compute(self, predictions: Predictions) -> Figures:
        return self.resampled(predictions)(np.arange(len(predictions.predicted)))

    def resampled(self, predictions: Predictions) -> Callable[[Int[np.ndarray, "M"]], Figures]:
        ratios = {name: np.broadcast_arrays(*pair) for name, pair in self.ratios(predictions).items()}

        def figures(drawn: Int[np.ndarray, "M"]) -> Figures:
            sums = {name: [values[drawn].sum() for values in pair] for name, pair in ratios.items()}
            return {name: float(top / max(below, 1e-9)) for name, (top, below) in sums.items()}

        return figures


def bootstrap(
    figures_of: Callable[[Int[np.ndarray, "M"]], Figures],
    count: int,
    *,
    groups: Sequence[str] = (),
    resamples: int = 1000,
    seed: int = 0,
) -> Intervals:
    """The 95 % intervals of figures over `count` examples, by the percentiles of the bootstrap (Efron 1979).

    `scipy.stats.bootstrap` takes no groups and refuses a single example. Draws for which a figure is not a number, such
    as the precision of small objects in pictures without any, do not count for it.

    Args:
      figures_of: the figures over some of the examples, by their numbers, which may repeat.
      count: of the examples.
      groups: the name of each example's group, where whole groups are drawn; empty names: each is drawn by itself.
      resamples: the number of draws, each of as many examples or groups as there are.
      seed: of the draws.

    >>> right = np.array([1.0, 1.0, 1.0, 0.0])
    >>> bootstrap(lambda drawn: {"accuracy": float(right[drawn].mean())}, 4)
    {'accuracy': (0.25, 1.0)}
    """
    members: dict[str, list[int]] = {}
    for number, group in enumerate(groups if any(groups) else ()):
        members.setdefault(group, []).append(number)
    by_group = [np.array(numbers) for numbers in members.values()]
    random, units = np.random.default_rng(seed), len(by_group) or count
    draws = []
    for _ in range(resamples):
        drawn = random.integers(0, units, units)
        draws.append(figures_of(np.concatenate([by_group[unit] for unit in drawn]) if by_group else drawn))
    values = {name: np.array([figures[name] for figures in draws]) for name in draws[0]}
    known = {name: of_draws[~np.isnan(of_draws)] for name, of_draws in values.items()}
    ends = {name: np.percentile(some, [2.5, 97.5]) if len(some) else (np.nan,) * 2 for name, some in known.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
