"""The device mesh, one table from logical axes to its axes, and the shardings that follow from it."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, Shaped

from t5x_lite.errors import InputError
from t5x_lite.kernels.platform import forms_torus, has_wired_slices, tpu_slice

MESH_AXES = ("data", "fsdp", "sequence", "tensor")


@dataclass(frozen=True)
class MeshShape:
    """The number of devices along each axis of the mesh; one of them may be -1, all that are left."""

    data: int = -1
    """Copies of the model, each with its share of the batch."""
    fsdp: int = 1
    """Shards of every parameter and of the optimizer's state; these devices share out the batch as well."""
    tensor: int = 1
    """Shards of heads, hidden units and vocabulary within a layer."""
    sequence: int = 1
    """Pieces of a row: each device computes its share of the positions, with the keys and values of all of them."""

    def __post_init__(self) -> None:
        for axis, size in self._sizes.items():
            if size < 1 and size != -1:
                raise InputError(
                    f"mesh.{axis}={size} is not a number of devices; choose 1 or more, or -1 for all that are left"
                )
        if list(self._sizes.values()).count(-1) > 1:
            raise InputError(f"mesh has more than one axis of size -1 in {self._sizes}; give all but one a number")

    @property
    def _sizes(self) -> dict[str, int]:
        return {axis: getattr(self, axis) for axis in MESH_AXES}

    def sizes(self, num_devices: int) -> dict[str, int]:
        """The size of each axis over `num_devices` devices.

        >>> MeshShape(data=-1, fsdp=2).sizes(8)
        {'data': 4, 'fsdp': 2, 'sequence': 1, 'tensor': 1}
        """
        given = math.prod(size for size in self._sizes.values() if size != -1)
        free = [axis for axis, size in self._sizes.items() if size == -1]
        if num_devices % given or (not free and given != num_devices):
            raise InputError(
                f"mesh {' '.join(f'{axis}={size}' for axis, size in self._sizes.items())} does not fill {num_devices} "
                "devices; choose sizes whose product is that number, or -1 for one of them"
            )
        return self._sizes | dict.fromkeys(free, num_devices // given)


def make_mesh(shape: MeshShape, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh of `shape` over `devices` (default: all of all hosts), neighbours in it being neighbours in the pod.

    Where TPUs are several slices, connected by the data centre's network alone, `data` goes across them and every other
    axis stays within one: gradients are added up once a step, parameters and activations are sent in every layer.
    Raises `InputError` where `shape` does not fill the devices, or the slices differ in size or do not divide `data`.
    """
    devices = jax.devices() if devices is None else devices
    sizes = shape.sizes(len(devices))
    slices = Counter(map(tpu_slice, devices))
    if len(slices) > 1:
        arranged = across_slices(sizes, slices, devices)
    else:
        # Physical axes are split where none has the size of a mesh axis (jax.make_mesh refuses that).
        arranged = mesh_utils.create_device_mesh(tuple(sizes.values()), devices, allow_split_physical_axes=True)
    # Under Linen's logical partitioning the compiler propagates shardings (Auto); with JAX's default, Explicit, every
    # operation would have to state its sharding.
    return Mesh(arranged, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def across_slices(sizes: dict[str, int], slices: Counter[int], devices: Sequence[jax.Device]) -> np.ndarray:
    """The devices of several slices as an array with the mesh's axes; `slices` counts the devices of each slice."""
    if len(set(slices.values())) > 1:
        raise InputError(
            f"the slices have {', '.join(map(str, slices.values()))} devices, of which no mesh can be made; "
            "take slices of one size"
        )
    if sizes["data"] % len(slices):
        raise InputError(
            f"mesh.data={sizes['data']} cannot go across {len(slices)} slices; "
            f"choose a multiple of {len(slices)}, the other axes lie within a slice"
        )
    within = sizes | {"data": sizes["data"] // len(slices)}
    across = dict.fromkeys(sizes, 1) | {"data": len(slices)}
    return mesh_utils.create_hybrid_device_mesh(
        tuple(within.values()), tuple(across.values()), devices, allow_split_physical_axes=True
    )


STATISTICS = "statistics"
"""The logical axis of running statistics, and the collection of the next ones: see `layers.convolution.BatchNorm`."""

RULES: dict[str, tuple[str, ...]] = {
    # parameters
    "layers": (),
    "vocab": ("tensor",),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "mlp": ("tensor",),
    "norm": (),
    "positions": (),
    "projected_positions": (),
    "key_value": (),
    "patch_positions": (),
    "patch": (),
    "position_buckets": (),
    "position_heads": ("tensor",),
    "segments": (),
    "hidden": (),
    "classes": (),
    "channels": (),
    "window": (),
    STATISTICS: (),
    # vectors of an index, which every device has a share of
    "passages": ("data", "fsdp", "sequence", "tensor"),
    # activations
    "activation_batch": ("data", "fsdp"),
    "activation_length": ("sequence",),
    # of keys and values, all of which each device with a share of the queries needs
    "activation_memory": (),
    "activation_embed": (),
    "activation_heads": ("tensor",),
    "activation_kv": (),
    "activation_mlp": ("tensor",),
    "activation_vocab": ("tensor",),
}
"""The mesh axes that each logical axis is sharded over; none means that every device holds all of it."""


def num_parts(logical_axis: str, sizes: Mapping[str, int]) -> int:
    """The shards of a logical axis on a mesh with these sizes by axis.

    >>> num_parts("activation_batch", {"data": 4, "fsdp": 2, "sequence": 1, "tensor": 3})
    8
    """
    return math.prod(sizes[axis] for axis in RULES[logical_axis])


def partition_spec(axes: tuple[str | None, ...]) -> PartitionSpec:
    """The mesh axes of each dimension of an array with these logical axes.

    Raises ValueError if two of them would be sharded over the same mesh axis.

    >>> tuple(partition_spec(("layers", "embed", "mlp")))
    (None, 'fsdp', 'tensor')
    """
    used: dict[str, str] = {}
    for axis in filter(None, axes):
        for mesh_axis in RULES[axis]:
            if mesh_axis in used:
                raise ValueError(f"logical axes {used[mesh_axis]!r} and {axis!r} both map to mesh axis {mesh_axis!r}")
            used[mesh_axis] = axis
    return _spec([RULES[axis] if axis else () for axis in axes])


def _spec(entries: Sequence[tuple[str, ...]]) -> PartitionSpec:
    return PartitionSpec(*(entry if len(entry) > 1 else entry[0] if entry else None for entry in entries))


def logical_axes(abstract: Any) -> Any:
    """The tree of logical axes of a tree of `nn.LogicallyPartitioned` leaves (None where unknown)."""

    def axes(leaf: Any) -> tuple[str | None, ...]:
        shape = nn.unbox(leaf).shape
        # An optimizer's placeholders for statistics that it does not keep have fewer dimensions.
        if isinstance(leaf, nn.LogicallyPartitioned) and len(leaf.names) == len(shape):
            return leaf.names
        return (None,) * len(shape)

    return jax.tree.map(axes, abstract, is_leaf=_is_box)


def shardings(mesh: Mesh, abstract: Any, over: Sequence[str] = ("fsdp",)) -> Any:
    """A sharding for each leaf of an abstract tree: by its logical axes, and over each mesh axis of `over` if possible.

    Norms, biases and the factors of an optimizer's moments have no axis that the table shards over `fsdp`. They are
    small, but on a thousand chips they would be as large as a chip's share of the matrices; so their last dimension
    that can be is sharded over it. Raises `InputError` if the mesh axes of a dimension do not divide it.
    """

    def sharding(path: Any, leaf: Any, axes: tuple[str | None, ...]) -> NamedSharding:
        shape = nn.unbox(leaf).shape
        partition_spec(axes)  # raises if two axes were sharded over one mesh axis
        entries = [RULES[axis] if axis else () for axis in axes]
        for axis, size, mesh_axes in zip(axes, shape, entries, strict=True):
            for mesh_axis in mesh_axes:
                if size % mesh.shape[mesh_axis]:
                    raise InputError(
                        f"mesh.{mesh_axis}={mesh.shape[mesh_axis]} does not divide the {size} of axis {axis!r} of "
                        f"{jax.tree_util.keystr(path, simple=True, separator='/')}; choose a divisor of {size}"
                    )
        for mesh_axis in over:
            if any(mesh_axis in entry for entry in entries):
                continue
            for index in reversed(range(len(axes))):
                with_axis = (*entries[index], mesh_axis)
                divides = shape[index] % math.prod(mesh.shape[name] for name in with_axis) == 0
                if axes[index] not in (None, "layers") and divides:
                    entries[index] = with_axis
                    break
        return NamedSharding(mesh, _spec(entries))

    return jax.tree_util.tree_map_with_path(sharding, abstract, logical_axes(abstract), is_leaf=_is_box)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows of a batch over `data` and `fsdp`."""
    return NamedSharding(mesh, partition_spec(("activation_batch",)))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


@contextmanager
def use_mesh(mesh: Mesh) -> Iterator[None]:
    """A context for tracing a function, in which the logical axes of activations mean axes of `mesh`."""
    rules: list[tuple[str, Any]] = []
    for axis, mesh_axes in RULES.items():
        rules.append((axis, tuple(name for name in mesh_axes if mesh.shape[name] > 1) or None))
    # Not an axis of any array: whether `fsdp` goes over all wired chips decides how parameters are gathered. Simulated
    # devices are one slice, GPUs have none.
    devices = mesh.devices.flatten()
    num_slices = len(set(map(tpu_slice, devices)))
    is_whole_slice = has_wired_slices(devices[0]) and num_slices * mesh.shape["fsdp"] == mesh.size
    rules.append(("whole_slice", "fsdp" if is_whole_slice else None))
    rules.append(("whole_torus", "fsdp" if is_whole_slice and forms_torus(devices) else None))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(rules):
        yield


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)


class BatchRows:
    """The rows of global batches that this process reads.

    Those are the rows of its devices, which may not be consecutive or exclusive: a mesh follows the wires of a pod, not
    the order of its hosts, and hosts along `tensor` hold the same rows.

    Args:
      sharding: of the batch.
      batch_size: B, rows of a global batch.
    """

    def __init__(self, sharding: NamedSharding, batch_size: int):
        self._sharding, self._batch_size = sharding, batch_size
        held = sharding.addressable_devices_indices_map((batch_size,)).values()
        self.numbers: Int[np.ndarray, "b"] = np.unique(np.concatenate([np.arange(batch_size)[index] for index in held]))
        """Their indices in the batch, in order."""

    def to_devices(self, values: Any) -> Any:
        """The global batch, arrays [B, ...], from the rows [b, ...] that each process reads."""

        def assemble(values: Shaped[np.ndarray, "b ..."]) -> jax.Array:
            def shard(index: tuple[slice, ...]) -> np.ndarray:
                start, stop, _ = index[0].indices(self._batch_size)
                first = int(np.searchsorted(self.numbers, start))
                return values[(slice(first, first + stop - start), *index[1:])]

            return _make_array((self._batch_size, *values.shape[1:]), self._sharding, shard)

        return jax.tree.map(assemble, values)


def to_devices(tree: Any, shardings: Any) -> Any:
    """Whole arrays of every process, sharded over the devices of all; an array with its sharding already stays."""

    def shard(leaf: Any, sharding: NamedSharding) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        whole = np.asarray(leaf)
        return _make_array(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(shard, tree, shardings)


def _make_array(
    shape: tuple[int, ...], sharding: NamedSharding, shard: Callable[[tuple[slice, ...]], np.ndarray]
) -> jax.Array:
    # Like jax.make_array_from_callback, whose transfers jax.transfer_guard("disallow") refuses as implicit ones.
    indices = sharding.addressable_devices_indices_map(shape)
    arrays = jax.device_put([shard(index) for index in indices.values()], list(indices))
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)
