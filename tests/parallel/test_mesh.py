from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.parallel.mesh import across_slices


@pytest.mark.parametrize(
    ("shape", "devices", "sizes"),
    [
        (MeshShape(), 1, (1, 1, 1, 1)),
        (MeshShape(), 8, (8, 1, 1, 1)),
        (MeshShape(2, -1, 2), 8, (2, 2, 1, 2)),
        (MeshShape(1, 4, 1, 2), 8, (1, 4, 2, 1)),
        (MeshShape(sequence=2, tensor=2), 8, (2, 1, 2, 2)),
    ],
)
def test_one_axis_takes_all_that_are_left(shape, devices, sizes):
    assert tuple(shape.sizes(devices).values()) == sizes


@pytest.mark.parametrize(
    ("shape", "devices"), [((3, 1, 1, 1), 8), ((-1, 3, 1, 1), 8), ((2, 2, 1, 1), 8), ((16, 1, 1, 1), 8)]
)
def test_shapes_that_do_not_fill_the_devices(shape, devices):
    sizes = "mesh data={} fsdp={} sequence={} tensor={} does not fill".format(*shape)
    with pytest.raises(InputError, match=f"{sizes} {devices} devices"):
        MeshShape(*shape).sizes(devices)


@pytest.mark.parametrize("shape", [(0, 1, 1), (-2, 1, 1), (1, 1, 0), (-1, -1, 1), (1, 1, -1, -1)])
def test_invalid_sizes(shape):
    with pytest.raises(InputError, match="mesh"):
        MeshShape(*shape)


def test_the_mesh_has_the_axes_of_the_table():
    mesh = make_mesh(MeshShape(1, 2, 2, 2))
    assert dict(mesh.shape) == {"data": 1, "fsdp": 2, "sequence": 2, "tensor": 2}
    assert len(set(mesh.devices.flat)) == 8


def chips(*slices):
    """Stand-ins for the chips of TPU slices, each of 2x2xN."""
    return [
        SimpleNamespace(
            id=(number, x, y, z),
            platform="tpu",
            device_kind="TPU v4",
            process_index=0,
            slice_index=number,
            coords=(x, y, z),
            core_on_chip=0,
        )
        for number, length in enumerate(slices)
        for z in range(length)
        for y in range(2)
        for x in range(2)
    ]


def arrange(shape, *slices):
    devices = chips(*slices)
    return across_slices(shape.sizes(len(devices)), Counter(chip.slice_index for chip in devices), devices)


@pytest.mark.parametrize("shape", [MeshShape(4, 2, 2, 1), MeshShape(2, 8), MeshShape(2, 1, 2, 4), MeshShape(16)])
def test_data_goes_across_slices_and_all_else_stays_within_one(shape):
    mesh = arrange(shape, 2, 2)
    assert mesh.shape == tuple(shape.sizes(16).values())
    numbers = np.vectorize(lambda chip: chip.slice_index)(mesh)
    half = shape.data // 2
    assert (numbers[:half] == 0).all()
    assert (numbers[half:] == 1).all()
    assert len({chip.id for chip in mesh.flat}) == 16


def test_slices_that_do_not_divide_data():
    with pytest.raises(InputError, match=r"mesh.data=3 cannot go across 2 slices; choose a multiple of 2"):
        arrange(MeshShape(3, -1), 3, 3)
    with pytest.raises(InputError, match=r"mesh.data=1 cannot go across 2 slices"):
        arrange(MeshShape(1, -1), 2, 2)


def test_slices_of_different_sizes():
    with pytest.raises(InputError, match="the slices have 8, 4 devices"):
        arrange(MeshShape(-1), 2, 1)
