"""What attention is computed from, and which of its weights count: masks, biases by distance, dropout.

Masks and biases need no array of all pairs: a kernel builds them tile by tile. Dropout draws a hash of the seed and a
weight's position, so that any device can draw any part of it again, in any order.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.random_bits import hash_pairs, mix

MASKED_LOGIT = -0.7 * float(np.finfo(np.float32).max)
"""The logit of a key that a query may not see; finite, so that a query that sees no key attends to all alike."""

MODEL_FLOPS = "model_flops"
"""In the metadata of a kernel: the operations of its products that a model makes use of, padding left out."""
SEED, ROW, HEAD, QUERY = 0, 2, 3, 4
"""Indices into `AttentionInputs.scalars`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mask:
    """Queries see the keys that every field lets them see; the empty mask hides nothing.

    >>> Mask(valid=jnp.array([[True, True, False]]), causal=True).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    >>> Mask.of_segments(jnp.array([[1, 1, 2]])).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> Mask(causal=True, prefix=2).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """

    valid: Bool[Array, "B M"] | None = None
    """True for keys that are not padding."""
    query_segments: Int[Array, "B L"] | None = None
    """Of packed rows: queries see the keys of their segment alone."""
    key_segments: Int[Array, "B M"] | None = None
    """Given with `query_segments`."""
    causal: bool = field(default=False, metadata={"static": True})
    """Query i sees the keys 0..i alone."""
    prefix: int = field(default=0, metadata={"static": True})
    """But for so many of the first, which all see each other."""

    @classmethod
    def of_segments(
        cls,
        query_segments: Int[Array, "B L"] | None,
        key_segments: Int[Array, "B M"] | None = None,
        *,
        valid: Bool[Array, "B M"] | None = None,
        causal: bool = False,
    ) -> "Mask":
        """Of rows that may be packed: `key_segments` are the queries' unless they are given."""
        keys = query_segments if key_segments is None else key_segments
        return cls(valid, query_segments, None if query_segments is None else keys, causal)

    def dense(
        self, length: int, memory_length: int, first_query: Int[Array, ""] | int = 0
    ) -> Bool[Array, "_ 1 _ _"] | None:
        """True where query [L] sees key [M], with axes of size 1 where that is the same for all; None: nothing is
        masked. `first_query` is the position of query 0 in its row."""
        masks = []
        if self.causal:
            queries, keys = first_query + jnp.arange(length)[:, None], jnp.arange(memory_length)[None]
            in_prefix = (queries < self.prefix) & (keys < self.prefix)
            masks.append(((queries >= keys) | in_prefix)[None, None])
        if self.valid is not None:
            masks.append(self.valid[:, None, None, :])
        if self.query_segments is not None and self.key_segments is not None:
            masks.append((self.query_segments[:, :, None] == self.key_segments[:, None, :])[:, None])
        return functools.reduce(jnp.logical_and, masks) if masks else None

    def visible_pairs(self, length: int, memory_length: int) -> int:
        """Of all pairs of a query and a key those that a model makes use of: a causal mask hides half of them.

        >>> Mask(causal=True).visible_pairs(8, 8), Mask(causal=True, prefix=4).visible_pairs(8, 8)
        (32, 40)
        """
        pairs = length * memory_length
        return (pairs + self.prefix**2) // 2 if self.causal else pairs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DistanceBias:
    """What is added to the logits of attention by the distance of key and query alone.

    >>> bias = DistanceBias(jnp.array([[-1.0, 0.0, 1.0]]))
    >>> bias.dense(2, 2)[0, 0].tolist(), bias.of_queries(1, 1)[0, 0].tolist()
    ([[0.0, 1.0], [-1.0, 0.0]], [[-1.0, 0.0]])
    """

    values: Float[Array, "H T"]
    """Of each head: number `L - 1 + j - i` for query i of L and key j of M; T = L + M - 1."""

    def dense(self, length: int, memory_length: int) -> Float[Array, "1 H L M"]:
        """For all pairs."""
        if length == 1:
            return self.values[None, :, None]
        # The values over and over, cut into rows that are one shorter: each begins one number before the last. The
        # gradient of what is moved, and not looked up, is added up row by row, and not scattered.
        num_heads, size = self.values.shape
        rows = jnp.broadcast_to(self.values[:, None], (num_heads, length, size)).reshape(num_heads, -1)
        rows = jnp.pad(rows[:, length - 1 :], ((0, 0), (0, length - 1)))[:, : length * (size - 1)]
        return rows.reshape(1, num_heads, length, size - 1)[..., :memory_length]

    def of_queries(self, first: Int[Array, ""] | int, count: int) -> Float[Array, "1 H Q M"]:
        """For the queries `first .. first + count - 1` alone, where there are as many queries as keys."""
        length = (self.values.shape[1] + 1) // 2
        indices = length - 1 + jnp.arange(length)[None] - (first + jnp.arange(count))[:, None]
        return self.values[:, indices][None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """Which blocks of keys a block of queries sees: global ones, those around it, and random ones (section 2).

    Queries in global blocks see all keys.

    >>> Blocks(jnp.array([[[2], [0], [1]]]), 1, 1, 1, 1).dense(5)[0].astype(int).tolist()
    [[1, 1, 1, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 0, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]
    """

    random: Int[Array, "_ Q R"]
    """By head, or the same for all: the random blocks of each block that is not global, counted without global ones.
    They are none of those around it, and no two are the same; -1 is none."""
    size: int = field(metadata={"static": True})
    """Queries and keys of a block."""
    first: int = field(default=1, metadata={"static": True})
    """Global blocks that begin a row."""
    last: int = field(default=1, metadata={"static": True})
    """Global blocks that end it; where the row does not fill its last block, that is the one with padding."""
    window: int = field(default=3, metadata={"static": True})
    """Blocks around a block, itself among them: an odd number."""

    def dense(self, length: int) -> Bool[Array, "_ L L"]:
        """The same as a mask, by head: true where a query [L] sees a key [L]."""
        count = self.random.shape[1]
        inner = jnp.arange(count)
        near = jnp.abs(inner[:, None] - inner[None]) <= self.window // 2
        drawn = (self.random[..., None] == inner[None, None, None]).any(axis=-2)
        edges = ((0, 0), (self.first, self.last), (self.first, self.last))
        seen = jnp.pad(near[None] | drawn, edges, constant_values=True)
        return jnp.repeat(jnp.repeat(seen, self.size, axis=1), self.size, axis=2)[:, :length, :length]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AttentionInputs:
    """What attention is computed from: softmax(scale * query key^T + bias) value, the softmax in float32.

    A query that may see no key takes the mean of all values.
    """

    query: Float[Array, "B L H K"]
    key: Float[Array, "B M H K"]
    value: Float[Array, "B M H K"]
    scale: float = field(metadata={"static": True})
    bias: DistanceBias | None = None
    mask: Mask = Mask()
    blocks: Blocks | None = None
    """The keys that a query sees of those that the mask lets it see; None: all."""
    dropout_key: Key[Array, ""] | Int[Array, "2"] | None = None
    """Drives dropout: a key, or the seed that `scalars` drew by one, where several calls are parts of one."""
    offsets: tuple[Any, Any, Any] | None = None
    """Rows, heads and queries of a larger batch that come before these, where a device has a part of it: dropout and
    `mask.causal` heed them, `bias` is that of these queries."""
    dropout_rate: float = field(default=0.0, metadata={"static": True})
    """Share of the weights set to zero, the others growing by as much, where there is a `dropout_key`."""

    @property
    def lengths(self) -> tuple[int, int]:
        return self.query.shape[1], self.key.shape[1]

    @property
    def drops(self) -> bool:
        return self.dropout_key is not None and self.dropout_rate > 0.0

    def scalars(self) -> Int[Array, "5"]:
        """Dropout's seed, two numbers drawn by the key (0 without one), and the offsets."""
        seed = self.dropout_key if self.drops else jnp.zeros(2, jnp.int32)
        if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
            seed = jax.random.bits(seed, (2,)).astype(jnp.int32)
        return jnp.concatenate([seed, jnp.stack([jnp.asarray(x, jnp.int32) for x in self.offsets or (0, 0, 0)])])


Pairs = Int[Array, "*#pairs"]


def keeps(seed: tuple[Any, Any], row: Pairs, head: Pairs, query: Pairs, key: Pairs, rate: float) -> Array:
    """Whether the weight of a pair is kept, which it is with probability 1 - rate; `seed` is two int32 numbers."""
    return hashed(seed, row, head, query, key) >= jnp.int32(min(round(rate * 2**31), 2**31 - 1))


def hashed(seed: tuple[Any, Any], row: Pairs, head: Pairs, query: Pairs, key: Pairs) -> Pairs:
    """A number for each pair, uniform on 0 .. 2^31 - 1."""
    low, high = seed
    stream = mix(high ^ mix(low ^ mix(row * jnp.int32(65_599) + head)))
    return jax.lax.shift_right_logical(hash_pairs((stream, mix(stream + jnp.int32(1))), query, key), jnp.int32(1))
