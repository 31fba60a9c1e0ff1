"""The sharding of arrays inside a traced function, in logical axes; without a mesh these functions change nothing.

`t5x_lite.parallel.use_mesh` maps the logical axes to those of a mesh.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Shaped

from t5x_lite.kernels.platform import multiplies_tensors


def constrain_sharding(x: Array, *axes: str | None) -> Array:
    """`x` with each dimension sharded along its logical axis, if the devices divide it.

    The compiler would pad the others, which gave a wrong gradient of a table whose rows are sharded too (jax 0.10.2,
    six targets on four devices: row 0, that of the padding, was off by 77 %).
    """
    sharded = (axis if axis and _dividing(axis, size) else None for axis, size in zip(axes, x.shape, strict=True))
    return nn.with_logical_constraint(x, tuple(sharded))


def is_sharded(axis: str) -> bool:
    """Whether a dimension with this logical axis is sharded."""
    return bool(_mesh_axes(axis))


def all_gather_fsdp(parameter: Float[Array, "*_"], axes: tuple[str, ...], dtype: Any) -> Float[Array, "*_"]:
    """A parameter as it is used: in `dtype`, and gathered along the axis `embed`.

    Devices that shard a matrix along `embed` shard the batch too, so each needs the whole matrix for its rows. Without
    this constraint the compiler may send the activations instead.
    """
    return constrain_sharding(parameter.astype(dtype), *(None if axis == "embed" else axis for axis in axes))


def fsdp_apply(
    function: Callable[[Array, Array, tuple[str, ...]], Array],
    parameter: Float[Array, "_ _"],
    x: Array,
    *,
    axes: tuple[str, str],
    dtype: Any,
    has_length: bool,
    head_dim: int | None = None,
    cut_inside: bool = False,
    cut_outside: bool = False,
) -> Array:
    """`function(all_gather_fsdp(parameter), x, ())`, each device for its rows.

    A `shard_map` where `embed` is sharded, so that gradients are summed and sharded in one (reduce-scatter), and each
    device receives its shard alone. The compiler by itself sums all of the gradient on every device.

    Args:
      function: of a parameter, any rows, and the mesh axes, if any, that shard the parameter's other axis beside
        `embed`: the function has a shard of that axis then. Its result begins with the dimensions of x.
      parameter: with the logical axes `axes`, used in `dtype`.
      x: begins with the batch, and if it `has_length` the positions.
      head_dim: where it is given, the function has the parameter's other axis as two, heads of this size. A device
        splits its shard before it is gathered: of a matrix that is split afterwards, the TPU compiler (libtpu
        0.0.42.1) sums some gradients on every device.
      cut_inside: whether x ends with the parameter's other axis.
      cut_outside: whether the result does.
    """
    gathered, batch = _mesh_axes("embed") if "embed" in axes else (), _mesh_axes("activation_batch")
    index = axes.index("embed") if "embed" in axes else 0

    def split(matrix: Array) -> Array:
        return matrix if head_dim is None else with_heads(matrix, head_dim, 1 - index)

    if not gathered or not set(gathered) <= set(batch) or x.shape[0] % _num_devices(batch):
        return function(split(all_gather_fsdp(parameter, axes, dtype)), x, ())
    length = _dividing("activation_length", x.shape[1]) if has_length else ()
    other = _mesh_axes(axes[1 - index])
    entries = [gathered, other] if index == 0 else [other, gathered]
    rows = (batch, length) if has_length else (batch,)

    def on_device(shard: Array, x: Array) -> Array:
        # Gradients are summed over the other copies once they are sharded, not before.
        copies = tuple(name for name in (*batch, *length) if name not in gathered)
        shard = split(jax.lax.pcast(shard.astype(dtype), copies, to="varying"))
        return function(_all_gather(shard, gathered, 0 if index == 0 else shard.ndim - 1), x, other)

    return jax.shard_map(
        on_device,
        in_specs=(PartitionSpec(*entries), PartitionSpec(*rows, *((other,) if cut_inside else ()))),
        out_specs=PartitionSpec(*rows, *((other,) if cut_outside else ())),
        axis_names={*batch, *length, *other},
    )(parameter, x)


def with_heads(matrix: Float[Array, "_ _"], head_dim: int, axis: int) -> Float[Array, "_ _ _"]:
    """A matrix with one of its axes, 0 or 1, as two: heads and `head_dim`."""
    shape = list(matrix.shape)
    shape[axis : axis + 1] = [-1, head_dim]
    return matrix.reshape(shape)


def splits_heads(matrix: Float[Array, "_ _"], axes: tuple[str, str], head_dim: int) -> bool:
    """Whether a product has heads and `head_dim` as two dimensions, rather than the result of a plain one.

    Where parameters are sharded, if each device has whole heads; else where the platform gains by it. A TPU pads heads
    of 64 to 128 then, which takes more memory, and less time all the same: ELECTRA large on v5e:8x8 is expected to take
    649 ms and 11.0 GiB of a chip, with plain products 704 ms and 8.7 GiB.
    """
    num_heads = matrix.shape[axes.index("heads")] // head_dim
    whole = num_heads % _num_devices(_mesh_axes("heads")) == 0
    return whole and (is_sharded("embed") or multiplies_tensors())


def sum_over_tokens(
    function: Callable[[tuple[Array, ...], Array, Array | None, tuple[str, ...]], Any],
    tokens: tuple[Shaped[Array, "B L *_"], ...],
    matrix: Float[Array, "_ _"],
    bias: Float[Array, "_"] | None,
    *,
    axes: tuple[str, str],
    dtype: Any,
) -> Any:
    """`function(tokens, all_gather_fsdp(matrix), bias, ())`, which returns sums over tokens; each device sums some.

    A `shard_map` where any argument is sharded, so that a device can reshape and chunk its tokens freely. The gradient
    of the matrix is summed and sharded once, as in `fsdp_apply`.

    Args:
      function: of tokens, matrix, bias, and the mesh axes, if any, that shard the matrix's other axis beside `embed`:
        the function has shards of matrix and bias then, and sums over these axes what it needs of the others.
      tokens: each begins with the batch and the positions.
      matrix: with the logical axes `axes`, one of which is `embed`; it reaches the function in its type, or in `dtype`
        where it is gathered.
      bias: along the other axis of the matrix.
    """
    index = axes.index("embed")
    batch = _dividing("activation_batch", tokens[0].shape[0])
    length = _dividing("activation_length", tokens[0].shape[1])
    gathered, other = (_dividing(axes[i], matrix.shape[i]) for i in (index, 1 - index))
    if not set(gathered) <= set(batch):
        gathered = ()
    if not gathered:
        matrix = all_gather_fsdp(matrix, axes, matrix.dtype)
    if not (*batch, *length, *other):
        return function(tokens, matrix, bias, ())
    entries = [gathered, other] if index == 0 else [other, gathered]

    def on_device(tokens: tuple[Array, ...], shard: Array, bias: Array | None) -> Any:
        copies = tuple(name for name in (*batch, *length) if name not in gathered)
        shard = jax.lax.pcast(shard.astype(dtype) if gathered else shard, copies, to="varying")
        shard = _all_gather(shard, gathered, index) if gathered else shard
        if bias is not None:
            bias = jax.lax.pcast(bias, (*batch, *length), to="varying")
        sums = function(tokens, shard, bias, other)
        return jax.lax.psum(sums, (*batch, *length)) if batch or length else sums

    return jax.shard_map(
        on_device,
        in_specs=(PartitionSpec(batch, length), PartitionSpec(*entries), PartitionSpec(other)),
        out_specs=PartitionSpec(),
    )(tokens, matrix, bias)


def sum_over_pairs(
    function: Callable[[tuple[Array, ...], tuple[Array, ...], Any, Array | int], Any],
    rows: tuple[Shaped[Array, "B *_"], ...],
    others: tuple[Shaped[Array, "B *_"], ...],
    shared: Any,
) -> Any:
    """`function(rows, others, shared, 0)`, which returns sums over rows of what it makes of each row and all others.

    A `shard_map` where the batch is sharded: each device has its rows and gathers the others, whose gradients are
    summed and sharded in one (reduce-scatter). The compiler by itself may gather what comes of all pairs.

    Args:
      function: of some of the rows, all others, what is shared, and the index of the first row.
      shared: arrays that each device has whole.
    """
    batch = _dividing("activation_batch", len(rows[0]))
    if not batch:
        return function(rows, others, shared, 0)

    def on_device(rows: tuple[Array, ...], shards: tuple[Array, ...], shared: Any) -> Any:
        first = jax.lax.axis_index(batch) * len(rows[0])
        others = tuple(_all_gather(shard, batch, 0) for shard in shards)
        return jax.lax.psum(function(rows, others, shared, first), batch)

    specs = (PartitionSpec(batch), PartitionSpec(batch), PartitionSpec())
    return jax.shard_map(on_device, in_specs=specs, out_specs=PartitionSpec())(rows, others, shared)


@jax.custom_vjp
def gradients_together(x: Array, parameter: Array) -> tuple[Array, Array]:
    """Both as they are; in the backward pass nothing reads the gradient of x before that of the parameter is there.

    A compiler may otherwise leave the parameter's gradient unsummed, whole and in float32, until all of the backward
    pass is done, as the TPU compiler (libtpu 0.0.42.1) does with that of a vocabulary's kernel.
    """
    return x, parameter


gradients_together.defvjp(
    lambda x, parameter: ((x, parameter), None), lambda _, gradients: jax.lax.optimization_barrier(gradients)
)


def all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """A policy of `jax.checkpoint` that saves everything but gathered parameters.

    Otherwise a stack would hold the whole parameters of all its layers at once.
    """
    return primitive.name != "all_gather"


def on_each_device(
    function: Callable[[dict[str, Array], dict[str, Any]], Any],
    arrays: dict[str, Array],
    axes: dict[str, tuple[str | None, ...]],
    out_axes: tuple[str | None, ...],
) -> Any:
    """`function(arrays, offsets)` of each device's shards, for kernels that the compiler cannot shard by itself.

    Args:
      function: its `offsets` are the index, by logical axis, at which the device's shard begins; 0 where it is whole.
      axes: the logical axes of each array; an axis is sharded in all of them alike or not at all.
      out_axes: those of the result, or of each array of it; each is one of an array's.
    """
    sizes: dict[str, list[int]] = {}
    for name, array in arrays.items():
        for axis, size in zip(axes[name], array.shape, strict=True):
            if axis is not None:
                sizes.setdefault(axis, []).append(size)
    if jax.sharding.get_abstract_mesh().size <= 1:
        return function(arrays, dict.fromkeys(sizes, 0))
    sharded = {axis: _mesh_axes(axis) for axis in sizes if all(_dividing(axis, size) for size in sizes[axis])}

    def spec(axes: tuple[str | None, ...]) -> PartitionSpec:
        return PartitionSpec(*(sharded.get(axis) for axis in axes))

    def on_device(arrays: dict[str, Array]) -> Any:
        offsets: dict[str, Any] = dict.fromkeys(sizes, 0)
        for axis, names in sharded.items():
            offsets[axis] = jax.lax.axis_index(names) * (sizes[axis][0] // _num_devices(names))
        return function(arrays, offsets)

    # Unchecked, as a kernel does not declare the devices that its results differ on.
    specs = {name: spec(axes[name]) for name in arrays}
    return jax.shard_map(on_device, in_specs=(specs,), out_specs=spec(out_axes), check_vma=False)(arrays)


def _all_gather(shard: Array, mesh_axes: tuple[str, ...], index: int) -> Array:
    """A parameter from its shards along dimension `index`.

    Over a whole slice the TPU compiler (libtpu 0.0.42.1) sums arrays of the full size instead, for the gradient and, on
    a slice that is not a torus, here: up to twice as many bytes to send. In two stages, first pairs of neighbours and
    then one of each pair, it does not; nor on a square of four chips. No TPU has timed them.
    """
    size = _num_devices(mesh_axes)

    def plain(shard: Array) -> Array:
        return jax.lax.all_gather(shard, mesh_axes, axis=index, tiled=True)

    def in_two_stages(shard: Array) -> Array:
        pairs = np.arange(size).reshape(-1, 2)
        for groups in (pairs, pairs.T):
            shard = jax.lax.all_gather(shard, mesh_axes, axis=index, axis_index_groups=groups.tolist(), tiled=True)
        return shard

    if size <= 4 or size % 2 or mesh_axes != _mesh_axes("whole_slice"):
        return plain(shard)
    if mesh_axes != _mesh_axes("whole_torus"):
        return in_two_stages(shard)
    gather = jax.custom_vjp(plain)
    gather.defvjp(
        lambda shard: (plain(shard), shard), lambda shard, gradient: jax.vjp(in_two_stages, shard)[1](gradient)
    )
    return gather(shard)


def _mesh_axes(axis: str) -> tuple[str, ...]:
    """The axes of the current mesh that shard a logical one."""
    (names,) = nn.logical_to_mesh_axes((axis,))
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _dividing(axis: str, size: int) -> tuple[str, ...]:
    """As `_mesh_axes`; none where their devices do not divide `size`."""
    mesh_axes = _mesh_axes(axis)
    return () if size % _num_devices(mesh_axes) else mesh_axes


def _num_devices(mesh_axes: tuple[str, ...]) -> int:
    shape = jax.sharding.get_abstract_mesh().shape
    return math.prod(shape[name] for name in mesh_axes)
