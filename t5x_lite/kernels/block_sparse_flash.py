"""Block-sparse attention as a TPU kernel: a head's keys and values stay in VMEM, and a block of queries looks up there
the blocks that it sees.

A step of the grid has a few blocks of queries. Each holds its logits for all keys that it sees, so that the softmax
needs no running sums, and the backward pass computes them again and adds up the gradients of keys and values in VMEM.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import HEAD, MASKED_LOGIT, MODEL_FLOPS, QUERY, ROW, SEED, Blocks, keeps
from t5x_lite.kernels.platform import kernel_memory
from t5x_lite.kernels.tiles import LANES, LOG2_E, multiply

_GROUP = 4
"""Blocks of queries of a step."""

Arrays = dict[str, Array]
"""What the kernels read, by name: `query` [B H Q*size K] of the blocks that are not global, `key` and `value`
[B H L K], `valid` [B blocks size], `table` [H*Q*S], `scalars`."""


@dataclass(frozen=True)
class SparseTiling:
    """The static sizes and options of the kernels."""

    size: int
    num_slots: int
    """Blocks of keys that a block of queries sees."""
    first: int
    """Global blocks before the queries."""
    scale: float
    dropout_rate: float
    interpret: bool


def fits_vmem(length: int, size: int, head_dim: int, dtype: Any) -> bool:
    """Whether the kernels take rows of this length, in blocks of `size`."""
    return size % 16 == 0 and _vmem_bytes(length, head_dim, jnp.dtype(dtype).itemsize) <= kernel_memory()


def _vmem_bytes(length: int, head_dim: int, itemsize: int) -> int:
    """Of the backward pass: keys, values, their gradients, and those as they are added up."""
    width = -(-head_dim // LANES) * LANES
    return length * width * (4 * itemsize + 2 * 4) + (5 << 20)


def block_sparse_flash(
    query: Float[Array, "B H _ K"],
    key: Float[Array, "B H L K"],
    value: Float[Array, "B H L K"],
    valid: Bool[Array, "B L"],
    blocks: Blocks,
    scalars: Int[Array, "5"],
    *,
    scale: float,
    dropout_rate: float = 0.0,
    interpret: bool = False,
) -> Float[Array, "B H _ K"]:
    """The attention of the queries that are in no global block.

    Args:
      query: theirs alone, a multiple of `blocks.size`.
      key: of the whole row, as `value`, a multiple of `blocks.size` too.
      valid: true for keys that are not padding.
      scalars: see `AttentionInputs.scalars`.
      interpret: runs on any device, slowly.
    """
    size, count, heads = blocks.size, blocks.random.shape[1], key.shape[1]
    table = _slots(blocks, heads)
    padding = -count % _GROUP
    query = jnp.pad(query, ((0, 0), (0, 0), (0, padding * size), (0, 0)))
    table = jnp.pad(table, ((0, 0), (0, padding), (0, 0)))
    tiling = SparseTiling(size, table.shape[-1], blocks.first, scale, dropout_rate, interpret)
    arrays = {
        "query": query,
        "key": key,
        "value": value,
        "valid": valid.astype(jnp.float32).reshape(len(valid), -1, size),
        "table": table.reshape(-1),
        "scalars": scalars,
    }
    return _attend(tiling, arrays)[:, :, : count * size]


def _slots(blocks: Blocks, heads: int) -> Int[Array, "H Q S"]:
    """The blocks that each block of queries sees, counted from the row's first; -1 is none."""
    count = blocks.random.shape[1]
    of_first = jnp.arange(blocks.first)
    of_last = blocks.first + count + jnp.arange(blocks.last)
    ends = jnp.broadcast_to(jnp.concatenate([of_first, of_last])[None], (count, blocks.first + blocks.last))
    near = jnp.arange(count)[:, None] + jnp.arange(blocks.window)[None] - blocks.window // 2
    near = jnp.where((near >= 0) & (near < count), near + blocks.first, -1)
    alike = jnp.concatenate([ends, near], axis=1)[None]
    drawn = jnp.where(blocks.random >= 0, blocks.random + blocks.first, -1)
    parts = (jnp.broadcast_to(part, (heads, count, part.shape[-1])) for part in (alike, drawn))
    return jnp.concatenate(list(parts), axis=-1).astype(jnp.int32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tiling: SparseTiling, arrays: Arrays) -> Float[Array, "B H _ K"]:
    query = arrays["query"]
    outputs = {"out": jax.ShapeDtypeStruct(query.shape, query.dtype)}
    return _for_every_group(_forward_kernel, tiling, arrays, outputs, products=2)[0]


