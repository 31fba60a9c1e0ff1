"""The one matrix multiplication of the zoo: a `nn.Dense` whose parameters carry logical axis names."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.layers.partitioning import is_cut, shared_out, whole_rows


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
        y = multiply(x, kernel, self.axes, self.dtype)
        if self.use_bias:
            bias_init = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[1:])
            bias = self.param("bias", bias_init, (self.features,), jnp.float32)
            y += whole_rows(bias, self.axes[1:], self.dtype).reshape(*(1,) * (y.ndim - 1), -1)
        return y


def multiply(
    x: Float[Array, "*batch I"], matrix: Float[Array, "I O"], axes: tuple[str, str], dtype: Any, **options: Any
) -> Float[Array, "*batch O"]:
    """x @ matrix in `dtype`, the matrix a parameter with these logical axes; `options` are those of `jnp.matmul`."""

    def product(x: Float[Array, "*batch I"], matrix: Float[Array, "I O"]) -> Float[Array, "*batch O"]:
        x = x.astype(dtype)
        # Where rows are cut along their length, one matrix of all positions could not be cut, and every device would
        # compute all of it. Elsewhere it is one: XLA's CPU backend multiplies two matrices faster than a batch of them.
        flat = x if is_cut("activation_length") else x.reshape(-1, x.shape[-1])
        used = shared_out(matrix, axes, dtype) if is_cut("embed") else matrix.astype(dtype)
        return jnp.matmul(flat, used, **options).reshape(*x.shape[:-1], matrix.shape[-1])

    # The backward pass brings the matrix together again; a stack would keep those of all its layers until then.
    return (jax.checkpoint(product, prevent_cse=False) if is_cut("embed") else product)(x, matrix)
