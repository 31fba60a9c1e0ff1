"""The passages whose vectors have the largest inner products with those of queries."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.parallel.partitioning import on_each_device

BLOCK = 1 << 16
"""Passages whose scores a device holds at a time."""


class Found(NamedTuple):
    """The best passages of each query, the best first; of equal ones that of the lower number."""

    scores: Float[Array, "Q k"]
    """Inner products, in float32; minus infinity where there are fewer passages than k."""
    passages: Int[Array, "Q k"]


def search(
    queries: Float[Array, "Q D"],
    vectors: Float[Array, "P D"],
    k: int,
    *,
    num_passages: int | None = None,
    excluded: Int[Array, "Q"] | None = None,
    approximate: bool = False,
    block: int = BLOCK,
) -> Found:
    """The k passages with the largest inner products, exact unless `approximate`.

    Where a mesh is in use each device searches its shard of the passages, and their best are merged: a device sends k
    scores and numbers a query. No array is over all queries and all passages.

    Args:
      queries: vectors.
      vectors: of all passages; `shard_passages` says how many make a mesh's devices even.
      k: passages to find.
      num_passages: those that count, if rows were added after them.
      excluded: of each query, a passage that it does not find; -1: none.
      approximate: by `jax.lax.approx_max_k`, which a TPU computes faster, with an expected recall of 95 %.
      block: passages whose scores a device holds at a time.

    Raises:
      InputError: k is not between 1 and the number of passages.
    """
    num_passages = len(vectors) if num_passages is None else num_passages
    if not 1 <= k <= num_passages:
        raise InputError(f"k={k} is not between 1 and the {num_passages} passages; choose fewer or index more")
    excluded = jnp.full(len(queries), -1) if excluded is None else excluded
    arrays = {"queries": queries, "vectors": vectors, "excluded": excluded}
    axes = {"queries": (None, None), "vectors": ("passages", None), "excluded": (None,)}

    def on_shard(shards: dict[str, Array], offsets: dict[str, Array | int]) -> tuple[Array, Array]:
        best = _search_shard(**shards, k=k, first=offsets["passages"], last=num_passages, by=approximate, block=block)
        return best.scores[None], best.passages[None]

    shards = on_each_device(on_shard, arrays, axes, ("passages", None, None))
    scores, passages = (jnp.moveaxis(x, 0, 1).reshape(len(queries), -1) for x in shards)
    return _best(scores, passages, k, approximate=False)


def _search_shard(
    queries: Float[Array, "Q D"],
    vectors: Float[Array, "P D"],
    excluded: Int[Array, "Q"],
    *,
    k: int,
    first: Array | int,
    last: int,
    by: bool,
    block: int,
) -> Found:
    """The best of some passages, whose numbers begin with `first`, in blocks."""
    size = len(vectors)

    def of_block(part: Float[Array, "p D"], start: Array | int) -> Found:
        precision = jax.lax.Precision.HIGHEST if queries.dtype == jnp.float32 else None
        scores = jax.lax.dot_general(
            queries, part, (((1,), (1,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
        )
        numbers = (first + start + jnp.arange(len(part)))[None]
        scores = jnp.where((numbers < last) & (numbers != excluded[:, None]), scores, -jnp.inf)
        return _best(scores, jnp.broadcast_to(numbers, scores.shape), min(k, len(part)), approximate=by)

    def merge(best: Found, more: Found) -> Found:
        together = (jnp.concatenate(pair, axis=1) for pair in zip(best, more, strict=True))
        return _best(*together, k, approximate=False)

    nothing = Found(jnp.full((len(queries), k), -jnp.inf), jnp.full((len(queries), k), -1))
    whole = size // block
    best = nothing
    if whole:
        blocks = vectors[: whole * block].reshape(whole, block, -1)
        starts = block * jnp.arange(whole)
        best, _ = jax.lax.scan(lambda best, one: (merge(best, of_block(*one)), None), best, (blocks, starts))
    if size % block:
        best = merge(best, of_block(vectors[whole * block :], whole * block))
    return best


def _best(scores: Float[Array, "Q n"], passages: Int[Array, "Q n"], k: int, *, approximate: bool) -> Found:
    top, at = jax.lax.approx_max_k(scores, k) if approximate else jax.lax.top_k(scores, k)
    return Found(top, jnp.take_along_axis(passages, at, axis=1))


def shard_passages(num_passages: int, num_devices: int) -> int:
    """How many rows of vectors a mesh shards evenly: the passages, and rows of zeros after them.

    >>> shard_passages(13, 4)
    16
    """
    return -(-num_passages // num_devices) * num_devices
