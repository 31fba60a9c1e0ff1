"""The rows that a process reads, and their shards on the devices."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, replicated
from t5x_lite.parallel.mesh import BatchRows, to_devices


@pytest.fixture
def rows() -> np.ndarray:
    return np.arange(16 * 3, dtype=np.int32).reshape(16, 3)


@pytest.mark.parametrize("shape", [MeshShape(8), MeshShape(2, 2, 2), MeshShape(1, 4, 2), MeshShape(1, 1, 8)])
def test_one_process_reads_all_rows(rows, shape):
    here = BatchRows(batch_sharding(make_mesh(shape)), 16)
    assert here.numbers.tolist() == list(range(16))
    with jax.transfer_guard("disallow"):
        actual = here.to_devices(rows)
    np.testing.assert_array_equal(actual, rows)
    assert actual.sharding == batch_sharding(make_mesh(shape))


def of_process(devices: np.ndarray, local: list[int]) -> BatchRows:
    """The rows of a process that has only some devices of a mesh."""
    sharding = batch_sharding(Mesh(devices, ("data", "fsdp", "tensor")))
    held = sharding.addressable_devices_indices_map((16,))
    part = {device: index for device, index in held.items() if device.id in local}
    return BatchRows(SimpleNamespace(addressable_devices_indices_map=lambda shape: part), 16)


def test_a_mesh_that_follows_the_wires(rows):
    """Four hosts of two chips in a square: neighbours on the mesh are on different hosts."""
    devices = np.array(jax.devices()).reshape(4, 2).T.reshape(8, 1, 1)  # 0 2 4 6 1 3 5 7
    rows_of = [of_process(devices, [2 * host, 2 * host + 1]).numbers.tolist() for host in range(4)]
    assert rows_of[0] == [0, 1, 8, 9]
    assert rows_of[1] == [2, 3, 10, 11]
    assert sorted(np.concatenate(rows_of).tolist()) == list(range(16))


def test_hosts_along_tensor_read_the_same_rows():
    devices = np.array(jax.devices()).reshape(2, 1, 4)
    rows_of = [of_process(devices, [2 * host, 2 * host + 1]).numbers.tolist() for host in range(4)]
    assert rows_of[0] == rows_of[1] == list(range(8))
    assert rows_of[2] == rows_of[3] == list(range(8, 16))


def test_whole_arrays_are_sharded_and_sharded_ones_stay(rows):
    mesh = make_mesh(MeshShape(2, 2, 2))
    there = jax.device_put(rows[0], replicated(mesh))
    actual = to_devices({"a": rows, "b": there}, {"a": batch_sharding(mesh), "b": replicated(mesh)})
    np.testing.assert_array_equal(actual["a"], rows)
    assert actual["a"].sharding == batch_sharding(mesh)
    assert actual["b"] is there
    assert int(to_devices(np.int32(7), replicated(mesh))) == 7
