"""Where a text begins and ends, and what may stand in it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError


@dataclass(frozen=True)
class Limits:
    """What a method of decoding has to obey."""

    max_length: int
    """Tokens to write at most, EOS included."""
    eos_id: int | None
    """Ends a text; None: nothing does but the maximum length."""
    pad_id: int
    """Stands behind the end."""
    forced_first_id: int | None = None
    """What every text begins with, whatever the model says."""
    forced_last_id: int | None = None
    """What stands at the maximum length in a text that has not ended before."""
    suppressed_ids: tuple[int, ...] = ()
    """What never is written."""

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise InputError(f"max_length={self.max_length} is too small; choose 1 or more")

    def apply(
        self, logits: Float[Array, "R V"], index: Int[Array, ""]
    ) -> tuple[Float[Array, "R V"], Float[Array, "R 1"]]:
        """(logits, log of their normaliser) of the token at `index`, minus infinity where one may not be written.

        The normaliser is that of all tokens, so that probabilities are the model's own. A forced token has probability
        one.
        """
        log_z = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        if self.suppressed_ids:
            # Chosen for each place, not written into the few: a CPU would copy all logits before each writing.
            suppressed = np.isin(np.arange(logits.shape[1]), self.suppressed_ids)
            logits = jnp.where(suppressed, -jnp.inf, logits)
        for place, token in {0: self.forced_first_id, self.max_length - 1: self.forced_last_id}.items():
            if token is not None:
                alone = jnp.where(jnp.arange(logits.shape[1]) == token, 0.0, -jnp.inf)
                logits = jnp.where(index == place, alone[None, :], logits)
                log_z = jnp.where(index == place, 0.0, log_z)
        return logits, log_z

    def ends(self, tokens: Int[Array, "*shape"]) -> Bool[Array, "*shape"]:
        """Which tokens end their text."""
        return jnp.zeros(tokens.shape, bool) if self.eos_id is None else tokens == self.eos_id
