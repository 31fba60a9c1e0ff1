"""The device mesh."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from t5x_lite.errors import InputError
from t5x_lite.kernels.platform import tpu_slice

MESH_AXES = ("data", "fsdp", "sequence", "tensor")


@dataclass(frozen=True)
class MeshShape:
    """How many devices lie along each axis of the mesh; one of them may be -1, all that are left."""

    data: int = -1
    """Copies of the model, each with its share of the batch."""
    fsdp: int = 1
    """Shards of every parameter and of the optimizer's state; these devices share out the batch as well."""
    tensor: int = 1
    """Shards of heads, hidden units and vocabulary within a layer."""
    sequence: int = 1
    """Pieces of a row: each device computes its share of the positions, with the keys and values of all of them."""

    def __post_init__(self) -> None:
        sizes = {axis: getattr(self, axis) for axis in MESH_AXES}
        for axis, size in sizes.items():
            if size < 1 and size != -1:
                raise InputError(
                    f"mesh.{axis}={size} is no number of devices; choose 1 or more, or -1 for all that are left"
                )
        if sum(size == -1 for size in sizes.values()) > 1:
            raise InputError(f"mesh has more than one axis of size -1 in {sizes}; give all but one a number")

    def sizes(self, num_devices: int) -> dict[str, int]:
        """The size of each axis over `num_devices` devices.

        >>> MeshShape(data=-1, fsdp=2).sizes(8)
        {'data': 4, 'fsdp': 2, 'sequence': 1, 'tensor': 1}
        """
        sizes = {axis: getattr(self, axis) for axis in MESH_AXES}
        spelled, given = " ".join(f"{axis}={size}" for axis, size in sizes.items()), 1
        for size in sizes.values():
            given *= size if size != -1 else 1
        free = [axis for axis, size in sizes.items() if size == -1]
        if num_devices % given or (not free and given != num_devices):
            raise InputError(
                f"mesh {spelled} does not fill {num_devices} devices; "
                "choose sizes whose product is that number, or -1 for one of them"
            )
        return sizes | dict.fromkeys(free, num_devices // given)


def make_mesh(shape: MeshShape, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh of `shape` over `devices` (default: all of all hosts), neighbours in it being neighbours in the pod.

    Where TPUs are several slices, which only the data centre's network joins, `data` goes across them and every other
    axis stays within one: gradients are added up once a step, parameters and activations travel in every layer. Raises
    `InputError` where `shape` does not fill the devices, or the slices are unlike or do not divide `data`.
    """
    devices = jax.devices() if devices is None else devices
    sizes = shape.sizes(len(devices))
    slices = Counter(map(tpu_slice, devices))
    # An axis may take a part of a row of chips where no whole one has its size (jax.make_mesh refuses that).
    arranged = (
        across_slices(sizes, slices, devices)
        if len(slices) > 1
        else mesh_utils.create_device_mesh(tuple(sizes.values()), devices, allow_split_physical_axes=True)
    )
    # Explicit axes, in which every operation states its sharding, are not what Linen's logical partitioning wants: the
    # compiler is to work it out, which is what Auto says.
    return Mesh(arranged, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def across_slices(sizes: dict[str, int], slices: Counter[int], devices: Sequence[jax.Device]) -> np.ndarray:
    """The devices of several slices, how many of which `slices` says by number, as an array with the mesh's axes."""
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
