"""Who may look at whom in attention, said without an array of all pairs, so that a kernel can ask tile by tile."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

MASKED_LOGIT = -0.7 * float(np.finfo(np.float32).max)
"""Added to the logits of what a query may not see, or put in their place; finite, so that one that may look nowhere
attends to all alike."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mask:
    """Queries look at the keys that every one of these lets them see; the empty one hides nothing.

    >>> Mask(valid=jnp.array([[True, True, False]]), causal=True).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    >>> Mask.of_segments(jnp.array([[1, 1, 2]])).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> Mask(causal=True, prefix=2).dense(3, 3)[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """

    valid: Bool[Array, "B M"] | None = None
    """True for keys that are no padding."""
    query_segments: Int[Array, "B L"] | None = None
    """Of packed rows: queries see the keys of their own segment alone."""
    key_segments: Int[Array, "B M"] | None = None
    """There where `query_segments` are."""
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

    def dense(
        self, length: int, memory_length: int, *, first_query: Int[Array, ""] | int = 0
    ) -> Bool[Array, "_ 1 _ _"] | None:
        """True where query [L] may look at key [M], with axes of size 1 where it is the same for all; None where
        nothing is hidden. The first of the queries is that of the row, or `first_query`."""
        seen = None
        if self.causal:
            queries, keys = first_query + jnp.arange(length)[:, None], jnp.arange(memory_length)[None]
            seen = (queries >= keys)[None, None]
            if self.prefix:
                seen |= ((queries < self.prefix) & (keys < self.prefix))[None, None]
        if self.valid is not None:
            seen = _and(seen, self.valid[:, None, None, :])
        if self.query_segments is not None and self.key_segments is not None:
            seen = _and(seen, (self.query_segments[:, :, None] == self.key_segments[:, None, :])[:, None])
        return seen


def _and(left: Bool[Array, "_ _ _ _"] | None, right: Bool[Array, "_ _ _ _"]) -> Bool[Array, "_ _ _ _"]:
    return right if left is None else left & right
