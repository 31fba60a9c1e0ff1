"""A tile of attention's logits: made inside a TPU kernel, with its bias by distance, its masks and its dropout."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from t5x_lite.kernels.masks import HEAD, MASKED_LOGIT, QUERY, ROW, SEED, keeps

LOG2_E = math.log2(math.e)
"""Logits are in powers of two, which a TPU computes with one product less than powers of e."""
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
    first_query: int | None = 0
    """The position of query 0 in its row; None: known when the kernel runs."""

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


def may_see(tiling: Tiling, first_query: Any, i: Any, j: Any) -> Any:
    """Whether any query of block i may see any key of block j, by their positions alone."""
    if not tiling.causal:
        return True
    first_query, first_key = first_query + i * tiling.query_block, j * tiling.key_block
    seen = first_key < first_query + tiling.query_block
    if tiling.prefix:
        seen |= (first_query < tiling.prefix) & (first_key < tiling.prefix)
    return seen


def has_edge(tiling: Tiling, first_query: Any, i: Any, j: Any) -> Any:
    """Whether a query of block i does not see all positions of block j, on the diagonal, or one of the two ends in rows
    that are not there."""
    edge = tiling.causal and (j + 1) * tiling.key_block - 1 > first_query + i * tiling.query_block
    if tiling.padded_memory > tiling.memory_length:
        edge |= j == tiling.key_blocks - 1
    if tiling.padded_length > tiling.length:
        edge |= i == tiling.query_blocks - 1
    return edge


class TileList:
    """The tiles that a kernel computes, one after the other: a number for each, in the order of `by_keys`.

    Those that no query sees are left out, where positions are known, but for one of a block that has no others.
    """

    def __init__(self, tiling: Tiling, *, by_keys: bool):
        rows, columns, known = tiling.query_blocks, tiling.key_blocks, tiling.first_query
        tiles = [(i, j) for i in range(rows) for j in range(columns) if known is None or may_see(tiling, known, i, j)]
        if by_keys:
            missing = set(range(columns)) - {j for _, j in tiles}
            tiles = sorted([*tiles, *((rows - 1, j) for j in missing)], key=lambda tile: tile[::-1])
        blocks = [tile[by_keys] for tile in tiles]
        first = [n == 0 or block != blocks[n - 1] for n, block in enumerate(blocks)]
        self.num_blocks = sum(first)
        last = [*first[1:], True]
        packed = [
            (i << 17) | (j << 2) | (begins << 1) | ends for (i, j), begins, ends in zip(tiles, first, last, strict=True)
        ]
        self.numbers: Int[np.ndarray, "T"] = np.array(packed, np.int32)

    def __len__(self) -> int:
        return len(self.numbers)

    def unpack(self, numbers: Any, t: Any) -> tuple[Any, Any, Any, Any]:
        """(i, j, whether the first of its block, whether the last) of tile t, from `numbers` in memory."""
        if len(self) == 1:
            return 0, 0, True, True
        number = numbers[t]
        return number >> 17, (number >> 2) & 0x7FFF, (number & 2) > 0, (number & 1) > 0


def for_edges(tiling: Tiling, refs: Refs, tile: tuple[Any, Any], compute: Callable[[bool], None]) -> None:
    """Runs `compute(edge)` for a tile that is seen: with masks by position if it has an edge, else without."""
    first_query, alternatives = refs["scalars"][QUERY], num_alternatives(tiling)
    edge = has_edge(tiling, first_query, *tile)
    if alternatives == 0:
        compute(edge is not False)
        return
    seen = may_see(tiling, first_query, *tile) if tiling.first_query is None else True
    pl.when(seen & edge)(lambda: compute(True))
    pl.when(seen & ~edge)(lambda: compute(False))


def num_alternatives(tiling: Tiling) -> int:
    """Of the ways to compute a tile, between which `for_edges` branches: 2 where some tiles have edges, else 0."""
    is_padded = tiling.padded_length > tiling.length or tiling.padded_memory > tiling.memory_length
    has_edges = tiling.causal or is_padded
    known = tiling.query_blocks == tiling.key_blocks == 1 and (tiling.first_query is not None or not tiling.causal)
    return 2 if has_edges and not known else 0


def logits_of(tiling: Tiling, refs: Refs, i: Array, j: Array, edge: bool, *, transposed: bool = False) -> Array:
    """The logits [L M] of the queries of block i for the keys of block j, or [M L] if `transposed`, where the bias in
    `refs` is in reverse: `MASKED_LOGIT` where a key is not seen, and minus infinity where there is no key.

    They are in powers of two. Without an `edge` all keys are there and seen by position.
    """
    rows, columns = ("key", "query") if transposed else ("query", "key")
    query, key = rows_of(tiling, refs, "query", i, edge), rows_of(tiling, refs, "key", j, edge)
    left, right = (key, query) if transposed else (query, key)
    logits = tiling.scale * LOG2_E * multiply(left, right, transposed=True)
    if "bias_tile" in refs:
        logits += refs["bias_tile"][...]
    elif "bias" in refs:
        logits += bias_of(tiling, refs, i, j, logits.shape, transposed=transposed)
    queries, keys = _positions(tiling, refs, i, j, transposed=transposed)
    masks = []
    if tiling.causal and edge:
        in_prefix = (queries < tiling.prefix) & (keys < tiling.prefix)
        masks.append((keys <= queries) | in_prefix if tiling.prefix else keys <= queries)
    if "valid" in refs:
        masks.append((column(refs["valid"][0]) if transposed else refs["valid"][0]) > 0.5)
    if "query_segments" in refs:
        masks.append(column(refs[f"{rows}_segments"][0]) == refs[f"{columns}_segments"][0])
    if masks:
        logits = jnp.where(functools.reduce(jnp.logical_and, masks), logits, MASKED_LOGIT)
    if tiling.padded_memory > tiling.memory_length and edge:
        logits = jnp.where(keys < tiling.memory_length, logits, -jnp.inf)
    return logits


def rows_of(tiling: Tiling, refs: Refs, name: str, block: Any, edge: bool) -> Float[Array, "R K"]:
    """Block number `block` of an array of queries or of keys; zeros for the rows past its end, which hold anything."""
    rows = refs[name][0, 0]
    of_keys = name in ("key", "value")
    length, padded = (tiling.memory_length, tiling.padded_memory) if of_keys else (tiling.length, tiling.padded_length)
    if not edge or padded == length:
        return rows
    number = block * len(rows) + jax.lax.broadcasted_iota(jnp.int32, rows.shape, 0)
    return jnp.where(number < length, rows, jnp.zeros_like(rows))


def bias_of(
    tiling: Tiling, refs: Refs, i: Array, j: Array, shape: tuple[int, int], *, transposed: bool
) -> Float[Array, "L M"]:
    """The tile of the bias by distance that is added to the logits of this shape."""
    # Row r begins at the strip's number num_rows - 1 - r, or if it is in reverse at num_rows - r.
    num_rows, num_columns = shape
    begin, first = first_distance(tiling, i, j), tiling.strip - num_rows + 1
    if transposed:
        total = tiling.padded_length + tiling.padded_memory
        begin, first = _aligned(total - begin - tiling.strip), first - 1
    strip = refs["bias"][0, :, pl.ds(begin, tiling.strip)]
    return _diagonal_tile(strip, first, num_rows)[:, :num_columns]


def keep_bias_tile(tiling: Tiling, refs: Refs, b: Array, *, transposed: bool = False) -> None:
    """Makes the tile of a head that has only one for its first row b; it stays for the others."""
    if "bias_tile" in refs:

        @pl.when(b == 0)
        def make() -> None:
            tile = refs["bias_tile"]
            tile[...] = bias_of(tiling, refs, 0, 0, tile.shape, transposed=transposed)


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
    return _aligned(first)


def _aligned(index: Any) -> Any:
    return index if isinstance(index, int) else pl.multiple_of(index, LANES)


def along_diagonals(tiling: Tiling, tile: Float[Array, "L M"]) -> Float[Array, "1 T"]:
    """The sums of a tile over its diagonals, as the numbers of a strip: what `_diagonal_tile` does, transposed."""
    wide = jnp.concatenate([tile, jnp.zeros((tiling.query_block, tiling.query_block), tile.dtype)], axis=1)
    width, sums = tiling.strip, {}
    for group in groups(tiling.query_block):
        registers, shift = divmod((width + tiling.query_block - 1 - group) % width, LANES)
        moved = _by_registers(wide[group : group + _SUBLANES], registers)
        sums[shift] = sums[shift] + moved if shift in sums else moved
    total = sum(pltpu.roll(part, shift, 1) for shift, part in sums.items())
    number = jax.lax.broadcasted_iota(jnp.int32, total.shape, 0)
    for bit in (1, 2, 4):
        total = jnp.where(number & bit > 0, pltpu.roll(total, width - bit, 1), total)
    return total.sum(axis=0, keepdims=True)


def column(row: Float[Array, "1 C"]) -> Float[Array, "C 1"]:
    return jnp.broadcast_to(row, (LANES, row.shape[1])).T[:, :1]


def lanes(x: Float[Array, "R 128"], width: int) -> Float[Array, "R W"]:
    """Rows of equal numbers with `width` lanes instead."""
    return x[:, :width] if width <= LANES else jnp.tile(x, (1, -(-width // LANES)))[:, :width]


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
    # By whole registers nothing moves, so that few rotations are left.
    shifts = [divmod(first + group, LANES) for group in groups(num_rows)]
    rotated = {shift: pltpu.roll(rows, shift, 1) for _, shift in shifts}
    return jnp.concatenate([_by_registers(rotated[shift], registers) for registers, shift in shifts], axis=0)


def _by_registers(x: Float[Array, "R T"], count: int) -> Float[Array, "R T"]:
    """`x` rotated to the right by `count` times `LANES`."""
    split = -count * LANES % x.shape[1]
    return jnp.concatenate([x[:, split:], x[:, :split]], axis=1) if split else x


def groups(num_rows: int) -> range:
    """The first of the rows of each register."""
    return range(0, num_rows, _SUBLANES)
