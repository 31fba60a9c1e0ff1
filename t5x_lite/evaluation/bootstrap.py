"""How far a figure on a test set may be off by the choice of its examples."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

Figures = dict[str, float]


def intervals(
    figures_of: Callable[[Int[np.ndarray, "N"]], Figures], count: int, *, resamples: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of figures over `count` examples, by the percentiles of the bootstrap (Efron 1979).

    Args:
      figures_of: the figures over some of the examples, by their numbers, one of which may stand there several times.
      count: of the examples.
      resamples: how many times `count` of them are drawn.
      seed: of the draws.

    >>> right = np.array([1.0, 1.0, 1.0, 0.0])
    >>> intervals(lambda some: {"accuracy": float(right[some].mean())}, 4)
    {'accuracy': (0.25, 1.0)}
    """
    random = np.random.default_rng(seed)
    drawn = [figures_of(random.integers(0, count, count)) for _ in range(resamples)]
    ends = {name: np.percentile([figures[name] for figures in drawn], [2.5, 97.5]) for name in drawn[0]}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
