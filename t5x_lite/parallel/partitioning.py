"""How arrays lie on the devices while they are used, in logical axes; where no mesh is in use, all of this is nothing.

What an axis means is said by the rules of whoever traces the function (`t5x_lite.parallel.use_mesh`).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Shaped


def constrain_sharding(x: Array, *axes: str | None) -> Array:
    """`x` with each dimension cut along its logical axis, if its devices divide it.

    The compiler would pad the others, which gave a wrong gradient of a table whose rows are cut too (jax 0.10.2, six
    targets on four devices: row 0, that of the padding, was off by 77 %).
    """

    cut = (axis if axis and _dividing(axis, size) else None for axis, size in zip(axes, x.shape, strict=True))
    return nn.with_logical_constraint(x, tuple(cut))


def is_sharded(axis: str) -> bool:
    """Whether the devices share out a dimension with this logical axis."""
    return bool(_mesh_axes(axis))


def all_gather_fsdp(parameter: Float[Array, "*_"], axes: tuple[str, ...], dtype: Any) -> Float[Array, "*_"]:
    """A parameter as it is used: in `dtype`, and brought together along the axis `embed`.

    Devices that share out a matrix along `embed` share out the batch too, so each needs the whole of it for its rows.
    Said here, because the compiler may find it less to send the activations around.
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
    cut_inside: bool = False,
    cut_outside: bool = False,
) -> Array:
    """`function(all_gather_fsdp(parameter), x, ())`, each device doing it for the rows that it has.

    Written out where `embed` is cut, so that gradients are added up and cut in one (reduce-scatter), and each device
    gets the share that it has of the parameter. Left to itself the compiler adds up all of it, everywhere.

    Args:
      function: of a parameter, any rows, and the axes of the mesh, if any, that the parameter's axis beside `embed` is
        cut along: the function has a part of that axis then. What it gives begins as x does.
      parameter: with the logical axes `axes`, used in `dtype`.
      x: begins with the batch, and if it `has_length` the positions.
      cut_inside: x ends with the parameter's other axis.
      cut_outside: what the function gives does.
    """
    gathered, batch = _mesh_axes("embed") if "embed" in axes else (), _mesh_axes("activation_batch")
    if not gathered or not set(gathered) <= set(batch) or x.shape[0] % _num_devices(batch):
        return function(all_gather_fsdp(parameter, axes, dtype), x, ())
    length = _mesh_axes("activation_length") if has_length else ()
    if length and x.shape[1] % _num_devices(length):
        length = ()
    index = axes.index("embed")
    cut = _mesh_axes(axes[1 - index])
    entries = [gathered, cut] if index == 0 else [cut, gathered]
    rows = (batch, length) if has_length else (batch,)

    def own_rows(share: Array, x: Array) -> Array:
        # Added up over the other copies once it is cut, not before.
        copies = tuple(name for name in (*batch, *length) if name not in gathered)
        share = jax.lax.pcast(share.astype(dtype), copies, to="varying")
        return function(_all_gather_fsdp(share, gathered, index), x, cut)

    return jax.shard_map(
        own_rows,
        in_specs=(PartitionSpec(*entries), PartitionSpec(*rows, *((cut,) if cut_inside else ()))),
        out_specs=PartitionSpec(*rows, *((cut,) if cut_outside else ())),
        axis_names={*batch, *length, *cut},
    )(parameter, x)


def add_up_own_tokens(
    function: Callable[[tuple[Array, ...], Array, Array | None, tuple[str, ...]], Any],
    tokens: tuple[Shaped[Array, "B L *_"], ...],
    matrix: Float[Array, "_ _"],
    bias: Float[Array, "_"] | None,
    *,
    axes: tuple[str, str],
    dtype: Any,
) -> Any:
    """`function(tokens, all_gather_fsdp(matrix), bias, ())`, which gives sums over tokens, each device its own.

    Written out where the devices share out anything of it, so that a device folds and cuts the tokens it has as it
    likes. What a gradient to the matrix is, is added up and cut once, as in `fsdp_apply`.

    Args:
      function: of tokens, matrix, bias, and the axes of the mesh, if any, that `axes[...]` beside `embed` is cut along:
        the function has parts of matrix and bias then, and adds up over these axes what it needs of the others.
      tokens: each begins with the batch and the positions.
      matrix: with the logical axes `axes`, one of which is `embed`. The function has it as it is, or in `dtype` where
        it was brought together.
      bias: along the other axis of the matrix.
    """
    index = axes.index("embed")
    batch = _dividing("activation_batch", tokens[0].shape[0])
    length = _dividing("activation_length", tokens[0].shape[1])
    gathered, cut = (_dividing(axes[i], matrix.shape[i]) for i in (index, 1 - index))
    if not set(gathered) <= set(batch):
        gathered = ()
    if not gathered:
        matrix = all_gather_fsdp(matrix, axes, matrix.dtype)
    if not (*batch, *length, *cut):
        return function(tokens, matrix, bias, ())
    entries = [gathered, cut] if index == 0 else [cut, gathered]

    def own_sums(tokens: tuple[Array, ...], share: Array, bias: Array | None) -> Any:
        copies = tuple(name for name in (*batch, *length) if name not in gathered)
        share = jax.lax.pcast(share.astype(dtype) if gathered else share, copies, to="varying")
        share = _all_gather_fsdp(share, gathered, index) if gathered else share
        if bias is not None:
            bias = jax.lax.pcast(bias, (*batch, *length), to="varying")
        sums = function(tokens, share, bias, cut)
        return jax.lax.psum(sums, (*batch, *length)) if batch or length else sums

    return jax.shard_map(
        own_sums,
        in_specs=(PartitionSpec(batch, length), PartitionSpec(*entries), PartitionSpec(cut)),
        out_specs=PartitionSpec(),
    )(tokens, matrix, bias)


