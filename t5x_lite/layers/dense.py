"""The one matrix multiplication of the zoo: a `nn.Dense` whose parameters carry logical axis names."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float


class Dense(nn.Module):
    """x @ kernel (+ bias), with logical axes (`in`, `out`) on the kernel and `out` on the bias."""

    features: int
    axes: tuple[str, str]
    use_bias: bool = False
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x: Float[Array, "*batch I"]) -> Float[Array, "*batch O"]:
        kernel_init = nn.with_logical_partitioning(self.kernel_init, self.axes)
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.features), jnp.float32)
        # One matrix of all positions: XLA's CPU backend multiplies two matrices faster than a batch of them.
        y = x.reshape(-1, x.shape[-1]).astype(self.dtype) @ kernel.astype(self.dtype)
        if self.use_bias:
            bias_init = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[1:])
            y += self.param("bias", bias_init, (self.features,), jnp.float32).astype(self.dtype)[None]
        return y.reshape(*x.shape[:-1], self.features)
