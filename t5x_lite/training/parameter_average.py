"""The exponential moving average of the parameters that a run may keep beside them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError


@dataclass(frozen=True)
class ParameterAverage:
    """An exponential moving average of the parameters (Polyak and Juditsky 1992): the gradients are those of the
    parameters, everything else that uses the model takes the average."""

    decay: float = 0.0
    """What is left of the average after a step, the rest being the new parameters: e.g. 0.999; 0 keeps no average."""
    warmup: bool = True
    """Step n, from 1, keeps (1 + n) / (10 + n) at most: the first parameters are soon forgotten."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise InputError(f"average.decay={self.decay} is not in [0, 1); choose e.g. 0.999, or 0 to turn it off")

    def start(self, params: Any) -> Any:
        """The average before the first step: a copy of the parameters; None where there is none."""
        return jax.tree.map(jnp.copy, params) if self.decay else None

    def update(self, average: Any, params: Any, step: Int[Array, ""]) -> Any:
        """The average after update number `step`, the first being 1, which left `params`."""
        if not self.decay:
            return None
        return optax.incremental_update(params, average, 1.0 - self.decay_at(step))

    def decay_at(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """What is left of the average at update number `step`.

        >>> average = ParameterAverage(decay=0.5)
        >>> [round(float(average.decay_at(step)), 4) for step in (1, 2, 8, 1000)]
        [0.1818, 0.25, 0.5, 0.5]
        """
        step = jnp.asarray(step, jnp.float32)
        return jnp.minimum(self.decay, (1 + step) / (10 + step)) if self.warmup else jnp.full_like(step, self.decay)