def all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """Whether the backward pass need not do this again: all but the bringing together of parameters.

    A policy of `jax.checkpoint`. A stack would else hold the whole parameters of all its layers at once.
    """
    return primitive.name != "all_gather"


def on_each_device(
    function: Callable[[dict[str, Array], dict[str, Any]], Array],
    arrays: dict[str, Array],
    axes: dict[str, tuple[str | None, ...]],
    out_axes: tuple[str | None, ...],
) -> Array:
    """`function(arrays, before)` of each device's part of the arrays, for what the compiler cannot cut by itself.

    Args:
      function: also given by logical axis how much of it stands before the device's part; 0 where it is not cut.
      axes: of each array its logical axes, those that are cut in all of them alike or not at all.
      out_axes: of what the function gives, each one of an array.
    """
    sizes: dict[str, list[int]] = {}
    for name, array in arrays.items():
        for axis, size in zip(axes[name], array.shape, strict=True):
            if axis is not None:
                sizes.setdefault(axis, []).append(size)
    mesh_axes = {axis: _mesh_axes(axis) for axis in sizes}
    cut = {
        axis: names
        for axis, names in mesh_axes.items()
        if names and all(size % _num_devices(names) == 0 for size in sizes[axis])
    }
    if jax.sharding.get_abstract_mesh().size <= 1:
        return function(arrays, dict.fromkeys(sizes, 0))

    def spec(axes: tuple[str | None, ...]) -> PartitionSpec:
        return PartitionSpec(*(cut.get(axis) for axis in axes))

    def own_part(arrays: dict[str, Array]) -> Array:
        before = {
            axis: jax.lax.axis_index(cut[axis]) * (of[0] // _num_devices(cut[axis])) if axis in cut else 0
            for axis, of in sizes.items()
        }
        return function(arrays, before)

    # Unchecked, as a kernel does not say which devices its results differ on.
    specs = {name: spec(axes[name]) for name in arrays}
    return jax.shard_map(own_part, in_specs=(specs,), out_specs=spec(out_axes), check_vma=False)(arrays)


def _all_gather_fsdp(share: Array, mesh_axes: tuple[str, ...], index: int) -> Array:
    """All shares of a parameter that is cut along dimension `index`.

    Of a whole slice in two stages, first by pairs of neighbours and then of one in each pair. At once, the TPU compiler
    (libtpu 0.0.42.1) would add up arrays of the full size, here or for the gradient: up to twice as much to send. Of a
    square of four chips it does not. Bytes and links speak for this as the faster way; no TPU has timed it.
    """
    size = _num_devices(mesh_axes)
    if size <= 4 or size % 2 or mesh_axes != _mesh_axes("whole_slice"):
        return jax.lax.all_gather(share, mesh_axes, axis=index, tiled=True)
    pairs = np.arange(size).reshape(-1, 2)
    for groups in (pairs, pairs.T):
        share = jax.lax.all_gather(share, mesh_axes, axis=index, axis_index_groups=groups.tolist(), tiled=True)
    return share


def _mesh_axes(axis: str) -> tuple[str, ...]:
    """The axes of the mesh in use that a logical one is cut along."""
    (found,) = nn.logical_to_mesh_axes((axis,))
    return () if found is None else (found,) if isinstance(found, str) else tuple(found)


def _dividing(axis: str, size: int) -> tuple[str, ...]:
    """The same for a dimension of some size: none where its devices do not divide it."""
    mesh_axes = _mesh_axes(axis)
    return () if size % _num_devices(mesh_axes) else mesh_axes


def _num_devices(mesh_axes: tuple[str, ...]) -> int:
    shape = jax.sharding.get_abstract_mesh().shape
    return math.prod(shape[name] for name in mesh_axes)
