"""Attention that holds its weights a tile at a time, with T5's bias by distance made inside the tile: for TPUs.

The softmax runs over blocks of keys with its maximum and its sum beside it (Milakov and Gimelshein 2018), and the
backward pass computes each tile of weights again (Dao et al. 2022, algorithms 2 and 4). Nothing of the size H x L x M
is ever stored, the bias neither: T5's depends on the distance j - i alone, so that a head's is a vector of L + M - 1
numbers. A tile of it is a slice of that vector, row r of it rotated by r; the gradient of the vector is the sum along
the diagonals of the tile's, rotated back.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float

from t5x_lite.kernels.masks import MASKED_LOGIT, MODEL_FLOPS, AttentionInputs, Mask
from t5x_lite.kernels.tiles import (
    LANES,
    LOG2_E,
    Refs,
    TileList,
    Tiling,
    along_diagonals,
    column,
    first_distance,
    for_edges,
    keep_bias_tile,
    keep_of,
    lanes,
    logits_of,
    multiply,
    num_alternatives,
    rows_of,
)

Tile = tuple[Array, Array, Array, Array]
"""Number i of the block of queries, number j of the block of keys, and whether the tile is the first or the last of
those that one block adds up."""
Arrays = dict[str, Array]
"""What all kernels read, by name, heads first: `query` [B H L K], `key` and `value` [B H M K], `scalars`; and where
there are such, padded, `bias` [H 1 T], `valid` [B 1 M], `query_segments` [B 1 L], `key_segments` [B 1 M]."""


def flash_attention(
    inputs: AttentionInputs, *, query_block: int = 512, key_block: int = 512, interpret: bool = False
) -> Float[Array, "B L H K"]:
    """Attention in tiles of at most `query_block` x `key_block`, multiples of 128.

    With `interpret` it runs on any device, slowly.
    """
    length, memory_length = inputs.lengths
    bias, mask = inputs.bias, inputs.mask
    rate = inputs.dropout_rate if inputs.drops else 0.0
    blocks = _block(length, query_block), _block(memory_length, key_block)
    before = (inputs.offsets or (0, 0, 0))[2]
    first_query = before if isinstance(before, int) else None
    options = (inputs.scale, mask.causal, mask.prefix, rate, interpret, first_query)
    tiling = Tiling(length, memory_length, *blocks, *options)
    rows = (0, tiling.padded_length - length)
    columns = (0, tiling.padded_memory - memory_length)

    def as_row(x: Array | None, pad: tuple[int, int]) -> Array | None:
        return None if x is None else jnp.pad(x.astype(jnp.float32), ((0, 0), pad))[:, None]

    arrays = {
        # Not padded, which would copy them: their last block ends in rows that are not there (see `rows_of`).
        "query": inputs.query.swapaxes(1, 2),
        "key": inputs.key.swapaxes(1, 2),
        "value": inputs.value.swapaxes(1, 2),
        # Distances of the padded tiles: from the last query and the first key to the first query and the last key.
        "bias": as_row(None if bias is None else LOG2_E * bias.values, (rows[1], columns[1] + 1)),
        "valid": as_row(mask.valid, columns),
        "query_segments": as_row(mask.query_segments, rows),
        "key_segments": as_row(mask.key_segments, columns),
        "scalars": inputs.scalars(),
    }
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return _attend(tiling, arrays).swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tiling: Tiling, arrays: Arrays) -> Float[Array, "B H L K"]:
    return _attend_forward(tiling, arrays)[0]


def _attend_forward(tiling: Tiling, arrays: Arrays) -> Any:
    """(what each query takes of the values, what the backward pass needs: with the log of the sum of exponentials)."""
    query, sums = arrays["query"], pltpu.VMEM((tiling.query_block, LANES), jnp.float32)
    batch_size, num_heads, _, width = query.shape
    out, log_sum = for_every_tile(
        _forward_kernel,
        tiling,
        arrays,
        outputs={
            "out": jax.ShapeDtypeStruct(query.shape, query.dtype),
            "log_sum": jax.ShapeDtypeStruct((batch_size, num_heads, 1, tiling.padded_length), jnp.float32),
        },
        tile_scratch={"bias_tile": (tiling.query_block, tiling.key_block)},
        scratch={"highest": sums, "total": sums, "sum": pltpu.VMEM((tiling.query_block, width), jnp.float32)},
        products=2,
    )
    no_key = _sees_no_key(tiling, arrays, log_sum)
    if no_key is not None:
        mean = arrays["value"].astype(jnp.float32).sum(axis=2, keepdims=True) / tiling.memory_length
        out = jnp.where(no_key, mean.astype(out.dtype), out)
    return out, (arrays, out, log_sum)


def _attend_backward(tiling: Tiling, saved: Any, out_gradient: Array) -> tuple[dict[str, Array | None]]:
    arrays, out, log_sum = saved
    no_key = _sees_no_key(tiling, arrays, log_sum)
    of_mean = None
    if no_key is not None:
        # Such a query takes the mean of the values, whatever the kernel computed.
        of_mean = jnp.where(no_key, out_gradient.astype(jnp.float32), 0.0).sum(axis=2) / tiling.memory_length
        out_gradient = jnp.where(no_key, 0, out_gradient)
    # The term that all weights of a query share in the gradients of their logits.
    shared = (out.astype(jnp.float32) * out_gradient.astype(jnp.float32)).sum(-1)[:, :, None]
    shared = jnp.pad(shared, ((0, 0), (0, 0), (0, 0), (0, tiling.padded_length - tiling.length)))
    more = arrays | {"out_gradient": out_gradient, "log_sum": log_sum, "shared": shared}
    gradients = _backward_of_queries(tiling, more) | _backward_of_keys(tiling, more)
    if of_mean is not None:
        gradients["value"] = (gradients["value"] + of_mean[:, :, None]).astype(gradients["value"].dtype)
    return ({name: gradients.get(name) for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward)


def _forward_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, tile: Tile) -> None:
    i, j, first, last = tile

    @pl.when(first)
    def begin() -> None:
        refs["highest"][...] = jnp.full_like(refs["highest"], -jnp.inf)
        refs["total"][...] = jnp.zeros_like(refs["total"])
        refs["sum"][...] = jnp.zeros_like(refs["sum"])

    keep_bias_tile(tiling, refs, b)

    def add_block(edge: bool) -> None:
        logits = logits_of(tiling, refs, i, j, edge)
        # Of a query's numbers a whole row of lanes each, that no operation has to spread them.
        before, value = refs["highest"][...], rows_of(tiling, refs, "value", j, edge)
        highest = jnp.maximum(before, logits.max(axis=1, keepdims=True))
        weights, kept = jnp.exp2(logits - lanes(highest, logits.shape[1])), jnp.exp2(before - highest)
        refs["highest"][...] = highest
        refs["total"][...] = kept * refs["total"][...] + weights.sum(axis=1, keepdims=True)
        if tiling.dropout_rate:
            weights *= keep_of(tiling, refs, i, j, b, h, transposed=False)
        kept = lanes(kept, value.shape[1])
        refs["sum"][...] = kept * refs["sum"][...] + multiply(weights.astype(value.dtype), value)

    for_edges(tiling, refs, (i, j), add_block)

    @pl.when(last)
    def end() -> None:
        refs["out"][0, 0] = (refs["sum"][...] / lanes(refs["total"][...], refs["sum"].shape[1])).astype(
            refs["out"].dtype
        )
        # As a row, which takes a 128th of the memory of a column.
        refs["log_sum"][0, 0] = (refs["highest"][...] + jnp.log2(refs["total"][...])).T[:1]


def _backward_of_queries(tiling: Tiling, arrays: Arrays) -> Arrays:
    """The gradients of the queries and of the bias by distance."""
    wanted = ("query", "bias") if "bias" in arrays else ("query",)
    gradients = for_every_tile(
        _backward_of_queries_kernel,
        tiling,
        arrays,
        # So that what a head adds up over the batch stays where it is.
        heads_first="bias" in arrays,
        tile_scratch=dict.fromkeys(("bias_tile", "tile_sum"), (tiling.query_block, tiling.key_block)),
        outputs={f"{name}_gradient": jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in wanted},
        scratch={"sum": pltpu.VMEM((tiling.query_block, arrays["query"].shape[-1]), jnp.float32)},
        products=3,
    )
    gradients = dict(zip(wanted, gradients, strict=True))
    return gradients | ({"bias": gradients["bias"] / LOG2_E} if "bias" in arrays else {})


def _backward_of_queries_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, tile: Tile) -> None:
    i, j, first, last = tile

    @pl.when(first)
    def begin() -> None:
        refs["sum"][...] = jnp.zeros_like(refs["sum"])

    if "bias" in refs:

        @pl.when((b == 0) & first & (i == 0))
        def begin_head() -> None:
            for name in ("bias_gradient", "tile_sum"):
                if name in refs:
                    refs[name][...] = jnp.zeros_like(refs[name])

    keep_bias_tile(tiling, refs, b)

    def add_block(edge: bool) -> None:
        weights = jnp.exp2(logits_of(tiling, refs, i, j, edge) - column(refs["log_sum"][0, 0]))
        out_gradient = rows_of(tiling, refs, "out_gradient", i, edge)
        of_weights = multiply(out_gradient, rows_of(tiling, refs, "value", j, edge), transposed=True)
        if tiling.dropout_rate:
            of_weights *= keep_of(tiling, refs, i, j, b, h, transposed=False)
        of_logits = weights * (of_weights - column(refs["shared"][0, 0]))
        key = rows_of(tiling, refs, "key", j, edge)
        refs["sum"][...] += multiply(of_logits.astype(key.dtype), key)
        if "tile_sum" in refs:
            refs["tile_sum"][...] += of_logits
        elif "bias" in refs:
            window = pl.ds(first_distance(tiling, i, j), tiling.strip)
            refs["bias_gradient"][0, :, window] += along_diagonals(tiling, of_logits)

    for_edges(tiling, refs, (i, j), add_block)

    @pl.when(last)
    def end() -> None:
        refs["query_gradient"][0, 0] = (tiling.scale * refs["sum"][...]).astype(refs["query_gradient"].dtype)

    if "tile_sum" in refs:

        @pl.when(b == pl.num_programs(1) - 1)
        def end_head() -> None:
            refs["bias_gradient"][0] = along_diagonals(tiling, refs["tile_sum"][...])


def _backward_of_keys(tiling: Tiling, arrays: Arrays) -> Arrays:
    """The gradients of the keys and the values, from tiles whose rows are keys."""
    if "bias" in arrays:
        # A tile of the transposed weights is made of the distances in reverse.
        arrays = arrays | {"bias": arrays["bias"][..., ::-1]}
    key = arrays["key"]
    output = jax.ShapeDtypeStruct(key.shape, key.dtype)
    sums = pltpu.VMEM((tiling.key_block, key.shape[-1]), jnp.float32)
    gradients = for_every_tile(
        _backward_of_keys_kernel,
        tiling,
        arrays,
        by_keys=True,
        tile_scratch={"bias_tile": (tiling.key_block, tiling.query_block)},
        outputs={"key_gradient": output, "value_gradient": output},
        scratch={"key_sum": sums, "value_sum": sums},
        products=4,
    )
    return dict(zip(("key", "value"), gradients, strict=True))


def _backward_of_keys_kernel(tiling: Tiling, refs: Refs, b: Array, h: Array, tile: Tile) -> None:
    i, j, first, last = tile

    @pl.when(first)
    def begin() -> None:
        for name in ("key_sum", "value_sum"):
            refs[name][...] = jnp.zeros_like(refs[name])

    keep_bias_tile(tiling, refs, b, transposed=True)

    def add_block(edge: bool) -> None:
        query, out_gradient = (rows_of(tiling, refs, name, i, edge) for name in ("query", "out_gradient"))
        weights = jnp.exp2(logits_of(tiling, refs, i, j, edge, transposed=True) - refs["log_sum"][0, 0])
        of_weights = multiply(rows_of(tiling, refs, "value", j, edge), out_gradient, transposed=True)
        used = weights
        if tiling.dropout_rate:
            kept = keep_of(tiling, refs, i, j, b, h, transposed=True)
            used, of_weights = weights * kept, of_weights * kept
        refs["value_sum"][...] += multiply(used.astype(out_gradient.dtype), out_gradient)
        of_logits = weights * (of_weights - refs["shared"][0, 0])
        refs["key_sum"][...] += multiply(of_logits.astype(query.dtype), query)

    for_edges(tiling, refs, (i, j), add_block)

    @pl.when(last)
    def end() -> None:
        refs["key_gradient"][0, 0] = (tiling.scale * refs["key_sum"][...]).astype(refs["key_gradient"].dtype)
        refs["value_gradient"][0, 0] = refs["value_sum"][...].astype(refs["value_gradient"].dtype)


def for_every_tile(
    kernel: Any,
    tiling: Tiling,
    arrays: Arrays,
    *,
    outputs: dict[str, jax.ShapeDtypeStruct],
    scratch: dict[str, Any],
    tile_scratch: dict[str, tuple[int, int]],
    products: int,
    heads_first: bool = False,
    by_keys: bool = False,
) -> tuple[Array, ...]:
    """The outputs of a kernel that is run for every row b, head h and tile, in the order of `TileList`.

    Args:
      kernel: called with the tiling, what it reads and writes by name, b, h and the tile.
      outputs: by name, see `_blocks`.
      tile_scratch: memory that stays for all rows of a head, where there is a bias and a single tile.
      products: matrix products of a tile.
      heads_first: a head visits all rows and tiles in order; otherwise a row and head visit their tiles.
    """
    batch_size, num_heads, _, width = arrays["query"].shape
    tiles = TileList(tiling, by_keys=by_keys)
    # The cores of a chip share out the heads then.
    keeps_tile = "bias" in arrays and len(tiles) == 1 and num_heads > 1
    if keeps_tile:
        heads_first = True
        scratch = scratch | {name: pltpu.VMEM(shape, jnp.float32) for name, shape in tile_scratch.items()}
    names = [*arrays, *outputs, *scratch]

    def run(numbers: Any, *refs: Any) -> None:
        b, h = (pl.program_id(axis) for axis in ((1, 0) if heads_first else (0, 1)))
        kernel(tiling, dict(zip(names, refs, strict=True)), b, h, tiles.unpack(numbers, pl.program_id(2)))

    def spec(block: tuple[int, ...], index: Any) -> pl.BlockSpec:
        def of_step(first: Any, second: Any, t: Any, numbers: Any) -> tuple[Any, ...]:
            b, h = (second, first) if heads_first else (first, second)
            return index(b, h, *tiles.unpack(numbers, t)[:2])

        return pl.BlockSpec(block, of_step)

    blocks = _blocks(tiling, width)
    mask = Mask(causal=tiling.causal, prefix=tiling.prefix)
    pairs = mask.visible_pairs(tiling.length, tiling.memory_length)
    steps = batch_size * num_heads * len(tiles)
    computed = steps * tiling.query_block * tiling.key_block
    fetched = tiling.query_block if by_keys else tiling.key_block  # rows of two arrays, for every tile
    return pl.pallas_call(
        run,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(*((num_heads, batch_size) if heads_first else (batch_size, num_heads)), len(tiles)),
            in_specs=[
                spec(*blocks[name]) if name in blocks else pl.BlockSpec(memory_space=pltpu.SMEM) for name in arrays
            ],
            out_specs=tuple(spec(*blocks[name]) for name in outputs),
            scratch_shapes=list(scratch.values()),
        ),
        out_shape=tuple(outputs.values()),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary" if heads_first else "parallel", "arbitrary")
        ),
        cost_estimate=pl.CostEstimate(
            flops=2 * products * computed * width,
            transcendentals=computed,
            bytes_accessed=2 * steps * fetched * width * arrays["query"].dtype.itemsize,
        ),
        interpret=tiling.interpret,
        name=f"flash_attention{kernel.__name__.removesuffix('_kernel')}",
        # What a plan counts with (`planning.kernels`), and the count of a model's operations.
        metadata={
            "steps": str(steps),
            "blocks": str(num_heads if keeps_tile else steps // len(tiles) * tiles.num_blocks),
            "alternatives": str(num_alternatives(tiling)),
            MODEL_FLOPS: str(2 * products * batch_size * num_heads * pairs * width),
        },
    )(jnp.asarray(tiles.numbers), *arrays.values())


def _blocks(tiling: Tiling, width: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Of what the kernels read and write, the block and its index at (b, h, i, j), by name; scalars are not cut."""
    rows, columns = tiling.query_block, tiling.key_block
    of_queries = ((1, 1, rows, width), lambda b, h, i, j: (b, h, i, 0))
    of_keys = ((1, 1, columns, width), lambda b, h, i, j: (b, h, j, 0))
    row_of_queries = ((1, 1, 1, rows), lambda b, h, i, j: (b, h, 0, i))
    of_head = ((1, 1, tiling.padded_length + tiling.padded_memory), lambda b, h, i, j: (h, 0, 0))
    return {
        **dict.fromkeys(("query", "out", "out_gradient", "query_gradient"), of_queries),
        **dict.fromkeys(("key", "value", "key_gradient", "value_gradient"), of_keys),
        **dict.fromkeys(("log_sum", "shared"), row_of_queries),
        **dict.fromkeys(("bias", "bias_gradient"), of_head),
        "valid": ((1, 1, columns), lambda b, h, i, j: (b, 0, j)),
        "query_segments": ((1, 1, rows), lambda b, h, i, j: (b, 0, i)),
        "key_segments": ((1, 1, columns), lambda b, h, i, j: (b, 0, j)),
    }


def _sees_no_key(tiling: Tiling, arrays: Arrays, log_sum: Float[Array, "B H 1 _"]) -> Bool[Array, "B H L 1"] | None:
    """Which queries see no key; None where that cannot be."""
    if "valid" not in arrays and "query_segments" not in arrays:
        return None
    return (log_sum[..., : tiling.length] < 0.5 * MASKED_LOGIT).swapaxes(2, 3)


def _block(length: int, most: int) -> int:
    """The length of the shortest block, of as few as there must be, so that little is padding.

    >>> [_block(length, 512) for length in (100, 512, 520, 4096)]
    [128, 512, 384, 512]
    """
    blocks = -(-length // most)
    return -(-length // (blocks * LANES)) * LANES
