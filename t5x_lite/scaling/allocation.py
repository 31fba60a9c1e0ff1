"""The best size for some compute without a law of the loss: Hoffmann et al. 2022, sections 3.1 and 3.2."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from t5x_lite.errors import InputError
from t5x_lite.scaling.fits import quantiles, resamples
from t5x_lite.scaling.laws import Measurements, Optimum, Vector

MOST_GAP = 0.2
"""Of log C between runs of one budget."""
NUM_BUDGETS = 1500
"""Amounts of compute at which the learning curves are compared (section 3.1)."""


@dataclass(frozen=True)
class Profile:
    """The losses of some sizes for one amount of compute, with a parabola over log N through them."""

    flops: float
    parameters: Vector
    loss: Vector
    parabola: Float[np.ndarray, "3"]
    """Its coefficients, that of log(N)^2 first."""

    @property
    def optimum(self) -> tuple[float, float]:
        """(N, the loss) where the parabola is lowest."""
        log_size = -self.parabola[1] / (2 * self.parabola[0])
        return math.exp(log_size), float(np.polyval(self.parabola, log_size))


@dataclass(frozen=True)
class Allocation:
    """The best N, D and loss as powers of C: N = exp(log_parameters) C^a, D = exp(log_tokens) C^b."""

    flops: Vector
    parameters: Vector
    tokens: Vector
    loss: Vector
    """The optima that the powers were fitted to, by least squares on logarithms."""
    profiles: tuple[Profile, ...] = ()
    draws: tuple["Allocation", ...] = ()
    """The same of resampled runs."""
    confidence: float = 0.95

    @property
    def a(self) -> float:
        """The exponent of N."""
        return float(self._fit(self.parameters)[0])

    @property
    def b(self) -> float:
        """The exponent of D."""
        return float(self._fit(self.tokens)[0])

    def _fit(self, values: Vector) -> Float[np.ndarray, "2"]:
        return np.polyfit(np.log(self.flops), np.log(values), 1)

    def optimum(self, flops: float) -> Optimum:
        """The powers' N, D and loss for an amount of compute."""
        fits = (self._fit(values) for values in (self.parameters, self.tokens, self.loss))
        return Optimum(*(float(np.exp(np.polyval(fit, np.log(flops)))) for fit in fits))

    @property
    def exponent_intervals(self) -> dict[str, tuple[float, float]]:
        """(lowest, highest) a and b with this confidence."""
        return {name: quantiles([getattr(draw, name) for draw in self.draws], self.confidence) for name in ("a", "b")}


def fit_envelope(measurements: Measurements, *, draws: int = 0, confidence: float = 0.95, seed: int = 0) -> Allocation:
    """Approach 1: at each amount of compute the run whose learning curve is lowest (Hoffmann et al. 2022, section 3.1).

    Where the smallest or the largest size is best, the best one may lie beyond: such compute is left out, and so is
    what fewer than three sizes reach.

    Raises:
      InputError: the runs have no learning curves, or fewer than two amounts of compute remain.
    """
    return _with_draws(_envelope, measurements, draws, confidence, seed)


def fit_profiles(measurements: Measurements, *, draws: int = 0, confidence: float = 0.95, seed: int = 0) -> Allocation:
    """Approach 2: runs of one compute and several sizes; the loss is a parabola over log N (section 3.2).

    Runs whose compute is alike make a profile. Where the runs are a grid of sizes and tokens instead, the final losses
    of each size are interpolated over the compute.

    Raises:
      InputError: fewer than two profiles of three sizes have their lowest loss between two sizes.
    """
    return _with_draws(_profiles, measurements, draws, confidence, seed)


def _with_draws(
    fit: Callable[[Measurements], Allocation], measurements: Measurements, draws: int, confidence: float, seed: int
) -> Allocation:
    whole, found = fit(measurements), []
    for sample in resamples(measurements, draws, seed):
        try:
            found.append(fit(sample))
        except InputError:  # too few sizes were drawn
            continue
    return Allocation(whole.flops, whole.parameters, whole.tokens, whole.loss, whole.profiles, tuple(found), confidence)


