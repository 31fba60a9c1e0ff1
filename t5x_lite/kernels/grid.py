"""How a kernel of attention is run over its tiles: which block of what it sees at each place of the grid."""

import math
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from t5x_lite.kernels.tiles import Tiling

Arrays = dict[str, Array]
"""What all kernels read, by name, heads first and padded: `query` [B H L K], `key` and `value` [B H M K], `scalars`;
and where there are such, `bias` [H 1 T], `valid` [B 1 M], `query_segments` [B 1 L], `key_segments` [B 1 M]."""


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
      grid: says (b, h, i, j) given a place of the grid in its own order, the last of which goes round first.
      outputs: shape, type, block and its index at (b, h, i, j), by name.
      parallel: so many of the grid's axes can be gone through in any order.
      products: matrix products of a tile.
    """
    batch_size, num_heads, _, width = arrays["query"].shape
    sizes = (batch_size, num_heads, tiling.query_blocks, tiling.key_blocks)
    order = grid(0, 1, 2, 3)  # the axes of the grid that b, h, i and j are
    names = [*arrays, *outputs, *scratch]

    def run(*refs: Any) -> None:
        place = grid(*(pl.program_id(axis) for axis in range(4)))
        kernel(tiling, dict(zip(names, refs, strict=True)), *place)

    def spec(block: tuple[int, ...], index: Any) -> pl.BlockSpec:
        return pl.BlockSpec(block, lambda *place: index(*grid(*place)))

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
