"""The one matrix multiplication of the zoo: a `nn.Dense` whose parameters carry logical axis names."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.layers.partitioning import is_cut, whole_rows


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
        y = multiply(x.astype(self.dtype), whole_rows(kernel, self.axes, self.dtype))
        if self.use_bias:
            bias_init = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[1:])
            bias = self.param("bias", bias_init, (self.features,), jnp.float32).astype(self.dtype)
            y += bias.reshape(*(1,) * (y.ndim - 1), -1)
        return y


def multiply(x: Float[Array, "*batch I"], matrix: Float[Array, "I O"], **options: Any) -> Float[Array, "*batch O"]:
    """x @ matrix, with `jnp.matmul`'s options.

    All positions make one matrix, since XLA's CPU backend multiplies two matrices faster than a batch of them. Where
    rows are cut along their length, such a matrix could not be cut, and every device would compute all of it.
    """
    if is_cut("activation_length"):
        return jnp.matmul(x, matrix, **options)
    y = jnp.matmul(x.reshape(-1, x.shape[-1]), matrix, **options)
    return y.reshape(*x.shape[:-1], matrix.shape[-1])
