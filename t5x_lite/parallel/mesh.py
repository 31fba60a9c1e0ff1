"""The device mesh."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
from jax.sharding import AxisType, Mesh

from t5x_lite.errors import InputError

MESH_AXES = ("data", "fsdp", "tensor")


@dataclass(frozen=True)
class MeshShape:
    """How many devices lie along each axis of the mesh; one of them may be -1, all that are left."""

    data: int = -1
    """Copies of the model, each with its share of the batch."""
    fsdp: int = 1
    """Shards of every parameter and of the optimizer's state; these devices share out the batch as well."""
    tensor: int = 1
    """Shards of heads, hidden units and vocabulary within a layer."""

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
        {'data': 4, 'fsdp': 2, 'tensor': 1}
        """
        sizes = {axis: getattr(self, axis) for axis in MESH_AXES}
        given = 1
        for size in sizes.values():
            given *= size if size != -1 else 1
        free = [axis for axis, size in sizes.items() if size == -1]
        if num_devices % given or (not free and given != num_devices):
            raise InputError(
                f"mesh data={self.data} fsdp={self.fsdp} tensor={self.tensor} does not fill {num_devices} devices; "
                "choose sizes whose product is that number, or -1 for one of them"
            )
        return sizes | dict.fromkeys(free, num_devices // given)


def make_mesh(shape: MeshShape, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh of `shape` over `devices` (default: all of all hosts)."""
    devices = jax.devices() if devices is None else devices
    sizes = shape.sizes(len(devices))
    # jax.make_mesh gives Explicit axes by default, in which every operation states its sharding; Linen's logical
    # partitioning wants the compiler to work it out, which is what Auto says.
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes), devices=devices)