def _attend_forward(tiling: SparseTiling, arrays: Arrays) -> tuple[Array, Arrays]:
    return _attend(tiling, arrays), arrays


def _attend_backward(tiling: SparseTiling, arrays: Arrays, out_gradient: Array) -> tuple[dict[str, Array | None]]:
    key = arrays["key"]
    wanted = ("query", "key", "value")
    outputs = {f"{name}_gradient": jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in wanted}
    sums = pltpu.VMEM(key.shape[2:], jnp.float32)
    gradients = _for_every_group(
        _backward_kernel,
        tiling,
        arrays | {"out_gradient": out_gradient},
        outputs,
        scratch={"key_sum": sums, "value_sum": sums},
        products=5,
    )
    found = dict(zip(wanted, gradients, strict=True))
    return ({name: found.get(name) for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward)


class _Group:
    """What a kernel computes of one block of queries: the blocks of keys that it sees, and their weights."""

    def __init__(self, tiling: SparseTiling, refs: dict[str, Any], number: int):
        self.tiling, self.refs = tiling, refs
        b, h, t = (pl.program_id(axis) for axis in range(3))
        block, size = t * _GROUP + number, tiling.size
        start = (h * pl.num_programs(2) * _GROUP + block) * tiling.num_slots
        self.indices = [refs["table"][start + slot] for slot in range(tiling.num_slots)]
        self.rows = slice(number * size, (number + 1) * size)
        self._pairs = (refs["scalars"][ROW] + b, refs["scalars"][HEAD] + h)
        self._first_query = refs["scalars"][QUERY] + (tiling.first + block) * size

    def window(self, index: Array) -> Any:
        """Where the keys of a block are in a row."""
        return pl.ds(pl.multiple_of(jnp.maximum(index, 0) * self.tiling.size, self.tiling.size), self.tiling.size)

    def keys(self, name: str) -> Float[Array, "M K"]:
        """The keys or values of all blocks."""
        return jnp.concatenate([self.refs[name][0, 0, self.window(index), :] for index in self.indices], axis=0)

    def weights(self, key: Float[Array, "M K"]) -> Float[Array, "Q M"]:
        """The softmax over all keys."""
        query = self.refs["query"][0, 0, self.rows, :]
        logits = self.tiling.scale * LOG2_E * multiply(query, key, transposed=True)
        seen = [
            jnp.where(index >= 0, self.refs["valid"][0, pl.ds(jnp.maximum(index, 0), 1), :], 0.0)
            for index in self.indices
        ]
        logits = jnp.where(jnp.concatenate(seen, axis=1) > 0.5, logits, MASKED_LOGIT)
        weights = jnp.exp2(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def kept(self) -> Float[Array, "Q M"]:
        """Dropout's factor of each weight."""
        size, rate, scalars = self.tiling.size, self.tiling.dropout_rate, self.refs["scalars"]
        queries = self._first_query + jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)
        within = jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)
        keys = jnp.concatenate([index * size + within for index in self.indices], axis=1)
        kept = keeps((scalars[SEED], scalars[SEED + 1]), *self._pairs, queries, keys, rate)
        return jnp.where(kept, 1.0 / (1.0 - rate), 0.0)


def _forward_kernel(tiling: SparseTiling, refs: dict[str, Any]) -> None:
    for number in range(_GROUP):
        group = _Group(tiling, refs, number)
        weights = group.weights(group.keys("key"))
        if tiling.dropout_rate:
            weights *= group.kept()
        value = group.keys("value")
        refs["out"][0, 0, group.rows, :] = multiply(weights.astype(value.dtype), value).astype(refs["out"].dtype)


