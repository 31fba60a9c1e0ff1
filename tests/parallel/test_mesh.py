import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape, make_mesh


@pytest.mark.parametrize(
    ("shape", "devices", "sizes"),
    [
        (MeshShape(), 1, (1, 1, 1)),
        (MeshShape(), 8, (8, 1, 1)),
        (MeshShape(2, -1, 2), 8, (2, 2, 2)),
        (MeshShape(1, 4, 2), 8, (1, 4, 2)),
    ],
)
def test_one_axis_takes_what_is_left(shape, devices, sizes):
    assert tuple(shape.sizes(devices).values()) == sizes


@pytest.mark.parametrize(("shape", "devices"), [((3, 1, 1), 8), ((-1, 3, 1), 8), ((2, 2, 1), 8), ((16, 1, 1), 8)])
def test_shapes_that_do_not_fill_the_devices(shape, devices):
    with pytest.raises(InputError, match=f"fsdp={shape[1]} .* does not fill {devices} devices"):
        MeshShape(*shape).sizes(devices)


@pytest.mark.parametrize("shape", [(0, 1, 1), (-2, 1, 1), (-1, -1, 1)])
def test_sizes_that_are_none(shape):
    with pytest.raises(InputError, match="mesh"):
        MeshShape(*shape)


def test_the_mesh_has_the_axes_of_the_table():
    mesh = make_mesh(MeshShape(2, 2, 2))
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert len(set(mesh.devices.flat)) == 8
