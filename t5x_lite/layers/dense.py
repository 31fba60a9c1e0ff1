"""What all layers are made of: the matrix product of a parameter, norms, dropout, the feed-forward layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.cpu import PackedWeights, matmul
from t5x_lite.kernels.platform import multiplies_tensors
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.linformer import Linformer
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import (
    all_gather_fsdp,
    constrain_sharding,
    fsdp_apply,
    is_sharded,
    splits_heads,
    with_heads,
)
from t5x_lite.validation import OneOf

DENSE_OUTPUT = "dense_output"
"""What rematerialisation calls the output of a `Dense`: with its bias, so that no bias is added a second time."""


class Dense(nn.Module):
    """x @ kernel (+ bias), with logical axes (`in`, `out`) on the kernel and `out` on the bias.

    The kernel may be `PackedWeights`. With a `head_dim`, x or the result, whichever has the axis `heads`, ends with
    heads and `head_dim` instead; the kernel is stored as a matrix all the same.
    """

    features: int
    axes: tuple[str, str]
    use_bias: bool = False
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    head_dim: int | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "*inputs"]) -> Float[Array, "*outputs"]:
        kernel = self.get_variable("params", "kernel")
        if not isinstance(kernel, PackedWeights):
            from_heads = self.head_dim is not None and self.axes[0] == "heads"
            inputs = x.shape[-2] * x.shape[-1] if from_heads else x.shape[-1]
            kernel = parameter(self, "kernel", self.kernel_init, self.axes, (inputs, self.features))
        y = multiply(x, kernel, self.axes, self.dtype, self.head_dim)
        if self.use_bias:
            bias = parameter(self, "bias", nn.initializers.zeros, self.axes[1:], (self.features,))
            bias = all_gather_fsdp(bias, self.axes[1:], self.dtype)
            to_heads = self.head_dim is not None and self.axes[1] == "heads"
            y += bias.reshape(*(1,) * (y.ndim - 1 - to_heads), *((-1, self.head_dim) if to_heads else (-1,)))
        return checkpoint_name(y, DENSE_OUTPUT)


def multiply(
    x: Float[Array, "*inputs"],
    matrix: Float[Array, "I O"] | PackedWeights,
    axes: tuple[str, str],
    dtype: Any,
    head_dim: int | None = None,
    **options: Any,
) -> Float[Array, "*outputs"]:
    """x @ matrix in `dtype`, the matrix a parameter with these logical axes; `options` are those of `jnp.matmul`.

    With a `head_dim` the axis `heads` is two dimensions: [B L D] becomes [B L H K], or [B L H K] becomes [B L D].
    """
    x, inside = x.astype(dtype), axes[0] != "embed"
    packed = isinstance(matrix, PackedWeights)
    if head_dim is not None and (packed or not splits_heads(matrix, axes, head_dim)):
        y = multiply(jax.lax.collapse(x, x.ndim - 2) if inside else x, matrix, axes, dtype, **options)
        return y if inside else y.reshape(*y.shape[:-1], -1, head_dim)
    if packed:
        return matrix.multiply(x, dtype, **options)
    summed = 2 if head_dim is not None and inside else 1
    if is_sharded("embed"):

        def product(part: Float[Array, "_ _ *_"], x: Float[Array, "*_"], cut: tuple[str, ...]) -> Array:
            y = jnp.tensordot(x, part, summed, **options)
            return jax.lax.psum(y, cut) if inside and cut else y

        cut = {"cut_inside": inside, "cut_outside": not inside}
        has_length = x.ndim > 1 + summed
        return fsdp_apply(product, matrix, x, axes=axes, dtype=dtype, has_length=has_length, head_dim=head_dim, **cut)
    if head_dim is not None:
        return jnp.tensordot(x, with_heads(matrix.astype(dtype), head_dim, 0 if inside else 1), summed, **options)
    # Where the length is sharded, one matrix of all positions could not be, and every device would compute all of it.
    flat = x if multiplies_tensors() or is_sharded("activation_length") else x.reshape(-1, x.shape[-1])
    return matmul(flat, matrix.astype(dtype), **options).reshape(*x.shape[:-1], matrix.shape[-1])


def embedding_lookup(
    table: Float[Array, "_ D"], ids: Int[Array, "*batch L"], axes: tuple[str, str], dtype: Any
) -> Float[Array, "*batch L D"]:
    """The rows of a table in `dtype`, a parameter with these logical axes."""

    def rows(part: Float[Array, "_ D"], ids: Int[Array, "*batch L"], cut: tuple[str, ...]) -> Array:
        if not cut:
            return jnp.take(part, ids, axis=0)
        # Each device has some of the rows; the others give zeros.
        ids = ids - jax.lax.axis_index(cut) * part.shape[0]
        there = (ids >= 0) & (ids < part.shape[0])
        vectors = jnp.take(part, jnp.where(there, ids, 0), axis=0)
        return jax.lax.psum(jnp.where(there[..., None], vectors, 0), cut)

    return fsdp_apply(rows, table, ids, axes=axes, dtype=dtype, has_length=True)


Norm = Literal["rms", "layer"]


def make_norm(kind: Norm, *, epsilon: float, dtype: Any, name: str | None = None) -> nn.Module:
    """RMSNorm (Zhang and Sennrich 2019; T5's layer norm: no mean, no bias) or LayerNorm (Ba et al. 2016)."""
    scale_init = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
    if kind == "rms":
        return nn.RMSNorm(epsilon=epsilon, dtype=dtype, scale_init=scale_init, name=name)
    bias_init = nn.with_logical_partitioning(nn.initializers.zeros, ("norm",))
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, scale_init=scale_init, bias_init=bias_init, name=name)


