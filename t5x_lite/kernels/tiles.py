"""A tile of attention's logits: made inside a TPU kernel, with its bias by distance, its masks and its dropout."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from t5x_lite.kernels.masks import HEAD, MASKED_LOGIT, QUERY, ROW, SEED, keeps

LANES = 128
"""Lanes of a vector register: blocks are multiples of it."""
_SUBLANES = 8

Refs = dict[str, Any]
"""The blocks that a kernel sees, by name, of the arrays that a call has."""


@dataclass(frozen=True)
class Tiling:
    """The static sizes and options of the kernels."""

    length: int
    memory_length: int
    query_block: int
    key_block: int
    scale: float
    causal: bool
    prefix: int
    dropout_rate: float
    interpret: bool

    @property
    def query_blocks(self) -> int:
        return -(-self.length // self.query_block)

    @property
    def key_blocks(self) -> int:
        return -(-self.memory_length // self.key_block)

    @property
    def padded_length(self) -> int:
        return self.query_blocks * self.query_block

    @property
    def padded_memory(self) -> int:
        return self.key_blocks * self.key_block

    @property
    def strip(self) -> int:
        """Distances that a tile is made of, and one more."""
        return self.query_block + self.key_block


def may_see(tiling: Tiling, refs: Refs, i: Array, j: Array) -> Any:
    """Whether any query of block i may see any key of block j, by their positions alone."""
    if not tiling.causal:
        return True
    first_query = refs["scalars"][QUERY] + i * tiling.query_block
    first_key = j * tiling.key_block
    seen = first_key < first_query + tiling.query_block
    if tiling.prefix:
        seen |= (first_query < tiling.prefix) & (first_key < tiling.prefix)
    return seen


def logits_of(tiling: Tiling, refs: Refs, i: Array, j: Array, *, transposed: bool = False) -> Array:
    """The logits [L M] of the queries of block i for the keys of block j, or [M L] if `transposed`, where the bias in
    `refs` is in reverse: `MASKED_LOGIT` where a key is not seen, and minus infinity where there is no key."""
    rows, columns = ("key", "query") if transposed else ("query", "key")
    logits = tiling.scale * multiply(refs[rows][0, 0], refs[columns][0, 0], transposed=True)
    num_rows, num_columns = logits.shape
    if "bias" in refs:
        # Row r begins at the strip's number num_rows - 1 - r, or if it is in reverse at num_rows - r.
        begin, first = first_distance(tiling, i, j), tiling.strip - num_rows + 1
        if transposed:
            total = tiling.padded_length + tiling.padded_memory
            begin, first = pl.multiple_of(total - begin - tiling.strip, LANES), first - 1
        strip = refs["bias"][0, :, pl.ds(begin, tiling.strip)]
        logits += _diagonal_tile(strip, first, num_rows)[:, :num_columns]
    queries, keys = _positions(tiling, refs, i, j, transposed=transposed)
    masks = []
    if tiling.causal:
        in_prefix = (queries < tiling.prefix) & (keys < tiling.prefix)
        masks.append((keys <= queries) | in_prefix if tiling.prefix else keys <= queries)
    if "valid" in refs:
        masks.append((column(refs["valid"][0]) if transposed else refs["valid"][0]) > 0.5)
    if "query_segments" in refs:
        masks.append(column(refs[f"{rows}_segments"][0]) == refs[f"{columns}_segments"][0])
    if masks:
        logits = jnp.where(functools.reduce(jnp.logical_and, masks), logits, MASKED_LOGIT)
    if tiling.padded_memory > tiling.memory_length:
        logits = jnp.where(keys < tiling.memory_length, logits, -jnp.inf)
    return logits


def keep_of(tiling: Tiling, refs: Refs, i: Array, j: Array, b: Array, h: Array, *, transposed: bool) -> Array:
    """The factor of a tile's weights under dropout: 1 / (1 - rate) or 0, the same in every kernel."""
    scalars = refs["scalars"]
    queries, keys = _positions(tiling, refs, i, j, transposed=transposed)
    # One column of the queries' and one row of the keys' numbers, or the other way round.
    queries, keys = (queries[:1], keys[:, :1]) if transposed else (queries[:, :1], keys[:1])
    seed, row, head = (scalars[SEED], scalars[SEED + 1]), scalars[ROW] + b, scalars[HEAD] + h
    kept = keeps(seed, row, head, queries, keys, tiling.dropout_rate)
    return jnp.where(kept, 1.0 / (1.0 - tiling.dropout_rate), 0.0)


def first_distance(tiling: Tiling, i: Array, j: Array) -> Array:
    """Where the distances of a tile begin: that of its last query and its first key."""
    first = tiling.padded_length - tiling.query_block + j * tiling.key_block - i * tiling.query_block
    return pl.multiple_of(first, LANES)


def along_diagonals(tiling: Tiling, tile: Float[Array, "L M"]) -> Float[Array, "1 T"]:
    """The sums of a tile over its diagonals, as the numbers of a strip: what `_diagonal_tile` does, transposed."""
    wide = jnp.concatenate([tile, jnp.zeros((tiling.query_block, tiling.query_block), tile.dtype)], axis=1)
    width, total = tiling.strip, jnp.zeros((_SUBLANES, tiling.strip), tile.dtype)
    for group in range(0, tiling.query_block, _SUBLANES):
        total += pltpu.roll(wide[group : group + _SUBLANES], (width + tiling.query_block - 1 - group) % width, 1)
    number = jax.lax.broadcasted_iota(jnp.int32, total.shape, 0)
    for bit in (1, 2, 4):
        total = jnp.where(number & bit > 0, pltpu.roll(total, width - bit, 1), total)
    return total.sum(axis=0, keepdims=True)


def column(row: Float[Array, "1 C"]) -> Float[Array, "C 1"]:
    return jnp.broadcast_to(row, (LANES, row.shape[1])).T[:, :1]


def multiply(left: Array, right: Array, *, transposed: bool = False) -> Array:
    """left @ right, or left @ right^T, added up in float32; float32 operands are not rounded."""
    axes = (((1,), (1 if transposed else 0,)), ((), ()))
    precision = jax.lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    return jax.lax.dot_general(left, right, axes, precision=precision, preferred_element_type=jnp.float32)


def _positions(tiling: Tiling, refs: Refs, i: Array, j: Array, *, transposed: bool) -> tuple[Array, Array]:
    """(which query of the whole row, which key) each element of a tile is of."""
    shape = (tiling.query_block, tiling.key_block)
    shape = shape[::-1] if transposed else shape
    queries, keys = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in ((1, 0) if transposed else (0, 1)))
    return refs["scalars"][QUERY] + i * tiling.query_block + queries, j * tiling.key_block + keys


def _diagonal_tile(strip: Float[Array, "1 T"], first: int, num_rows: int) -> Float[Array, "R T"]:
    """Rows that are all the strip, row r rotated to the right by first + r.

    The eight rows of a register are rotated apart once, and then together: not all TPUs rotate the rows of one by
    growing steps.
    """
    width = strip.shape[1]
    rows = jnp.broadcast_to(strip, (_SUBLANES, width))
    number = jax.lax.broadcasted_iota(jnp.int32, rows.shape, 0)
    for bit in (1, 2, 4):
        rows = jnp.where(number & bit > 0, pltpu.roll(rows, bit, 1), rows)
    return jnp.concatenate(
        [pltpu.roll(rows, (first + group) % width, 1) for group in range(0, num_rows, _SUBLANES)], axis=0
    )
