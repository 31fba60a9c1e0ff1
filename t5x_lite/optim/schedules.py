"""Learning rates as functions of the step, counted from 1 as the papers do."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.validation import NonNegativeFloat, Positive, PositiveFloat, Range, Validated

Step = Int[Array, ""] | Float[Array, ""] | int
Rate = Float[Array, ""]


@dataclass(frozen=True)
class Schedule(Validated, ABC):
    """A learning rate for every step."""

    @abstractmethod
    def learning_rate(self, step: Step) -> Rate:
        """The learning rate of update number `step`, the first being 1."""

    def stretched(self, factor: float) -> "Schedule":
        """The schedule of a run with `factor` times as many steps: the same, unless it decays towards an end."""
        return self


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate throughout."""

    rate: PositiveFloat = 1e-3

    def learning_rate(self, step: Step) -> Rate:
        return jnp.full_like(jnp.asarray(step, jnp.float32), self.rate)


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Vaswani et al. 2017, equation 3: factor * embed_dim^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    >>> float(InverseSqrt(embed_dim=512, warmup_steps=4000).learning_rate(4000)).__round__(9)
    0.000698771
    """

    embed_dim: Positive = 512
    """The model's width, which scales the rate down by its root."""
    warmup_steps: Positive = 4000
    """Steps of linear growth before the decay."""
    factor: PositiveFloat = 1.0
    """Multiplies all rates."""

    def learning_rate(self, step: Step) -> Rate:
        step = jnp.asarray(step, jnp.float32)
        return self.factor * self.embed_dim**-0.5 * jnp.minimum(step**-0.5, step * self.warmup_steps**-1.5)


@dataclass(frozen=True)
class T5InverseSqrt(Schedule):
    """Raffel et al. 2020, section 3.1.2: factor / sqrt(max(step, warmup_steps)); flat, then decaying."""

    warmup_steps: Positive = 10_000
    """Steps at the highest rate, which is factor / sqrt(warmup_steps)."""
    factor: PositiveFloat = 1.0
    """Multiplies all rates."""

    def learning_rate(self, step: Step) -> Rate:
        return self.factor * jnp.maximum(jnp.asarray(step, jnp.float32), self.warmup_steps) ** -0.5


@dataclass(frozen=True)
class LinearDecay(Schedule):
    """Linear growth to `peak`, then linear decay to zero at the last step (Devlin et al. 2019, appendix A.2)."""

    peak: PositiveFloat = 1e-4
    """The highest learning rate."""
    warmup_steps: int = 10_000
    """Steps of linear growth."""
    total_steps: int = 1_000_000
    """The step at which the rate reaches zero; usually the run's number of steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_warmup(self.warmup_steps, self.total_steps)

    def stretched(self, factor: float) -> "Schedule":
        return _stretched(self, factor)

    def learning_rate(self, step: Step) -> Rate:
        step = jnp.asarray(step, jnp.float32)
        growth = step / max(self.warmup_steps, 1)
        decay = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        return self.peak * jnp.clip(jnp.minimum(growth, decay), 0.0, 1.0)


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """Linear growth to `peak`, half a cosine down to `floor * peak` at `total_steps`, and that from then on.

    Loshchilov and Hutter 2017, equation 5, once; GPT-3 was trained with it (Brown et al. 2020, appendix B).

    >>> schedule = CosineDecay(peak=1.0, warmup_steps=10, total_steps=110, floor=0.1)
    >>> [round(float(schedule.learning_rate(step)), 4) for step in (1, 10, 60, 110, 500)]
    [0.1, 1.0, 0.55, 0.1, 0.1]
    """

    peak: PositiveFloat = 6e-4
    """The highest learning rate."""
    warmup_steps: int = 1000
    """Steps of linear growth."""
    total_steps: int = 100_000
    """The step at which the rate reaches its lowest."""
    floor: Annotated[float, Range(ge=0, le=1, remedy="choose a share of the peak, e.g. 0.1")] = 0.1
    """The lowest rate as a share of the highest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_warmup(self.warmup_steps, self.total_steps)

    def stretched(self, factor: float) -> "Schedule":
        return _stretched(self, factor)

    def learning_rate(self, step: Step) -> Rate:
        step = jnp.asarray(step, jnp.float32)
        growth = jnp.minimum(step / max(self.warmup_steps, 1), 1.0)
        decay = optax.cosine_decay_schedule(self.peak, self.total_steps - self.warmup_steps, self.floor)
        return growth * decay(jnp.maximum(step - self.warmup_steps, 0.0))


@dataclass(frozen=True)
class StepDecay(Schedule):
    """Linear growth from `start` to `peak`, then `peak`, times `factor` after each of `boundaries` updates.

    Goyal et al. 2017, sections 2.2 and 5.1, by which residual networks are trained.

    >>> schedule = StepDecay(peak=0.4, start=0.1, warmup_steps=3, boundaries=(30, 60), factor=0.1)
    >>> [round(float(schedule.learning_rate(step)), 4) for step in (1, 2, 3, 30, 31, 61)]
    [0.2, 0.3, 0.4, 0.4, 0.04, 0.004]
    """

    peak: PositiveFloat = 0.1
    """The highest learning rate."""
    start: NonNegativeFloat = 0.0
    """Where the growth begins: the rate before the first update."""
    warmup_steps: int = 0
    """Steps of linear growth."""
    boundaries: tuple[int, ...] = (30_000, 60_000, 80_000)
    """Numbers of updates after which the rate falls."""
    factor: PositiveFloat = 0.1
    """What it is multiplied by."""

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = (self.warmup_steps, *self.boundaries)
        if self.warmup_steps < 0 or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise InputError(
                f"boundaries={self.boundaries} do not grow from warmup_steps={self.warmup_steps} on; choose numbers of "
                "updates in ascending order, all of them after the warmup"
            )

    def stretched(self, factor: float) -> "Schedule":
        boundaries = tuple(max(round(factor * step), 1) for step in self.boundaries)
        return replace(self, warmup_steps=round(factor * self.warmup_steps), boundaries=boundaries)

    def learning_rate(self, step: Step) -> Rate:
        step = jnp.asarray(step, jnp.float32)
        growth = optax.linear_schedule(self.start, self.peak, self.warmup_steps)
        steps = optax.piecewise_constant_schedule(self.peak, dict.fromkeys(self.boundaries, self.factor))
        # Optax counts the updates that are done.
        return jnp.where(step < self.warmup_steps, growth(step), steps(step - 1))


def _stretched(schedule: LinearDecay | CosineDecay, factor: float) -> Schedule:
    total = max(round(factor * schedule.total_steps), 2)
    warmup = min(round(factor * schedule.warmup_steps), total - 1)
    return replace(schedule, warmup_steps=max(warmup, 1) if schedule.warmup_steps else 0, total_steps=total)


def _check_warmup(warmup_steps: int, total_steps: int) -> None:
    if not 0 <= warmup_steps < total_steps:
        raise InputError(f"warmup_steps={warmup_steps} is not in [0, total_steps={total_steps}); choose fewer")
