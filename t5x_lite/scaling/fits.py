"""Fits of scaling laws, with intervals by the bootstrap over runs."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float
from scipy import optimize

from t5x_lite.errors import InputError
from t5x_lite.scaling.laws import Law, Measurements, Vector

DELTA = 1e-3
"""Residuals of log L beyond which the Huber loss is linear (Hoffmann et al. 2022, appendix D.2)."""

NUM_STARTS = 40
"""The best of a law's starts, from which the objective is minimized."""
NUM_ENDS = 3
"""The lowest of the minima found from there, which are found to the last digit."""
MOST_RESTARTS = 20
"""Of BFGS: the Huber loss bends so sharply beside so many measurements that one descent may stop before the end."""

L = TypeVar("L", bound=Law)


@dataclass(frozen=True)
class Fit(Generic[L]):
    """A law, and what else the data allow."""

    law: L
    draws: tuple[L, ...]
    """The law fitted to resampled runs: the bootstrap."""
    measurements: Measurements
    """What it was fitted to."""
    confidence: float = 0.95

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """(lowest, highest) of each constant with this confidence; empty without draws."""
        return {name: self.interval(lambda law, name=name: law.constants[name]) for name in self.law.constants}

    def interval(self, of: Callable[[L], float]) -> tuple[float, float]:
        """Where a figure of the law lies with this confidence."""
        return quantiles([of(law) for law in self.draws], self.confidence)

    @property
    def residuals(self) -> Vector:
        """Of log L: measured minus predicted."""
        return np.log(self.measurements.loss) - np.log(self.law.predict(self.measurements))


def quantiles(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The middle of some values; NaN where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def fit_law(
    kind: type[L],
    measurements: Measurements,
    *,
    draws: int = 0,
    confidence: float = 0.95,
    delta: float = DELTA,
    seed: int = 0,
) -> Fit[L]:
    """The law of a kind with the least Huber loss on log L (Hoffmann et al. 2022, equation 3), found from many starts.

    Args:
      kind: SizeLaw, DataLaw, FrontierLaw, KaplanLaw or ChinchillaLaw.
      measurements: one for each run, or more.
      draws: fits to runs drawn with replacement, for intervals.
      delta: residuals of log L beyond which the Huber loss is linear.
      seed: of the draws.

    Raises:
      InputError: there are fewer measurements than constants, or all are of one size, amount of data or compute.
    """
    check_enough(kind, measurements)
    means = _logs(measurements).mean(axis=1)
    theta = _minimize(kind, measurements, delta, means)
    law, found = kind.from_theta(theta, means), []
    for sample in resamples(measurements, draws, seed):
        if _problem(kind, sample) is None:
            with contextlib.suppress(InputError):  # a sample in which the loss hardly depends on one of them
                found.append(kind.from_theta(_minimize(kind, sample, delta, means, start=theta), means))
    return Fit(law, tuple(found), measurements, confidence)


def check_enough(kind: type[Law], measurements: Measurements) -> None:
    """Raises `InputError` where a law cannot be fitted."""
    if problem := _problem(kind, measurements):
        raise InputError(f"{kind.formula} cannot be fitted: {problem}")


def _problem(kind: type[Law], measurements: Measurements) -> str | None:
    needed, variable = len(kind.bounds), getattr(kind, "variable", None)
    if len(measurements) < needed:
        return f"it has {needed} constants, and there are {len(measurements)} measurements; give more runs"
    for name in (variable,) if variable else ("parameters", "tokens"):
        values = getattr(measurements, name)
        several = len(np.unique(np.round(np.log(values), 3)))
        if several < (2 if variable else 3):
            fewest = "two" if variable else "three"
            return f"it needs runs of {fewest} numbers of {name} or more, and there are {several}; train others too"
    return None


def resamples(measurements: Measurements, draws: int, seed: int) -> Iterator[Measurements]:
    """Runs drawn with replacement, each with all of its measurements."""
    random = np.random.default_rng(seed)
    entries: dict[str, list[int]] = {}
    for index, run in enumerate(measurements.run):
        entries.setdefault(run, []).append(index)
    runs = list(entries.values())
    for _ in range(draws):
        chosen = random.integers(0, len(runs), len(runs))
        yield measurements.take(np.concatenate([runs[index] for index in chosen]))


def _logs(measurements: Measurements) -> Float[np.ndarray, "3 R"]:
    return np.log(np.stack([measurements.parameters, measurements.tokens, measurements.flops]))


def _minimize(
    kind: type[Law], measurements: Measurements, delta: float, means: Vector, start: Vector | None = None
) -> Vector:
    """The numbers of the best law; they hardly depend on each other with the means taken from the logarithms.

    With a `start`, those of the minimum that is nearest, to the five digits that an interval needs.
    """
    logs, log_loss = _logs(measurements) - means[:, None], np.log(measurements.loss)

    def objective(theta: Vector) -> tuple[float, Vector]:
        predicted, derivatives = kind.log_loss(theta, logs)
        residuals = (predicted - log_loss) / delta
        clipped = np.clip(residuals, -1.0, 1.0)
        return float((clipped * (residuals - 0.5 * clipped)).sum()), derivatives.T @ clipped / delta

    def curvature(theta: Vector) -> Float[np.ndarray, "P P"]:
        """Of the quadratic that lies above the Huber loss and touches it at `theta`, a little of its scale added."""
        predicted, derivatives = kind.log_loss(theta, logs)
        weights = 1 / np.maximum(np.abs(predicted - log_loss) / delta, 1.0)
        matrix = (derivatives.T * weights) @ derivatives / delta**2
        return matrix + 1e-9 * np.trace(matrix) * np.eye(len(matrix))

    low, high = np.array(kind.bounds, float).T

    def descend(theta: Vector, gradient: float) -> tuple[float, Vector]:
        """(objective, theta) of a minimum, as near as the gradient says: that of half the squared error of log L."""
        inverse = np.linalg.inv(curvature(theta))
        options = {"hess_inv0": 0.5 * (inverse + inverse.T), "gtol": gradient / delta**2, "maxiter": 200}
        found = optimize.minimize(objective, theta, jac=True, method="BFGS", options=options)
        if not np.all((low <= found.x) & (found.x <= high)):
            options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9}
            bounds = list(zip(low, high, strict=True))
            found = optimize.minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return found.fun, found.x

    if start is not None:
        return descend(start, 1e-8)[1]
    starts = sorted(kind.starts(logs, log_loss), key=lambda theta: objective(theta)[0])[:NUM_STARTS]
    # Most starts come to one minimum, and the last digits there cost more than the way to it.
    ends = [descend(np.clip(start, low, high), 1e-8) for start in starts]
    ends.sort(key=lambda end: np.nan_to_num(end[0], nan=math.inf))
    best, least = None, math.inf
    for value, theta in ends[:NUM_ENDS]:
        for _ in range(MOST_RESTARTS):
            before = value
            value, theta = descend(theta, 1e-10)
            if not before - value > 1e-9 * max(abs(value), 1.0):
                break
        if value < least:
            best, least = theta, value
    return best
