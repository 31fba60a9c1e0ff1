"""Which weights of attention count: the masked logit, masks and biases of all pairs, and dropout.

Dropout draws a hash of the seed and a weight's position: any part can be drawn again, on any device, in any order.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

MASKED_LOGIT = -0.7 * float(np.finfo(np.float32).max)
"""The logit of a key that a query may not see; finite, so that a query that sees no key attends to all alike."""

SEED, ROW, HEAD, QUERY = 0, 2, 3, 4
"""Indices into what `seed_and_offsets` returns."""


def dense_mask(
    length: int,
    memory_length: int,
    *,
    valid: Bool[Array, "B M"] | None = None,
    query_segments: Int[Array, "B L"] | None = None,
    key_segments: Int[Array, "B M"] | None = None,
    causal: bool = False,
    prefix: int = 0,
    first_query: Int[Array, ""] | int = 0,
) -> Bool[Array, "_ 1 _ _"] | None:
    """True where query [L] sees key [M], with axes of size 1 where that is the same for all; None: nothing is masked.

    `first_query` is the position of query 0 in its row; the others are those of `flash_attention`.
    """
    masks = []
    if causal:
        queries, keys = first_query + jnp.arange(length)[:, None], jnp.arange(memory_length)[None]
        masks.append(((queries >= keys) | ((queries < prefix) & (keys < prefix)))[None, None])
    if valid is not None:
        masks.append(valid[:, None, None, :])
    if query_segments is not None and key_segments is not None:
        masks.append((query_segments[:, :, None] == key_segments[:, None, :])[:, None])
    return functools.reduce(jnp.logical_and, masks) if masks else None


def dense_bias(values: Float[Array, "H T"], length: int, memory_length: int) -> Float[Array, "1 H L M"]:
    """A bias by distance for all pairs: number `L - 1 + j - i` of a head's for query i and key j; T = L + M - 1.

    >>> dense_bias(jnp.array([[-1.0, 0.0, 1.0]]), 2, 2)[0, 0].tolist()
    [[0.0, 1.0], [-1.0, 0.0]]
    """
    if length == 1:
        return values[None, :, None]
    # The values over and over, cut into rows that are one shorter: each begins one number before the last. The gradient
    # of what is moved, and not looked up, is added up row by row, and not scattered.
    num_heads, size = values.shape
    rows = jnp.broadcast_to(values[:, None], (num_heads, length, size)).reshape(num_heads, -1)
    rows = jnp.pad(rows[:, length - 1 :], ((0, 0), (0, length - 1)))[:, : length * (size - 1)]
    return rows.reshape(1, num_heads, length, size - 1)[..., :memory_length]


def keeps(
    seed: tuple[Any, Any],
    row: Int[Array, "*#pairs"],
    head: Int[Array, "*#pairs"],
    query: Int[Array, "*#pairs"],
    key: Int[Array, "*#pairs"],
    rate: float,
) -> Bool[Array, "*#pairs"]:
    """Whether the weight of a pair is kept, which it is with probability 1 - rate; `seed` is two int32 numbers."""
    return hashed(seed, row, head, query, key) >= jnp.int32(min(round(rate * 2**31), 2**31 - 1))


def hashed(
    seed: tuple[Any, Any],
    row: Int[Array, "*#pairs"],
    head: Int[Array, "*#pairs"],
    query: Int[Array, "*#pairs"],
    key: Int[Array, "*#pairs"],
) -> Int[Array, "*#pairs"]:
    """A number for each pair, uniform on 0 .. 2^31 - 1.

    The finalizer of MurmurHash3 (Appleby 2011) mixes the bits in int32, which wraps around:
    what a TPU's vector unit has.
    """
    low, high = seed
    stream = _mix(high ^ _mix(low ^ _mix(row * jnp.int32(65_599) + head)))
    of_query, of_key = _mix(query ^ stream), _mix(key + _mix(stream + jnp.int32(1)))
    return jax.lax.shift_right_logical(_mix(of_query ^ of_key), jnp.int32(1))


def seed_and_offsets(dropout_key: Key[Array, ""] | None, offsets: tuple[Any, Any, Any]) -> Int[Array, "5"]:
    """Dropout's seed, two numbers drawn by the key (0 without one), then the offsets: the rows, heads and queries of
    the whole batch that stand before these."""
    seed = jnp.zeros(2, jnp.int32) if dropout_key is None else jax.random.bits(dropout_key, (2,)).astype(jnp.int32)
    return jnp.concatenate([seed, jnp.stack([jnp.asarray(offset, jnp.int32) for offset in offsets])])


def _mix(x: Int[Array, "*any"]) -> Int[Array, "*any"]:
    for shift, factor in ((16, -2_048_144_789), (13, -1_028_477_387), (16, None)):
        x = x ^ jax.lax.shift_right_logical(x, jnp.full_like(x, shift))
        x = x if factor is None else x * jnp.int32(factor)
    return x
