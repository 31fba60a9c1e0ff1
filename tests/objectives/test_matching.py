"""Against SciPy's assignment: the same sums of costs, and where it is the only best one the same pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from t5x_lite.objectives.matching import assign
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.parallel.mesh import batch_sharding, use_mesh


def costs_of(seed, batch=16, targets=7, queries=9):
    random = np.random.default_rng(seed)
    counts = np.arange(batch) % (targets + 1)
    return random.normal(size=(batch, targets, queries)).astype(np.float32), np.arange(targets) < counts[:, None]


def check(costs, valid, found):
    for one, there, queries in zip(costs, valid, np.asarray(found), strict=True):
        used = queries[queries >= 0]
        assert len(set(used.tolist())) == len(used)
        rows, columns = linear_sum_assignment(one[there])
        np.testing.assert_array_equal(queries[there][rows], columns)


def test_pairs_are_scipys():
    for seed in range(5):
        costs, valid = costs_of(seed)
        check(costs, valid, jax.jit(assign)(costs, valid))


def test_more_targets_than_queries_leave_some_without():
    costs, _ = costs_of(0, 4, 9, 5)
    found = np.asarray(assign(jnp.asarray(costs), jnp.ones((4, 9), bool)))
    for one, queries in zip(costs, found, strict=True):
        rows, columns = linear_sum_assignment(one)
        assert (queries[rows] == columns).all()
        assert sorted(queries.tolist()) == [-1] * 4 + list(range(5))


def test_those_that_there_are_not_have_no_query_before_one_that_there_is():
    costs, _ = costs_of(1, 2, 6, 3)
    valid = np.array([[False, True, False, True, False, True], [False] * 6])
    found = np.asarray(assign(jnp.asarray(costs + 50), jnp.asarray(valid)))
    check(costs, valid, found)
    assert (found[0][valid[0]] >= 0).all()


def test_equal_costs_and_those_that_are_not_finite_end_with_an_assignment():
    costs = np.zeros((3, 4, 6), np.float32)
    costs[1] = np.nan
    costs[2, 0], costs[2, 1, :3] = np.inf, -np.inf
    found = np.asarray(jax.jit(assign)(costs, np.ones((3, 4), bool)))
    for queries in found:
        assert len(set(queries.tolist())) == 4
        assert (queries >= 0).all()


@pytest.mark.parametrize("shape", [MeshShape(8), MeshShape(2, 2, tensor=2)], ids=["data", "all"])
def test_eight_devices_assign_as_one(shape):
    costs, valid = costs_of(2)
    mesh = make_mesh(shape, jax.devices()[:8])
    with use_mesh(mesh):
        found = jax.jit(assign)(*jax.device_put((costs, valid), batch_sharding(mesh)))
    check(costs, valid, found)
