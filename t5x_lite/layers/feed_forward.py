"""The position-wise feed-forward layer, plain and gated."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Dense
from t5x_lite.layers.dropout import Dropout
from t5x_lite.layers.partitioning import place


def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x times the normal distribution's share below x (Hendrycks and Gimpel 2016), computed in float32.

    By erf, as PyTorch has it: by erfc a CPU takes twice as long, and gains digits only far below zero, where all is so
    small that no sum shows them.
    """
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": gelu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


def check_activation(name: str) -> None:
    """Raises `InputError` for an activation that is not in `ACTIVATIONS`."""
    if name not in ACTIVATIONS:
        raise InputError(f"activation={name!r} is not known; choose one of {', '.join(ACTIVATIONS)}")


class FeedForward(nn.Module):
    """activation(x wi) wo (Vaswani et al. 2017, 3.3), or gated: (activation(x gate) * x wi) wo (Shazeer 2020)."""

    mlp_dim: int
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = False
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    out_init: Callable[..., Array] | None = None
    """Of the output's projection; None means `kernel_init`."""
    positions_share_dropout: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"], *, deterministic: bool = True) -> Float[Array, "B L D"]:
        def dense(features: int, axes: tuple[str, str], name: str, init: Callable[..., Array] | None = None) -> Dense:
            return Dense(features, axes, self.use_bias, self.dtype, init or self.kernel_init, name=name)

        hidden = dense(self.mlp_dim, ("embed", "mlp"), "wi")(x)
        # The backward pass is given what went in, and not the three or four arrays that are made of it on the way.
        activation = jax.checkpoint(ACTIVATIONS[self.activation], prevent_cse=False)
        if self.gated:
            hidden *= activation(dense(self.mlp_dim, ("embed", "mlp"), "gate")(x))
        else:
            hidden = activation(hidden)
        hidden = place(hidden, "activation_batch", "activation_length", "activation_mlp")
        dropout = Dropout(self.dropout_rate, self.positions_share_dropout)
        hidden = dropout(hidden, deterministic=deterministic)
        return dense(x.shape[-1], ("mlp", "embed"), "wo", self.out_init)(hidden)