def _envelope(measurements: Measurements) -> Allocation:
    curves = [
        measurements.take(np.flatnonzero(np.array(measurements.run) == run)) for run in dict.fromkeys(measurements.run)
    ]
    curves = [curve.take(np.argsort(curve.flops, kind="stable")) for curve in curves if len(np.unique(curve.flops)) > 1]
    if len(curves) < 3:
        raise InputError("approach 1 compares learning curves, and fewer than three runs have one; evaluate more often")
    budgets = np.geomspace(
        min(curve.flops[0] for curve in curves), max(curve.flops[-1] for curve in curves), NUM_BUDGETS
    )
    losses = np.stack(
        [
            np.exp(np.interp(np.log(budgets), np.log(curve.flops), np.log(curve.loss), left=np.inf, right=np.inf))
            for curve in curves
        ]
    )
    sizes = np.array([curve.parameters[0] for curve in curves])
    alike = np.round(np.log(sizes), 2)
    best = losses.argmin(axis=0)
    compared = np.array([len(np.unique(alike[np.isfinite(column)])) >= 3 for column in losses.T])
    inner = (alike[best] > alike.min()) & (alike[best] < alike.max())
    chosen = np.flatnonzero(compared & inner)
    if len(np.unique(alike[best[chosen]])) < 2:
        raise InputError(
            "approach 1 needs two sizes between the smallest and the largest that are best somewhere; train more"
        )
    tokens = [
        np.exp(np.interp(np.log(budgets[n]), np.log(curves[best[n]].flops), np.log(curves[best[n]].tokens)))
        for n in chosen
    ]
    return Allocation(budgets[chosen], sizes[best[chosen]], np.array(tokens), losses[best[chosen], chosen])


def _profiles(measurements: Measurements) -> Allocation:
    ends = measurements.ends()
    groups = _by_compute(ends) or _interpolated(ends)
    found, tokens = [], []
    for whole in groups:
        group = _near_the_best(whole)
        log_size = np.log(group.parameters)
        if len(np.unique(np.round(log_size, 2))) < 3:
            continue
        parabola = np.polyfit(log_size, group.loss, 2)
        if parabola[0] <= 0 or not log_size.min() < -parabola[1] / (2 * parabola[0]) < log_size.max():
            continue
        flops = float(np.exp(np.log(group.flops).mean()))
        profile = Profile(flops, group.parameters, group.loss, parabola)
        found.append(profile)
        # The tokens that this compute allows the best size, from those of the sizes beside it.
        line = np.polyfit(log_size, np.log(group.tokens * flops / group.flops), 1)
        tokens.append(math.exp(np.polyval(line, math.log(profile.optimum[0]))))
    if len(found) < 2:
        raise InputError(
            "approach 2 needs two amounts of compute or more, each with three sizes between which the best one lies; "
            "train sizes further apart, or at more amounts of compute"
        )
    sizes, losses = zip(*(profile.optimum for profile in found), strict=True)
    flops = np.array([profile.flops for profile in found])
    return Allocation(flops, np.array(sizes), np.array(tokens), np.array(losses), tuple(found))


def _near_the_best(group: Measurements) -> Measurements:
    """The sizes within a factor of 5 of the best one, and the two next to it on either side: farther away the loss is
    no parabola."""
    log_size = np.log(group.parameters)
    distance = log_size - log_size[group.loss.argmin()]
    chosen = np.abs(distance) <= math.log(5)
    for side in (distance, -distance):
        beyond = np.unique(side[side > 0.005])
        chosen |= (side > 0) & (side <= (beyond[:2].max() if len(beyond) else 0.0))
    return group.take(chosen)


def _by_compute(ends: Measurements) -> list[Measurements]:
    """Groups of runs whose compute is alike; none where fewer than two have three sizes."""
    order = np.argsort(ends.flops, kind="stable")
    breaks = np.flatnonzero(np.diff(np.log(ends.flops[order])) > MOST_GAP) + 1
    groups = [ends.take(indices) for indices in np.split(order, breaks)]
    alike = [
        group
        for group in groups
        if np.ptp(np.log(group.flops)) < 2 * MOST_GAP and len(np.unique(np.round(np.log(group.parameters), 2))) >= 3
    ]
    return alike if len(alike) >= 2 else []


def _interpolated(ends: Measurements) -> list[Measurements]:
    """Profiles between the final losses of a grid of sizes and tokens, at nine amounts of compute."""
    names = np.round(np.log(ends.parameters), 2)
    rows = [ends.take(np.flatnonzero(names == name)) for name in np.unique(names)]
    rows = [row.take(np.argsort(row.flops, kind="stable")) for row in rows if np.ptp(np.log(row.flops)) > MOST_GAP]
    groups = []
    for flops in np.geomspace(ends.flops.min(), ends.flops.max(), 9):
        covering = [row for row in rows if row.flops[0] <= flops <= row.flops[-1]]
        if len(covering) < 3:
            continue
        at = [
            [np.exp(np.interp(np.log(flops), np.log(row.flops), np.log(values))) for values in (row.tokens, row.loss)]
            for row in covering
        ]
        tokens, losses = np.array(at).T
        sizes = np.array([row.parameters[0] for row in covering])
        groups.append(Measurements(sizes, tokens, np.full(len(sizes), flops), losses, tuple(map(str, sizes))))
    return groups
