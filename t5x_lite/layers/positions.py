"""How a Transformer represents positions: relative bias (T5), sinusoids (2017); learned ones are an `Embedding`."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.kernels.masks import DistanceBias
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import constrain_sharding


def relative_position_buckets(
    relative: Int[np.ndarray, "*shape"], *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> Int[np.ndarray, "*shape"]:
    """T5's bucket of each relative position, key minus query (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the other half grow logarithmically up to `max_distance`, beyond which
    all share the last one. Bidirectional attention halves them again: keys before the query and keys after it.

    >>> relative_position_buckets(np.array([-200, -20, -1, 0, 1, 20]), bidirectional=True).tolist()
    [15, 10, 1, 0, 17, 26]
    >>> relative_position_buckets(np.array([-200, -20, -1, 0, 1, 20]), bidirectional=False).tolist()
    [31, 17, 1, 0, 0, 0]
    """
    relative = np.asarray(relative)
    offset = np.zeros_like(relative)
    if bidirectional:
        num_buckets //= 2
        offset = np.where(relative > 0, num_buckets, 0)
        distance = np.abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = num_buckets // 2
    # float32 and this order of operations, because published checkpoints were trained with the rounding they give.
    ratio = np.maximum(distance, exact).astype(np.float32) / np.float32(exact)
    growth = np.log(ratio) / np.float32(np.log(max_distance / exact)) * np.float32(num_buckets - exact)
    logarithmic = np.minimum(exact + growth.astype(np.int64), num_buckets - 1)
    return offset + np.where(distance < exact, distance, logarithmic)


class RelativePositionBias(nn.Module):
    """T5's learned bias: one number a head and bucket, added to the attention logits, shared by a stack's layers."""

    num_heads: int
    bidirectional: bool
    num_buckets: int = 32
    max_distance: int = 128
    bias_init: Callable[..., Array] = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")

    @nn.compact
    def __call__(self, length: int, memory_length: int) -> DistanceBias:
        """The bias of queries `0 .. length - 1` over keys `0 .. memory_length - 1`."""
        axes, shape = ("position_buckets", "position_heads"), (self.num_buckets, self.num_heads)
        bias = parameter(self, "bias", self.bias_init, axes, shape)
        bias = constrain_sharding(bias, None, "position_heads")
        # One value for each distance that can occur, whose buckets are constants of the compiled program.
        buckets = relative_position_buckets(
            np.arange(1 - length, memory_length),
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return DistanceBias(constrain_sharding(bias[jnp.asarray(buckets)].T, "activation_heads", None))


def positions_in_segments(segments: Int[Array, "B L"]) -> Int[Array, "B L"]:
    """How many tokens of a token's segment come before it, where segments follow each other in a row.

    >>> positions_in_segments(jnp.array([[1, 1, 1, 2, 2, 0, 0]])).tolist()
    [[0, 1, 2, 0, 1, 0, 1]]
    """
    indices = jnp.arange(segments.shape[1])[None, :]
    starts = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return indices - jax.lax.cummax(jnp.where(starts, indices, 0), axis=1)


def sinusoidal_positions(length: int, embed_dim: int) -> Float[np.ndarray, "L D"]:
    """The `sinusoids` of the positions 0, 1, 2 ... (Vaswani et al. 2017, section 3.5).

    >>> sinusoidal_positions(2, 3).astype(float).round(3).tolist()
    [[0.0, 0.0, 1.0], [0.841, 0.002, 0.54]]
    """
    return sinusoids(np.arange(length), embed_dim)


def sinusoids(positions: Int[np.ndarray, "L"], embed_dim: int) -> Float[np.ndarray, "L D"]:
    """sin(i / 10000^(2d/D)) in the first half of the features, cos in the second; of an odd D one sine more.

    The sines stand in front of the cosines as published checkpoints (Marian) have them; the paper writes the two
    interleaved, which is the same up to a permutation of the features.
    """
    rates = 1.0 / 10_000 ** (np.arange(0, embed_dim, 2) / embed_dim)
    angles = positions[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)[:, : embed_dim // 2]], axis=1).astype(np.float32)


def sine_positions_2d(
    grid: tuple[int, int], counts: Int[Array, "B 2"], embed_dim: int, temperature: float = 10_000.0
) -> Float[Array, "B P D"]:
    """Sines and cosines of the row, then of the column, of each position of a grid, row by row (Carion et al. 2020,
    appendix A.4; as in their code, normalized: the last row or column of a picture is at 2 pi whatever its size).

    Args:
      counts: how many rows and columns of each grid there are; positions beyond them have the last one's.
      embed_dim: D, a multiple of 4.
    """
    rates = temperature ** (-4.0 * np.arange(embed_dim // 4) / embed_dim)

    def along(axis: int) -> Float[Array, "B N E"]:
        number = jnp.arange(1.0, grid[axis] + 1)[None]
        last = counts[:, axis, None].astype(jnp.float32)
        angles = (jnp.minimum(number, last) / (last + 1e-6) * (2 * math.pi))[..., None] * rates[None, None]
        return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(*angles.shape[:2], -1)

    rows, columns = along(0)[:, :, None], along(1)[:, None]
    shape = (len(counts), *grid, embed_dim // 2)
    both = jnp.concatenate([jnp.broadcast_to(rows, shape), jnp.broadcast_to(columns, shape)], axis=-1)
    return both.reshape(len(counts), grid[0] * grid[1], embed_dim)
