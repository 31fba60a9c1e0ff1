"""Masks and biases of attention that need no array of all pairs: a kernel builds them tile by tile."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import dense_bias, dense_mask
from t5x_lite.parallel.partitioning import constrain_sharding


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
    """Of packed rows: queries see the keys of their own segment alone."""
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
        """Of rows that may be packed: `key_segments` are the queries' own unless they are given."""
        keys = query_segments if key_segments is None else key_segments
        return cls(valid, query_segments, None if query_segments is None else keys, causal)

    def dense(self, length: int, memory_length: int) -> Bool[Array, "_ 1 _ _"] | None:
        """True where query [L] sees key [M], with axes of size 1 where that is the same for all; None: nothing is
        masked."""
        return dense_mask(length, memory_length, **vars(self))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DistanceBias:
    """What is added to the logits of attention by the distance of key and query alone, without an array of all pairs.

    >>> bias = DistanceBias(jnp.array([[-1.0, 0.0, 1.0]]))
    >>> bias.dense(2, 2)[0, 0].tolist(), bias.of_queries(1, 1)[0, 0].tolist()
    ([[0.0, 1.0], [-1.0, 0.0]], [[-1.0, 0.0]])
    """

    values: Float[Array, "H T"]
    """Of each head: number `L - 1 + j - i` for query i of L and key j of M; T = L + M - 1."""

    def dense(self, length: int, memory_length: int) -> Float[Array, "1 H L M"]:
        """For all pairs."""
        return dense_bias(self.values, length, memory_length)

    def of_queries(self, first: Int[Array, ""] | int, count: int) -> Float[Array, "1 H Q M"]:
        """For the queries `first .. first + count - 1` alone, where there are as many queries as keys."""
        length = (self.values.shape[1] + 1) // 2
        indices = length - 1 + jnp.arange(length)[None] - (first + jnp.arange(count))[:, None]
        bias = self.values[:, indices][None]
        return constrain_sharding(bias, None, "activation_heads", "activation_length", "activation_memory")
