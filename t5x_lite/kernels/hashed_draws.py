"""Random draws that are a hash of the seed and of the place: any part can be drawn anew, anywhere, in any order."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

SEED, ROW, HEAD, QUERY = 0, 2, 3, 4
"""Places in what `seed_and_offsets` gives."""


def keeps(
    seed: tuple[Any, Any],
    row: Int[Array, "*#pairs"],
    head: Int[Array, "*#pairs"],
    query: Int[Array, "*#pairs"],
    key: Int[Array, "*#pairs"],
    rate: float,
) -> Bool[Array, "*#pairs"]:
    """Whether the weight of a pair is kept, which it is with probability 1 - rate.

    `seed` is two int32 numbers, as are the places.
    """
    return hashed(seed, row, head, query, key) >= jnp.int32(min(round(rate * 2**31), 2**31 - 1))


def hashed(
    seed: tuple[Any, Any],
    row: Int[Array, "*#pairs"],
    head: Int[Array, "*#pairs"],
    query: Int[Array, "*#pairs"],
    key: Int[Array, "*#pairs"],
) -> Int[Array, "*#pairs"]:
    """A number from 0 to 2^31 - 1 for each pair, all alike probable.

    The bits are mixed by the finalizer of MurmurHash3 (Appleby 2011), in int32, which wraps around: what a TPU's vector
    unit has.
    """
    low, high = seed
    stream = _mix(high ^ _mix(low ^ _mix(row * jnp.int32(65_599) + head)))
    of_query, of_key = _mix(query ^ stream), _mix(key + _mix(stream + jnp.int32(1)))
    return jax.lax.shift_right_logical(_mix(of_query ^ of_key), jnp.int32(1))


def seed_and_offsets(dropout_key: Key[Array, ""] | None, offsets: tuple[Any, Any, Any]) -> Int[Array, "5"]:
    """The dropout's seed, two numbers drawn by the key (0 if there is none), and behind it the offsets: how many rows,
    heads and queries of a whole batch stand before those at hand."""
    seed = jnp.zeros(2, jnp.int32) if dropout_key is None else jax.random.bits(dropout_key, (2,)).astype(jnp.int32)
    return jnp.concatenate([seed, jnp.stack([jnp.asarray(offset, jnp.int32) for offset in offsets])])


def _mix(x: Int[Array, "*any"]) -> Int[Array, "*any"]:
    for shift, factor in ((16, -2_048_144_789), (13, -1_028_477_387), (16, None)):
        x = x ^ jax.lax.shift_right_logical(x, jnp.full_like(x, shift))
        x = x if factor is None else x * jnp.int32(factor)
    return x