def keep_mask(
    key: Key[Array, ""], rate: float | Float[Array, ""], shape: tuple[int, ...], axes: tuple[str | None, ...]
) -> Bool[Array, "..."]:
    """False for the share `rate` of the elements, drawn by `key`; each device draws those of its shard of `axes`.

    The barrier keeps the compiler from drawing the numbers again in each operation that reads the mask: it compiles
    ELECTRA large for 64 v5e chips in 134 s instead of 195.
    """
    return jax.lax.optimization_barrier(constrain_sharding(jax.random.bernoulli(key, 1.0 - rate, shape), *axes))


class Dropout(nn.Module):
    """Zeroes the share `rate` of the elements and scales the rest by 1 / (1 - rate) (Srivastava et al. 2014).

    Where the positions share it, what is dropped depends on row and feature alone: so trained Mesh TensorFlow's and
    T5X's T5 (where it drops: Raffel et al. 2020, section 2.1). It takes L times fewer random numbers.
    """

    rate: float
    positions_share: bool = False
    axis: str = "activation_embed"
    """Of the features."""

    @nn.compact
    def __call__(self, x: Float[Array, "B *L D"], *, deterministic: bool) -> Float[Array, "B *L D"]:
        """`x` itself if `deterministic`; otherwise the caller gives a key named `dropout`."""
        if deterministic or self.rate == 0.0:
            return x
        shape = (x.shape[0], *(1 for _ in x.shape[1:-1]), x.shape[-1]) if self.positions_share else x.shape
        lengths = ("activation_length",) * (x.ndim > 2) + (None,) * (x.ndim - 3)
        keep = keep_mask(self.make_rng("dropout"), self.rate, shape, ("activation_batch", *lengths, self.axis))
        return jnp.where(keep, x / (1.0 - self.rate), jnp.zeros_like(x))


def drop_path(x: Float[Array, "B L D"], key: Key[Array, ""], rate: Float[Array, ""]) -> Float[Array, "B L D"]:
    """Zeroes the share `rate` of the rows and scales the rest by 1 / (1 - rate): of a residual branch, stochastic depth
    (Huang et al. 2016)."""
    keep = keep_mask(key, rate, (x.shape[0], 1, 1), ("activation_batch", None, None))
    return x * (keep / (1.0 - rate)).astype(x.dtype)


class LayerScale(nn.Module):
    """Multiplies each feature by a learned factor, which begins at `initial` (Touvron et al. 2021, LayerScale)."""

    initial: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        scale = parameter(self, "scale", nn.initializers.constant(self.initial), ("norm",), x.shape[-1:])
        return x * scale.astype(self.dtype)[None, None]


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
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
Activation = Annotated[str, OneOf(tuple(ACTIVATIONS))]
"""The name of one of them."""


@dataclass(frozen=True)
class LayerConfig:
    """The shape of one layer and its choices, which every family of the zoo sets."""

    num_heads: int
    head_dim: int
    mlp_dim: int
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    """In the feed-forward layer, and in the attention's projections unless `attention_bias` is set."""
    attention_bias: bool | None = None
    norm: Norm = "layer"
    norm_epsilon: float = 1e-6
    norm_first: bool = True
    attention_scale: float | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    mlp_dropout_rate: float = 0.0
    """Of the feed-forward layer's hidden units."""
    drop_path_rate: float = 0.0
    """Share of the rows that skip a residual branch of the last layer in training (stochastic depth)."""
    drop_path_schedule: Literal["linear", "constant"] = "linear"
    """How that share goes with depth: linearly from 0 in the first layer, or the same in all."""
    layer_scale: float = 0.0
    """What the learned factors of residual branches begin with (LayerScale); 0: there are none."""
    attention: Linformer | BigBird | None = None
    """Of self-attention; None: every token attends to all that the mask lets it see."""
    max_length: int | None = None
    """Of rows, where there is a `Linformer`."""
    positions_share_dropout: bool = False
    """All positions of a row drop the same features and the same keys; otherwise each its own."""
    query_init: Callable[..., Array] = nn.initializers.lecun_normal()
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    mlp_init: Callable[..., Array] | None = None
    """Of the matrices that a feed-forward layer begins with; None means `kernel_init`."""
    residual_init: Callable[..., Array] | None = None
    """Of the matrix that ends a residual branch; None means `kernel_init`."""

    def make_norm(self, dtype: Any) -> nn.Module:
        return make_norm(self.norm, epsilon=self.norm_epsilon, dtype=dtype)


class FeedForward(nn.Module):
    """activation(x wi) wo (Vaswani et al. 2017, 3.3), or gated: (activation(x gate) * x wi) wo (Shazeer 2020)."""

    config: LayerConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"], *, deterministic: bool = True) -> Float[Array, "B L D"]:
        c = self.config

        def dense(features: int, axes: tuple[str, str], name: str, init: Callable[..., Array] | None) -> Dense:
            return Dense(features, axes, c.use_bias, self.dtype, init or c.kernel_init, name=name)

        hidden = dense(c.mlp_dim, ("embed", "mlp"), "wi", c.mlp_init)(x)
        # The backward pass is given what went in, and not the three or four arrays that are made of it on the way.
        activation = jax.checkpoint(ACTIVATIONS[c.activation], prevent_cse=False)
        if c.gated:
            hidden *= activation(dense(c.mlp_dim, ("embed", "mlp"), "gate", c.mlp_init)(x))
        else:
            hidden = activation(hidden)
        hidden = constrain_sharding(hidden, "activation_batch", "activation_length", "activation_mlp")
        dropout = Dropout(c.mlp_dropout_rate, c.positions_share_dropout, "activation_mlp")
        hidden = dropout(hidden, deterministic=deterministic)
        return dense(x.shape[-1], ("mlp", "embed"), "wo", c.residual_init)(hidden)
