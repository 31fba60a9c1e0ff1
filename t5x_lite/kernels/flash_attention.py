"""Attention that holds its weights a tile at a time, with T5's bias by distance made inside the tile: for TPUs.

The softmax runs over blocks of keys with its maximum and its sum beside it (Milakov and Gimelshein 2018), and the
backward pass computes each tile of weights again (Dao et al. 2022, algorithms 2 and 4). Nothing of the size H x L x M
is ever stored, the bias neither: T5's depends on the distance j - i alone, so that a head's is a vector of L + M - 1
numbers. A tile of it is a slice of that vector, row r of it rotated by r; the gradient of the vector is the sum along
the diagonals of the tile's, rotated back.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.masks import MASKED_LOGIT, seed_and_offsets
from t5x_lite.kernels.tiles import (
    LANES,
    Refs,
    Tiling,
    along_diagonals,
    column,
    first_distance,
    keep_of,
    logits_of,
    looks,
    multiply,
    transposed_logits_of,
)

Arrays = dict[str, Array]
"""What all kernels read, by name, heads first and padded: `query` [B H L K], `key` and `value` [B H M K], `scalars`;
and where there are such, `bias` [H 1 T], `valid` [B 1 M], `query_segments` [B 1 L], `key_segments` [B 1 M]."""


def flash_attention(
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    *,
    scale: float,
    bias: Float[Array, "H T"] | None = None,
    valid: Bool[Array, "B M"] | None = None,
    query_segments: Int[Array, "B L"] | None = None,
    key_segments: Int[Array, "B M"] | None = None,
    causal: bool = False,
    prefix: int = 0,
    dropout_rate: float = 0.0,
    dropout_key: Key[Array, ""] | None = None,
    offsets: tuple[Any, Any, Any] = (0, 0, 0),
    query_block: int = 512,
    key_block: int = 512,
    interpret: bool = False,
) -> Float[Array, "B L H K"]:
    """softmax(scale * query key^T + bias) value, the softmax in float32, in blocks.

    A query that may look nowhere takes the mean of all values.

    Args:
      bias: of each head, by distance: number `L - 1 + j - i` is added to the logit of query i and key j. T = L + M - 1.
      valid: true for keys that may be looked at; None: all.
      query_segments, key_segments: queries look at the keys of their own segment alone.
      causal: query i looks at the keys 0..i alone, but for the first `prefix`, which all see each other.
      dropout_rate: share of the weights set to zero, the others growing by as much, when `dropout_key` is given.
      offsets: rows, heads and queries of a larger batch that stand before these, where a device has a part of it.
        Dropout and `causal` heed them; `bias` is that of these queries.
      query_block, key_block: rows and columns of a tile at most, multiples of 128.
      interpret: runs on any device, slowly.
    """
    length, memory_length = query.shape[1], key.shape[1]
    dropping = dropout_key is not None and dropout_rate > 0.0
    tiling = Tiling(
        length,
        memory_length,
        _block(length, query_block),
        _block(memory_length, key_block),
        scale,
        causal,
        prefix,
        dropout_rate if dropping else 0.0,
        bias is not None,
        valid is not None,
        query_segments is not None,
        interpret,
    )
    rows = (0, tiling.padded_length - length)
    columns = (0, tiling.padded_memory - memory_length)

    def heads_first(x: Array, pad: tuple[int, int]) -> Array:
        return jnp.pad(x.swapaxes(1, 2), ((0, 0), (0, 0), pad, (0, 0)))

    def as_row(x: Array | None, pad: tuple[int, int]) -> Array | None:
        return None if x is None else jnp.pad(x.astype(jnp.float32), ((0, 0), pad))[:, None]

    # Distances of the padded tiles: from the last query and the first key to the first query and the last key.
    strips = None if bias is None else jnp.pad(bias.astype(jnp.float32), ((0, 0), (rows[1], columns[1] + 1)))[:, None]
    arrays = {
        "query": heads_first(query, rows),
        "key": heads_first(key, columns),
        "value": heads_first(value, columns),
        "bias": strips,
        "valid": as_row(valid, columns),
        "query_segments": as_row(query_segments, rows),
        "key_segments": as_row(key_segments, columns),
        "scalars": seed_and_offsets(dropout_key if dropping else None, offsets),
    }
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return _attend(tiling, arrays)[:, :, :length].swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tiling: Tiling, arrays: Arrays) -> Float[Array, "B H L K"]:
    return _forward(tiling, arrays)[0]


def _attend_forward(tiling: Tiling, arrays: Arrays) -> Any:
    out, log_sum = _forward(tiling, arrays)
    return out, (arrays, out, log_sum)


def _attend_backward(tiling: Tiling, kept: Any, out_gradient: Array) -> tuple[dict[str, Array | None]]:
    arrays, out, log_sum = kept
    nowhere = _looks_nowhere(tiling, log_sum)
    of_mean = None
    if nowhere is not None:
        # What such a query takes is the mean of the values, whatever the kernel made of it.
        of_mean = jnp.where(nowhere, out_gradient.astype(jnp.float32), 0.0).sum(axis=2) / tiling.memory_length
        out_gradient = jnp.where(nowhere, 0, out_gradient)
    # What every weight of a row has in common in the gradient of its logit.
    shared = (out.astype(jnp.float32) * out_gradient.astype(jnp.float32)).sum(-1)[:, :, None]
    more = arrays | {"out_gradient": out_gradient, "log_sum": log_sum, "shared": shared}
    found = _backward_of_queries(tiling, more) | _backward_of_keys(tiling, more)
    if of_mean is not None:
        found["value"] = (found["value"] + of_mean[:, :, None]).astype(found["value"].dtype)
    return ({name: found.get(name) for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward)


def _forward(tiling: Tiling, arrays: Arrays) -> tuple[Float[Array, "B H L K"], Float[Array, "B H 1 L"]]:
    """(what each query takes of the values, the logarithm of the sum of its exponentials)."""
    query, block = arrays["query"], tiling.query_block
    batch_size, num_heads, _, width = query.shape
    sums = pltpu.VMEM((block, LANES), jnp.float32)
    out, log_sum = for_every_tile(
        _forward_kernel,
        tiling,
        arrays,
        grid=lambda b, h, i, j: (b, h, i, j),
        outputs={
            "out": (query.shape, query.dtype, (1, 1, block, width), lambda b, h, i, j: (b, h, i, 0)),
            "log_sum": (
                (batch_size, num_heads, 1, tiling.padded_length),
                jnp.float32,
                (1, 1, 1, block),
                lambda b, h, i, j: (b, h, 0, i),
            ),
        },
        scratch={"highest": sums, "total": sums, "sum": pltpu.VMEM((block, width), jnp.float32)},
        parallel=3,
        products=2,
    )
    nowhere = _looks_nowhere(tiling, log_sum)
    if nowhere is not None:
        mean = arrays["value"].astype(jnp.float32).sum(axis=2, keepdims=True) / tiling.memory_length
        out = jnp.where(nowhere, mean.astype(out.dtype), out)
    return out, log_sum


def _forward_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, i: Array, j: Array) -> None:
    @pl.when(j == 0)
    def begin() -> None:
        refs["highest"][...] = jnp.full_like(refs["highest"], -jnp.inf)
        refs["total"][...] = jnp.zeros_like(refs["total"])
        refs["sum"][...] = jnp.zeros_like(refs["sum"])

    @pl.when(looks(tiling, refs, i, j))
    def add_block() -> None:
        logits = logits_of(tiling, refs, i, j)
        before = refs["highest"][:, :1]
        highest = jnp.maximum(before, logits.max(axis=1, keepdims=True))
        weights, kept = jnp.exp(logits - highest), jnp.exp(before - highest)
        total = kept * refs["total"][:, :1] + weights.sum(axis=1, keepdims=True)
        refs["highest"][...] = jnp.broadcast_to(highest, refs["highest"].shape)
        refs["total"][...] = jnp.broadcast_to(total, refs["total"].shape)
        if tiling.dropout_rate:
            weights *= keep_of(tiling, refs, i, j, b, h, transposed=False)
        value = refs["value"][0, 0]
        refs["sum"][...] = kept * refs["sum"][...] + multiply(weights.astype(value.dtype), value)

    @pl.when(j == tiling.key_blocks - 1)
    def end() -> None:
        refs["out"][0, 0] = (refs["sum"][...] / refs["total"][:, :1]).astype(refs["out"].dtype)
        # As a row: so it takes a 128th of the room in memory.
        refs["log_sum"][0, 0] = (refs["highest"][...] + jnp.log(refs["total"][...])).T[:1]


def _backward_of_queries(tiling: Tiling, arrays: Arrays) -> Arrays:
    """The gradients of the queries and of the bias by distance."""
    query, block = arrays["query"], tiling.query_block
    width = query.shape[-1]
    outputs = {"query": (query.shape, query.dtype, (1, 1, block, width), lambda b, h, i, j: (b, h, i, 0))}
    if tiling.has_bias:
        shape = arrays["bias"].shape
        outputs["bias"] = (shape, jnp.float32, (1, *shape[1:]), lambda b, h, i, j: (h, 0, 0))
    found = for_every_tile(
        _backward_of_queries_kernel,
        tiling,
        arrays,
        # Heads come first, so that what a head adds up over the batch stays where it is.
        grid=lambda h, b, i, j: (b, h, i, j),
        outputs={f"{name}_gradient": output for name, output in outputs.items()},
        scratch={"sum": pltpu.VMEM((block, width), jnp.float32)},
        parallel=1 if tiling.has_bias else 3,
        products=3,
    )
    return dict(zip(outputs, found, strict=True))


def _backward_of_queries_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, i: Array, j: Array) -> None:
    @pl.when(j == 0)
    def begin() -> None:
        refs["sum"][...] = jnp.zeros_like(refs["sum"])

    if tiling.has_bias:

        @pl.when((b == 0) & (i == 0) & (j == 0))
        def begin_head() -> None:
            refs["bias_gradient"][...] = jnp.zeros_like(refs["bias_gradient"])

    @pl.when(looks(tiling, refs, i, j))
    def add_block() -> None:
        weights = jnp.exp(logits_of(tiling, refs, i, j) - column(refs["log_sum"][0, 0]))
        of_weights = multiply(refs["out_gradient"][0, 0], refs["value"][0, 0], transposed=True)
        if tiling.dropout_rate:
            of_weights *= keep_of(tiling, refs, i, j, b, h, transposed=False)
        of_logits = weights * (of_weights - column(refs["shared"][0, 0]))
        key = refs["key"][0, 0]
        refs["sum"][...] += tiling.scale * multiply(of_logits.astype(key.dtype), key)
        if tiling.has_bias:
            window = pl.ds(first_distance(tiling, i, j), tiling.strip)
            refs["bias_gradient"][0, :, window] += along_diagonals(tiling, of_logits)

    @pl.when(j == tiling.key_blocks - 1)
    def end() -> None:
        refs["query_gradient"][0, 0] = refs["sum"][...].astype(refs["query_gradient"].dtype)


def _backward_of_keys(tiling: Tiling, arrays: Arrays) -> Arrays:
    """The gradients of the keys and the values, from tiles whose rows are keys."""
    key, block = arrays["key"], tiling.key_block
    width = key.shape[-1]
    if tiling.has_bias:
        # A tile of the transposed weights is made of the distances in reverse.
        arrays = arrays | {"bias": arrays["bias"][..., ::-1]}
    output = (key.shape, key.dtype, (1, 1, block, width), lambda b, h, i, j: (b, h, j, 0))
    sums = pltpu.VMEM((block, width), jnp.float32)
    found = for_every_tile(
        _backward_of_keys_kernel,
        tiling,
        arrays,
        grid=lambda b, h, j, i: (b, h, i, j),
        outputs={"key_gradient": output, "value_gradient": output},
        scratch={"key_sum": sums, "value_sum": sums},
        parallel=3,
        products=4,
    )
    return dict(zip(("key", "value"), found, strict=True))


def _backward_of_keys_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, i: Array, j: Array) -> None:
    @pl.when(i == 0)
    def begin() -> None:
        for name in ("key_sum", "value_sum"):
            refs[name][...] = jnp.zeros_like(refs[name])

    @pl.when(looks(tiling, refs, i, j))
    def add_block() -> None:
        query, out_gradient = refs["query"][0, 0], refs["out_gradient"][0, 0]
        weights = jnp.exp(transposed_logits_of(tiling, refs, i, j) - refs["log_sum"][0, 0])
        of_weights = multiply(refs["value"][0, 0], out_gradient, transposed=True)
        used = weights
        if tiling.dropout_rate:
            kept = keep_of(tiling, refs, i, j, b, h, transposed=True)
            used, of_weights = weights * kept, of_weights * kept
        refs["value_sum"][...] += multiply(used.astype(out_gradient.dtype), out_gradient)
        of_logits = weights * (of_weights - refs["shared"][0, 0])
        refs["key_sum"][...] += tiling.scale * multiply(of_logits.astype(query.dtype), query)

    @pl.when(i == tiling.query_blocks - 1)
    def end() -> None:
        refs["key_gradient"][0, 0] = refs["key_sum"][...].astype(refs["key_gradient"].dtype)
        refs["value_gradient"][0, 0] = refs["value_sum"][...].astype(refs["value_gradient"].dtype)


def for_every_tile(
    kernel: Any,
    tiling: Tiling,
    arrays: Arrays,
    *,
    grid: Any,
    outputs: dict[str, tuple[tuple[int, ...], Any, tuple[int, ...], Any]],
    scratch: dict[str, Any],
    parallel: int,
    products: int,
) -> tuple[Array, ...]:
    """The outputs of a kernel that is run for every row b, head h, block of queries i and block of keys j.

    Args:
      kernel: called with the tiling, what it reads and writes by name, b, h, i and j.
      grid: says (b, h, i, j) given an index of the grid in its own order, the last of which goes round first.
      outputs: shape, type, block and its index at (b, h, i, j), by name.
      parallel: so many of the grid's axes can be gone through in any order.
      products: matrix products of a tile.
    """
    batch_size, num_heads, _, width = arrays["query"].shape
    sizes = (batch_size, num_heads, tiling.query_blocks, tiling.key_blocks)
    order = grid(0, 1, 2, 3)  # the axes of the grid that b, h, i and j are
    names = [*arrays, *outputs, *scratch]

    def run(*refs: Any) -> None:
        tile = grid(*(pl.program_id(axis) for axis in range(4)))
        kernel(tiling, dict(zip(names, refs, strict=True)), *tile)

    def spec(block: tuple[int, ...], index: Any) -> pl.BlockSpec:
        return pl.BlockSpec(block, lambda *tile: index(*grid(*tile)))

    inputs = _input_blocks(tiling, width)
    tiles = math.prod(sizes)
    computed = tiles * tiling.query_block * tiling.key_block // (2 if tiling.causal else 1)
    fetched = tiling.key_block if order[3] == 3 else tiling.query_block  # rows of two arrays, for every tile
    return pl.pallas_call(
        run,
        grid=tuple(sizes[order.index(axis)] for axis in range(4)),
        in_specs=[spec(*inputs[name]) if name in inputs else pl.BlockSpec(memory_space=pltpu.SMEM) for name in arrays],
        out_specs=tuple(spec(block, index) for _, _, block, index in outputs.values()),
        out_shape=tuple(jax.ShapeDtypeStruct(shape, of) for shape, of, _, _ in outputs.values()),
        scratch_shapes=list(scratch.values()),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",) * parallel + ("arbitrary",) * (4 - parallel)
        ),
        cost_estimate=pl.CostEstimate(
            flops=2 * products * computed * width,
            transcendentals=computed,
            bytes_accessed=2 * tiles * fetched * width * arrays["query"].dtype.itemsize,
        ),
        interpret=tiling.interpret,
        name=f"flash_attention{kernel.__name__.removesuffix('_kernel')}",
    )(*arrays.values())


def _input_blocks(tiling: Tiling, width: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Of what the kernels read, the block and its index at (b, h, i, j), by name; the scalars are read as they are."""
    rows, columns = tiling.query_block, tiling.key_block
    of_queries = ((1, 1, rows, width), lambda b, h, i, j: (b, h, i, 0))
    of_keys = ((1, 1, columns, width), lambda b, h, i, j: (b, h, j, 0))
    row_of_queries = ((1, 1, 1, rows), lambda b, h, i, j: (b, h, 0, i))
    return {
        "query": of_queries,
        "key": of_keys,
        "value": of_keys,
        "bias": ((1, 1, tiling.padded_length + tiling.padded_memory), lambda b, h, i, j: (h, 0, 0)),
        "valid": ((1, 1, columns), lambda b, h, i, j: (b, 0, j)),
        "query_segments": ((1, 1, rows), lambda b, h, i, j: (b, 0, i)),
        "key_segments": ((1, 1, columns), lambda b, h, i, j: (b, 0, j)),
        "out_gradient": of_queries,
        "log_sum": row_of_queries,
        "shared": row_of_queries,
    }


def _looks_nowhere(tiling: Tiling, log_sum: Float[Array, "B H 1 L"]) -> Bool[Array, "B H L 1"] | None:
    """Which queries may look at no key at all; None where that cannot be."""
    if not (tiling.has_valid or tiling.has_segments):
        return None
    return (log_sum < 0.5 * MASKED_LOGIT).swapaxes(2, 3)


def _block(length: int, most: int) -> int:
    """Of as few blocks as there must be the shortest, so that little is filled up.

    >>> [_block(length, 512) for length in (100, 512, 520, 4096)]
    [128, 512, 384, 512]
    """
    blocks = -(-length // most)
    return -(-length // (blocks * LANES)) * LANES
