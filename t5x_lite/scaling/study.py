"""All fits of one study, and what they say of a given amount of compute."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.scaling.allocation import Allocation, fit_envelope, fit_profiles
from t5x_lite.scaling.fits import DELTA, Fit, fit_law, quantiles
from t5x_lite.scaling.laws import (
    ChinchillaLaw,
    ComputeLaw,
    DataLaw,
    FrontierLaw,
    KaplanLaw,
    Law,
    Measurements,
    Optimum,
    SizeLaw,
    Vector,
)

Fitted = TypeVar("Fitted")


@dataclass(frozen=True)
class Extrapolation:
    """How the law of the runs of less compute predicts those of more."""

    law: ChinchillaLaw
    fitted: Measurements
    predicted: Measurements

    @property
    def errors(self) -> Vector:
        """Of the predicted loss, relative to the measured one."""
        return self.law.predict(self.predicted) / self.predicted.loss - 1


@dataclass(frozen=True)
class Study:
    """The laws of some runs. What cannot be fitted is None, and `problems` says why."""

    measurements: Measurements
    cost: ComputeLaw
    size: Fit[SizeLaw] | None = None
    data: Fit[DataLaw] | None = None
    frontier: Fit[FrontierLaw] | None = None
    kaplan: Fit[KaplanLaw] | None = None
    envelope: Allocation | None = None
    profiles: Allocation | None = None
    chinchilla: Fit[ChinchillaLaw] | None = None
    extrapolation: Extrapolation | None = None
    problems: tuple[str, ...] = field(default=())

    @property
    def laws(self) -> list[Fit[Any]]:
        """The fits of a loss."""
        return [fit for fit in (self.size, self.data, self.frontier, self.kaplan, self.chinchilla) if fit is not None]

    def optima(self, flops: float) -> dict[str, tuple[Optimum, Callable[[str], tuple[float, float]]]]:
        """By approach: the best size, tokens and loss for an amount of compute, and what gives a figure's interval."""
        found: dict[str, tuple[Optimum, Callable[[str], tuple[float, float]]]] = {}
        for name, allocation in (("1, learning curves", self.envelope), ("2, IsoFLOP profiles", self.profiles)):
            if allocation is not None:
                draws = [draw.optimum(flops) for draw in allocation.draws]
                found[name] = allocation.optimum(flops), _intervals(draws, allocation.confidence)
        for name, fit in (("3, L(N, D)", self.chinchilla), ("Kaplan's L(N, D)", self.kaplan)):
            if fit is not None:
                draws = [law.optimum(flops, self.cost) for law in fit.draws]
                found[name] = fit.law.optimum(flops, self.cost), _intervals(draws, fit.confidence)
        return found

    def exponents(self) -> dict[str, tuple[tuple[float, float], dict[str, tuple[float, float]]]]:
        """By approach: (a, b) of N as C^a and D as C^b, and their intervals."""
        found: dict[str, tuple[tuple[float, float], dict[str, tuple[float, float]]]] = {}
        for name, allocation in (("1, learning curves", self.envelope), ("2, IsoFLOP profiles", self.profiles)):
            if allocation is not None:
                found[name] = (allocation.a, allocation.b), allocation.exponent_intervals
        for name, fit in (("3, L(N, D)", self.chinchilla), ("Kaplan's L(N, D)", self.kaplan)):
            if fit is not None:
                draws = [law.exponents(self.cost) for law in fit.draws]
                intervals = {
                    letter: quantiles([draw[index] for draw in draws], fit.confidence)
                    for index, letter in enumerate("ab")
                }
                found[name] = fit.law.exponents(self.cost), intervals
        return found

    def to_json(self) -> dict[str, Any]:
        """The constants, their intervals where there are draws, and the exponents by approach."""

        def known(intervals: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
            return {name: bounds for name, bounds in intervals.items() if all(map(math.isfinite, bounds))}

        laws = {
            fit.law.formula: {
                "constants": fit.law.constants,
                "intervals": known(fit.intervals),
                "measurements": len(fit.measurements),
            }
            for fit in self.laws
        }
        exponents = {
            name: {"a": a, "b": b, "intervals": known(intervals)}
            for name, ((a, b), intervals) in self.exponents().items()
        }
        cost = {"factor": self.cost.factor, "exponent": self.cost.exponent}
        return {"laws": laws, "exponents": exponents, "cost": cost, "problems": list(self.problems)}


def _intervals(draws: list[Optimum], confidence: float) -> Callable[[str], tuple[float, float]]:
    return lambda name: quantiles([getattr(draw, name) for draw in draws], confidence)


def fit_study(
    measurements: Measurements, *, draws: int = 100, confidence: float = 0.95, delta: float = DELTA, seed: int = 0
) -> Study:
    """Every law that the measurements allow.

    L(N) is of each size's lowest loss and L(D) of the lowest for each number of tokens, so that neither is held back by
    the other; L(C) of the losses that no run reaches with less compute. L(N, D) and approach 2 are of the runs' ends,
    approach 1 of their learning curves.

    Args:
      measurements: of `read_measurements`.
      draws: of the bootstrap, for intervals; 0: none.
      confidence: of the intervals.
      delta: of the Huber loss on log L.
      seed: of the draws.
    """
    options: dict[str, Any] = {"draws": draws, "confidence": confidence, "seed": seed}
    ends, problems = measurements.ends(), []

    def attempt(fit: Callable[[], Fitted]) -> Fitted | None:
        try:
            return fit()
        except InputError as error:
            problems.append(str(error))
            return None

    def law(kind: type[Law], of: Measurements) -> Any:
        return attempt(lambda: fit_law(kind, of, delta=delta, **options))

    return Study(
        measurements,
        ComputeLaw.fit(ends),
        size=law(SizeLaw, _lowest(ends, ends.parameters)),
        data=law(DataLaw, _lowest(ends, ends.tokens)),
        frontier=law(FrontierLaw, _frontier(measurements)),
        kaplan=law(KaplanLaw, ends),
        envelope=attempt(lambda: fit_envelope(measurements, **options)),
        profiles=attempt(lambda: fit_profiles(measurements, **options)),
        chinchilla=law(ChinchillaLaw, ends),
        extrapolation=attempt(lambda: extrapolate(ends, delta)),
        problems=tuple(problems),
    )


def extrapolate(ends: Measurements, delta: float = DELTA) -> Extrapolation:
    """The Chinchilla law of the half of the runs with less compute, beside the other half."""
    order = np.argsort(ends.flops, kind="stable")
    fitted, predicted = (ends.take(half) for half in np.split(order, [(len(ends) + 1) // 2]))
    return Extrapolation(fit_law(ChinchillaLaw, fitted, delta=delta).law, fitted, predicted)


def _lowest(ends: Measurements, values: Vector) -> Measurements:
    """The run of the lowest loss among those of each value, values within a hundredth counting as one."""
    names = np.round(np.log(values), 2)
    chosen = [
        indices[ends.loss[indices].argmin()] for name in np.unique(names) for indices in [np.flatnonzero(names == name)]
    ]
    return ends.take(np.array(chosen))


def _frontier(measurements: Measurements) -> Measurements:
    """Those whose loss none reaches with less compute."""
    order = np.lexsort((measurements.loss, measurements.flops))
    losses = measurements.loss[order]
    lowest_before = np.minimum.accumulate(np.concatenate([[np.inf], losses[:-1]]))
    return measurements.take(order[losses < lowest_before])
