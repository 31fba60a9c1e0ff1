"""The vectors of a corpus's passages, made again while the encoder that they come from is trained (Guu et al. 2020,
section 3.3).

An index of P passages that is made again every n steps is made one n-th a step: those whose number leaves the remainder
`step % n`, by the encoder as it was when this round began. So each step does the same work, on all devices, a round has
one encoder, and what a checkpoint holds of it is enough to go on from anywhere in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int, Integer

from t5x_lite.parallel.partitioning import constrain_sharding

Encode = Callable[[Any, Int[Array, "B L"]], Float[Array, "B E"]]
"""`encode(params, ids)`: the vectors of passages by an encoder with these parameters."""

_TOGETHER = 512
"""Passages that are encoded at a time; sizes of large indexes are multiples of it, and of the round's steps."""
PASSAGE_AXES = ("passages", None)


class Corpus(NamedTuple):
    """The passages that are searched, and their vectors."""

    ids: Integer[Array, "P L"]
    """Without special ids, padded at their ends."""
    vectors: Float[Array, "P E"]


class ParamsAndCorpus(NamedTuple):
    """What an objective that retrieves needs where others need parameters: to be evaluated, and to answer."""

    params: Any
    corpus: Any
    """A `Corpus`, or its shardings."""


class Index(struct.PyTreeNode):
    """Vectors of passages, and those of the round that is under way; the leaves are arrays, shapes or shardings."""

    vectors: Any
    """[P E], float32, by the encoder with which the last round began."""
    following: Any
    """The same of this round, so far as it is."""
    encoder: Any
    """The parameters with which this round began."""
    version: Any
    """Rounds that were completed: int32."""


def padded_size(num_passages: int, every: int) -> int:
    """How many rows an index has: a multiple of the steps of a round and, of large ones, of what is encoded at a time.

    >>> padded_size(100, 10), padded_size(100, 3), padded_size(13_353_718, 500)
    (160, 120, 13568000)
    """
    share = -(-num_passages // max(every, 1))
    step = 8 if share < 64 else 64 if share < _TOGETHER else _TOGETHER
    return -(-share // step) * step * max(every, 1)


def empty_index(num_rows: int, features: int, encoder: Any, *, refreshed: bool) -> Index:
    """An index of zeros, boxed with its logical axes; one that is never refreshed has neither `following` nor
    `encoder`."""

    def zeros() -> Any:
        return nn.LogicallyPartitioned(jnp.zeros((num_rows, features), jnp.float32), PASSAGE_AXES)

    return Index(zeros(), zeros() if refreshed else None, encoder if refreshed else None, jnp.int32(0))


def encode_all(encode: Encode, params: Any, ids: Integer[Array, "P L"], every: int) -> Float[Array, "P E"]:
    """The vectors of all passages by one encoder, one `every`-th after another."""
    shares = ids.reshape(-1, max(every, 1), ids.shape[1])
    vectors = jax.lax.map(
        lambda part: _encode_share(encode, params, jax.lax.dynamic_index_in_dim(shares, part, 1, keepdims=False)),
        jnp.arange(shares.shape[1]),
    )
    return constrain_sharding(vectors.swapaxes(0, 1).reshape(len(ids), -1), *PASSAGE_AXES)


def refresh(
    encode: Encode, index: Index, params: Any, ids: Integer[Array, "P L"], step: Int[Array, ""], every: int
) -> Index:
    """The index after one step more of its round; the last one puts `following` in the place of `vectors`.

    Args:
      params: of the encoder after this step, with which the next round begins.
      ids: the passages.
      step: updates done before this one.
      every: steps of a round.
    """
    part, num_rows = step % every, len(ids)
    share = jax.lax.dynamic_index_in_dim(ids.reshape(-1, every, ids.shape[1]), part, 1, keepdims=False)
    vectors = _encode_share(encode, index.encoder, share)[:, None]
    following = index.following.reshape(len(vectors), every, -1)
    following = jax.lax.dynamic_update_slice_in_dim(following, vectors, part, 1).reshape(num_rows, -1)
    following = constrain_sharding(following, *PASSAGE_AXES)
    ends = part == every - 1

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(ends, new, old)

    return Index(
        chosen(following, index.vectors),
        following,
        jax.tree.map(chosen, params, index.encoder),
        index.version + ends.astype(jnp.int32),
    )


def _encode_share(encode: Encode, params: Any, ids: Integer[Array, "P L"]) -> Float[Array, "P E"]:
    """Vectors, some passages at a time; each device has its own."""
    ids = ids.astype(jnp.int32)
    if len(ids) <= _TOGETHER or len(ids) % _TOGETHER:
        return encode(params, ids)
    # Passage r is the (r % m)-th of its group of m, so that each device splits its own passages.
    groups = ids.reshape(_TOGETHER, -1, ids.shape[1]).swapaxes(0, 1)
    vectors = jax.lax.map(lambda group: encode(params, group), groups)
    return vectors.swapaxes(0, 1).reshape(len(ids), -1)
