"""The shift of scores by relative position to scores by key, which Transformer-XL's attention takes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t5x_lite.kernels.masks import MODEL_FLOPS
from t5x_lite.kernels.platform import platform

_LANES, _MOST_ROWS = 128, 128
"""Numbers that a TPU's registers have side by side; queries of a block."""


def shift_positions(scores: Float[Array, "B H L T"], memory_length: int) -> Float[Array, "B H L {memory_length}"]:
    """Scores of each query by relative position to those by key: number `L - 1 + j - i` becomes that of key j (Dai et
    al. 2019, appendix B). Keys beyond the last relative position have any number.

    >>> scores = jnp.array([[0, 1, 2, 3], [10, 11, 12, 13]], jnp.float32)[None, None]
    >>> shift_positions(scores, 3)[0, 0].astype(int).tolist()
    [[1, 2, 3], [10, 11, 12]]
    """
    if platform() == "tpu":
        return tpu_shift(scores, memory_length, False)
    *batch, length, size = scores.shape
    # Rows that are one shorter, of the numbers that follow each other: each begins one number before the last.
    flat = scores.reshape(*batch, length * size)[..., length - 1 :]
    flat = flat[..., : length * (size - 1)]
    return flat.reshape(*batch, length, size - 1)[..., :memory_length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def tpu_shift(scores: Float[Array, "B H L T"], memory_length: int, interpret: bool) -> Array:
    """The same in blocks of queries, whose rows a TPU rotates. XLA moves every number by itself: attention of 8 rows of
    512 queries and 896 keys, 16 heads of 64, is expected to take 2.76 ms on a v5p so, forward and backward, and 5.74 by
    the plain operations."""
    return _rotate(scores, memory_length, interpret)


def _rotate(scores: Float[Array, "B H L T"], memory_length: int, interpret: bool) -> Array:
    from jax.experimental.pallas import tpu as pltpu

    length, size = scores.shape[2:]
    scores = jnp.pad(scores, ((0, 0),) * 3 + ((0, -size % _LANES),))
    width = scores.shape[3]

    def kernel(first: Any, x: Array) -> Array:
        # Row i moves left by L - 1 - i.
        moved = (width - length + 1 + first) % width
        return pltpu.roll(x, moved, 1, stride=1, stride_axis=0)[:, :memory_length]

    return _in_blocks(kernel, scores, memory_length, interpret)


def _rotate_back(gradient: Float[Array, "B H L M"], size: int, interpret: bool) -> Array:
    from jax.experimental.pallas import tpu as pltpu

    length, memory_length = gradient.shape[2:]
    width = size + -size % _LANES

    def kernel(first: Any, x: Array) -> Array:
        rows = x.shape[0]
        x = jnp.concatenate([x, jnp.zeros((rows, width - memory_length), x.dtype)], axis=1)
        x = pltpu.roll(x, (width + length - first - rows) % width, 1)
        left = rows - 1 - jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
        for bit in (1 << n for n in range((rows - 1).bit_length())):
            x = jnp.where(left & bit > 0, pltpu.roll(x, bit, 1), x)
        return x[:, :size]

    return _in_blocks(kernel, gradient, size, interpret)


def _in_blocks(kernel: Any, x: Float[Array, "B H L _"], out_width: int, interpret: bool) -> Array:
    """`kernel(number of the first row, rows)` of each block of rows."""
    from jax.experimental import pallas as pl

    batch_size, heads, length, width = x.shape
    rows = min(length, _MOST_ROWS)

    def body(x_ref: Any, out_ref: Any) -> None:
        # Registers of 16 bits do not rotate.
        out_ref[...] = kernel(pl.program_id(1) * rows, x_ref[...].astype(jnp.float32)).astype(x.dtype)

    steps = batch_size * heads * pl.cdiv(length, rows)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((batch_size * heads, length, out_width), x.dtype),
        grid=(batch_size * heads, pl.cdiv(length, rows)),
        in_specs=[pl.BlockSpec((None, rows, width), lambda b, i: (b, i, 0))],
        out_specs=pl.BlockSpec((None, rows, out_width), lambda b, i: (b, i, 0)),
        interpret=interpret,
        name="shift_positions",
        metadata={"steps": str(steps), "blocks": str(steps), "alternatives": "1", MODEL_FLOPS: "0"},
    )(x.reshape(-1, length, width)).reshape(batch_size, heads, length, out_width)


def _forward(scores: Array, memory_length: int, interpret: bool) -> tuple[Array, int]:
    return _rotate(scores, memory_length, interpret), scores.shape[3]


def _backward(memory_length: int, interpret: bool, size: int, gradient: Array) -> tuple[Array]:
    return (_rotate_back(gradient, size, interpret),)


tpu_shift.defvjp(_forward, _backward)
