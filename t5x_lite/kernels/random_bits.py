"""Random bits by a hash of a key and an element's index, in fewer operations than threefry, for dropout.

`hash_key` gives a key whose `split` and `fold_in` are threefry's, and whose bits are the hash. A bit depends on the
key, the shape and the index alone, so that every device draws those of its shard, the same on every mesh and platform.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jaxtyping import Array, Int, Key, UInt, UInt32

GOLDEN_RATIO = 0x9E3779B9
"""2^32 / the golden ratio, made odd: multiples of it are spread evenly over 32 bits."""


def mix(x: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """A permutation of the int32 numbers, each bit of which depends on all bits of `x`; 0 stays 0.

    The finalizer of MurmurHash3 (Appleby 2011) in int32, which wraps around: what a TPU's vector unit has.
    """
    for shift, factor in ((16, -2_048_144_789), (13, -1_028_477_387), (16, None)):
        x = x ^ jax.lax.shift_right_logical(x, jnp.full_like(x, shift))
        x = x if factor is None else x * jnp.int32(factor)
    return x


def hash_pairs(
    seed: tuple[Int[Array, ""], Int[Array, ""]], row: Int[Array, "*#pairs"], column: Int[Array, "*#pairs"]
) -> Int[Array, "*pairs"]:
    """An int32 number of any size for each pair; beside a row's and a column's `mix`, a pair costs one `mix`."""
    return mix(mix(row ^ seed[0]) ^ mix(column + seed[1]))


def bits_at(
    key: UInt32[Array, "2"], index: Sequence[UInt32[Array, "*#elements"]], shape: Sequence[int]
) -> UInt32[Array, "*elements"]:
    """32 bits for each element of an array of `shape` that `index` names, one array for each dimension.

    The last dimension is the columns of `hash_pairs`, the others are its rows. Of more than 2^32 rows some of the
    dimensions are columns too, so that no two elements have the same row and column.

    Raises:
      ValueError: `shape` is not two blocks of dimensions with at most 2^32 elements each.
    """
    rows = next(n for n in reversed(range(len(shape))) if math.prod(shape[:n]) <= 2**32)
    if math.prod(shape[rows:]) > 2**32:
        raise ValueError(f"shape={tuple(shape)} has more elements than the hash can number; draw it in parts")

    def flat(index: Sequence[UInt32[Array, "*#elements"]], shape: Sequence[int]) -> Int[Array, "*#elements"]:
        number = jnp.uint32(0)
        for of_dimension, size in zip(index, shape, strict=True):
            number = number * jnp.uint32(size % 2**32) + of_dimension
        return jax.lax.bitcast_convert_type(number, jnp.int32)

    # As multiples, since rows and columns that count alike would make a matrix symmetric where their seeds meet.
    column = flat(index[rows:], shape[rows:]) * jax.lax.bitcast_convert_type(jnp.uint32(GOLDEN_RATIO), jnp.int32)
    first, second = jax.lax.bitcast_convert_type(key, jnp.int32)
    bits = hash_pairs((first, second), flat(index[:rows], shape[:rows]), column)
    return jax.lax.bitcast_convert_type(bits, jnp.uint32)


def _random_bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> UInt[Array, "..."]:
    """Uniform bits, `bit_width` (8, 16, 32 or 64) for each element."""
    dims = shape or (1,)
    index = [
        jax.lax.broadcasted_iota(jnp.uint32, [size if n == axis else 1 for n, size in enumerate(dims)], axis)
        for axis in range(len(dims))
    ]
    dtype = jnp.dtype(f"uint{bit_width}")
    bits = bits_at(key, index, dims).reshape(shape).astype(dtype)
    if bit_width < 64:
        return bits
    other = key[::-1] ^ jnp.array([GOLDEN_RATIO, 1], jnp.uint32)  # never the key itself
    return bits << 32 | bits_at(other, index, dims).reshape(shape).astype(dtype)


HASH = define_prng_impl(
    key_shape=threefry_prng_impl.key_shape,
    seed=threefry_prng_impl.seed,
    split=threefry_prng_impl.split,
    random_bits=_random_bits,
    fold_in=threefry_prng_impl.fold_in,
    name="hash",
    tag="hash",
)
"""What `jax.random.key` takes as `impl`."""


def hash_key(key: Key[Array, "*keys"]) -> Key[Array, "*keys"]:
    """`key` of threefry as one whose bits, and its children's, are drawn by the hash.

    >>> key = jax.random.key(0)
    >>> one, other = jax.random.split(key)[1], jax.random.split(hash_key(key))[1]
    >>> (jax.random.key_data(one) == jax.random.key_data(other)).tolist()
    [True, True]
    >>> bool(jax.random.bits(one) == jax.random.bits(other))
    False
    """
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=HASH)