def _backward_kernel(tiling: SparseTiling, refs: dict[str, Any]) -> None:
    @pl.when(pl.program_id(2) == 0)
    def begin() -> None:
        for name in ("key_sum", "value_sum"):
            refs[name][...] = jnp.zeros_like(refs[name])

    for number in range(_GROUP):
        group = _Group(tiling, refs, number)
        key, value = group.keys("key"), group.keys("value")
        query, out_gradient = (refs[name][0, 0, group.rows, :] for name in ("query", "out_gradient"))
        weights = used = group.weights(key)
        of_weights = multiply(out_gradient, value, transposed=True)
        if tiling.dropout_rate:
            kept = group.kept()
            used, of_weights = weights * kept, of_weights * kept
        of_value = multiply(used.T.astype(value.dtype), out_gradient)
        of_logits = weights * (of_weights - (of_weights * weights).sum(axis=1, keepdims=True)) * tiling.scale
        of_query = multiply(of_logits.astype(key.dtype), key)
        refs["query_gradient"][0, 0, group.rows, :] = of_query.astype(refs["query_gradient"].dtype)
        of_key = multiply(of_logits.T.astype(query.dtype), query)
        for slot, index in enumerate(group.indices):
            rows = slice(slot * tiling.size, (slot + 1) * tiling.size)
            refs["key_sum"][group.window(index), :] += of_key[rows]
            refs["value_sum"][group.window(index), :] += of_value[rows]

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def end() -> None:
        for name in ("key", "value"):
            gradient = refs[f"{name}_gradient"]
            gradient[0, 0] = refs[f"{name}_sum"][...].astype(gradient.dtype)


def _for_every_group(
    kernel: Any,
    tiling: SparseTiling,
    arrays: Arrays,
    outputs: dict[str, jax.ShapeDtypeStruct],
    *,
    products: int,
    scratch: dict[str, Any] | None = None,
) -> tuple[Array, ...]:
    """The outputs of a kernel that is run for every row, head and group of blocks of queries."""
    scratch = scratch or {}
    batch, heads, length, width = arrays["key"].shape
    rows = _GROUP * tiling.size
    groups = arrays["query"].shape[2] // rows
    of_group = pl.BlockSpec((1, 1, rows, width), lambda b, h, t, *_: (b, h, t, 0))
    # One buffer: a head's are fetched once for all its groups.
    of_head = pl.BlockSpec(
        (1, 1, length, width), lambda b, h, t, *_: (b, h, 0, 0), pipeline_mode=pl.Buffered(buffer_count=1)
    )
    specs = {
        **dict.fromkeys(("query", "out", "out_gradient", "query_gradient"), of_group),
        **dict.fromkeys(("key", "value", "key_gradient", "value_gradient"), of_head),
        "valid": pl.BlockSpec((1, *arrays["valid"].shape[1:]), lambda b, h, t, *_: (b, 0, 0)),
    }
    ahead = ("table", "scalars")
    read = [name for name in arrays if name not in ahead]
    names = [*ahead, *read, *outputs, *scratch]
    steps = batch * heads * groups
    flops = 2 * products * steps * rows * tiling.num_slots * tiling.size * width
    return pl.pallas_call(
        lambda *refs: kernel(tiling, dict(zip(names, refs, strict=True))),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(ahead),
            grid=(batch, heads, groups),
            in_specs=[specs[name] for name in read],
            out_specs=tuple(specs[name] for name in outputs),
            scratch_shapes=list(scratch.values()),
        ),
        out_shape=tuple(outputs.values()),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=_vmem_bytes(length, width, arrays["key"].dtype.itemsize),
        ),
        cost_estimate=pl.CostEstimate(
            flops=flops,
            transcendentals=steps * rows * tiling.num_slots * tiling.size,
            bytes_accessed=sum(array.size * array.dtype.itemsize for array in (*arrays.values(), *outputs.values())),
        ),
        interpret=tiling.interpret,
        name=f"block_sparse_attention{kernel.__name__.removesuffix('_kernel')}",
        metadata={
            "steps": str(steps),
            "blocks": str(batch * heads),
            "alternatives": "0",
            MODEL_FLOPS: str(flops),
        },
    )(*(arrays[name] for name in (*ahead, *read)))
