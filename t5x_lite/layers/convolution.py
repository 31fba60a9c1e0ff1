"""Convolutions of pictures, and batch normalization with its running statistics."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.mesh import STATISTICS
from t5x_lite.parallel.partitioning import all_gather_fsdp, constrain_sharding


class Conv(nn.Module):
    """A convolution without bias, of an odd kernel at the middle of which each output lies, as torch pads it."""

    features: int
    kernel_size: int = 3
    strides: int = 1
    dtype: Any = jnp.float32
    dilation: int = 1
    """How far the pixels are apart that a kernel reads."""
    kernel_init: Callable[..., Array] = nn.initializers.variance_scaling(2.0, "fan_out", "normal")

    @nn.compact
    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B h w O"]:
        size, axes = self.kernel_size, ("window", "window", "channels", "channels")
        kernel = parameter(self, "kernel", self.kernel_init, axes, (size, size, x.shape[-1], self.features))
        return jax.lax.conv_general_dilated(
            x.astype(self.dtype),
            all_gather_fsdp(kernel, axes, self.dtype),
            (self.strides, self.strides),
            ((self.dilation * (size // 2),) * 2,) * 2,
            rhs_dilation=(self.dilation, self.dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )


class BatchNorm(nn.Module):
    """Batch normalization (Ioffe and Szegedy 2015), over all rows of the batch on all devices.

    In training it normalizes by mean and variance of the batch, and gives the next running statistics as variables of
    the collection `STATISTICS`, which the train step writes to the parameters `mean` and `variance`; no optimizer
    changes those. A deterministic call normalizes by them.

    A frozen one always does, and its scale and bias are such parameters too.
    """

    momentum: float = 0.9
    """The share of the old running statistics in the next ones."""
    epsilon: float = 1e-5
    dtype: Any = jnp.float32
    affine: bool = True
    """Whether a learned scale and bias follow."""
    scale_init: Callable[..., Array] = nn.initializers.ones
    frozen: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"], *, deterministic: bool) -> Float[Array, "B H W C"]:
        deterministic = deterministic or self.frozen
        learned = STATISTICS if self.frozen else "norm"

        def vector(name: str, axis: str, init: Callable[..., Array]) -> Float[Array, "C"]:
            return parameter(self, name, init, (axis,), x.shape[-1:])

        zeros, ones = nn.initializers.zeros, nn.initializers.ones
        running = {"mean": vector("mean", STATISTICS, zeros), "variance": vector("variance", STATISTICS, ones)}
        wide = x.astype(jnp.float32)
        mean, variance = running["mean"], running["variance"]
        if not deterministic:
            mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
            count = x.size // x.shape[-1]
            batch = {"mean": mean, "variance": variance * (count / max(count - 1, 1))}
            if self.is_mutable_collection(STATISTICS):
                for name, old in running.items():
                    value = self.momentum * old + (1.0 - self.momentum) * batch[name]
                    self.put_variable(STATISTICS, name, jax.lax.stop_gradient(value))
        factor = jax.lax.rsqrt(variance + self.epsilon)
        if self.affine:
            factor *= vector("scale", learned, self.scale_init)
        offset = -mean * factor
        if self.affine:
            offset += vector("bias", learned, zeros)
        return (wide * factor[None, None, None] + offset[None, None, None]).astype(self.dtype)


def constrain_picture(x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
    """Its rows over the devices that share the batch."""
    return constrain_sharding(x, "activation_batch", None, None, None)
