"""Parameters as they are used on a mesh: what each device computes, and what is sent."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from t5x_lite.layers.dense import embedding_lookup, multiply
from t5x_lite.parallel import MeshShape, make_mesh, use_mesh
from t5x_lite.parallel.partitioning import all_but_gathered

B, L, D, F = 8, 4, 16, 24
RANDOM = np.random.default_rng(0)
MATRIX = jnp.asarray(RANDOM.normal(size=(D, F)), jnp.float32)
TABLE = jnp.asarray(RANDOM.normal(size=(F, D)), jnp.float32)
ROWS = {
    "positions": jnp.asarray(RANDOM.normal(size=(B, L, D)), jnp.float32),
    "rows": jnp.asarray(RANDOM.normal(size=(B, D)), jnp.float32),
    "too few rows for all devices": jnp.asarray(RANDOM.normal(size=(3, L, D)), jnp.float32),
    "positions that cannot be sharded": jnp.asarray(RANDOM.normal(size=(B, 3, D)), jnp.float32),
}
IDS = jnp.asarray(RANDOM.integers(0, F, (B, L)), jnp.int32)


def on(shape, function, *arguments):
    """Value and gradients on a mesh of eight devices, and the program."""
    mesh = make_mesh(shape)

    def traced(*arguments):
        with use_mesh(mesh):
            return jnp.sin(function(*arguments)).sum()

    parameter = NamedSharding(mesh, P("fsdp"))
    step = jax.jit(jax.value_and_grad(traced), in_shardings=(parameter, None), out_shardings=(None, parameter))
    compiled = step.lower(*arguments).compile()
    return compiled(*arguments), compiled.as_text()


def sent(text, kind):
    """The shapes that collectives of a kind give, in the order of the program."""
    return [shape for line in text.splitlines() for shape in re.findall(rf" = (f32\[[\d,]+\]).* {kind}\(", line)]


@pytest.mark.parametrize(
    "shape", [MeshShape(1, 8), MeshShape(2, 2, 2), MeshShape(1, 2, 2, 2), MeshShape(1, 4, 1, 2)], ids=str
)
@pytest.mark.parametrize("rows", ROWS)
def test_a_product_on_a_mesh_is_the_product(shape, rows):
    def product(matrix, x):
        return multiply(x, matrix, ("embed", "mlp"), jnp.float32)

    (value, gradient), _ = on(shape, product, MATRIX, ROWS[rows])
    expected, expected_gradient = jax.value_and_grad(lambda w, x: jnp.sin(x @ w).sum())(MATRIX, ROWS[rows])
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5 * np.abs(expected_gradient).max())


def test_rows_of_a_table_on_a_mesh():
    def rows(table, ids):
        return embedding_lookup(table.T, ids, ("vocab", "embed"), jnp.float32)

    (value, gradient), _ = on(MeshShape(1, 4, 2), rows, TABLE.T, IDS)
    expected, expected_gradient = jax.value_and_grad(lambda table: jnp.sin(table.T[IDS]).sum())(TABLE.T)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5 * np.abs(expected_gradient).max())


def test_gradients_are_reduced_and_scattered_in_one():
    def product(matrix, x):
        return multiply(x, matrix, ("embed", "mlp"), jnp.float32)

    _, text = on(MeshShape(2, 4), product, MATRIX, ROWS["positions"])
    assert sent(text, "reduce-scatter") == [f"f32[{D // 4},{F}]"]
    assert sent(text, "all-gather") == [f"f32[{D},{F}]"]
    assert f"f32[{D},{F}]" not in sent(text, "all-reduce")


def test_all_devices_of_a_slice_do_so_in_two_stages():
    """For the TPU compiler (tests/planning/test_tpu_programs.py): pairs, then one of each of four pairs."""

    def product(matrix, x):
        return multiply(x, matrix, ("embed", "mlp"), jnp.float32)

    _, text = on(MeshShape(1, 8), product, MATRIX, ROWS["positions"])
    assert sorted(sent(text, "reduce-scatter")) == sorted([f"f32[{D // 4},{F}]", f"f32[{D // 8},{F}]"])
    assert sorted(sent(text, "all-gather")) == sorted([f"f32[{D // 4},{F}]", f"f32[{D},{F}]"])
    assert f"f32[{D},{F}]" not in sent(text, "all-reduce")


def test_on_a_torus_gradients_alone_take_two_stages(monkeypatch):
    monkeypatch.setattr("t5x_lite.parallel.mesh.forms_torus", lambda devices: True)

    def product(matrix, x):
        return multiply(x, matrix, ("embed", "mlp"), jnp.float32)

    (value, gradient), text = on(MeshShape(1, 8), product, MATRIX, ROWS["positions"])
    assert sorted(sent(text, "reduce-scatter")) == sorted([f"f32[{D // 4},{F}]", f"f32[{D // 8},{F}]"])
    assert sent(text, "all-gather") == [f"f32[{D},{F}]"]
    expected, expected_gradient = jax.value_and_grad(lambda w, x: jnp.sin(x @ w).sum())(MATRIX, ROWS["positions"])
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5 * np.abs(expected_gradient).max())


HEAD = 4
"""Numbers of a head: the matrix has six heads."""


@pytest.mark.parametrize("shape", [MeshShape(1, 8), MeshShape(2, 2, 2), MeshShape(2, 2, sequence=2)], ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["to heads", "from heads"])
def test_heads_are_dimensions_of_a_product_and_axes_of_a_matrix(shape, inside):
    """[B L D] to [B L H K], or back; shards are gathered as [D H K] or [H K D], and stored as matrices."""
    x = ROWS["positions"]
    axes = ("heads", "embed") if inside else ("embed", "heads")
    x = jnp.tile(x, (1, 1, 2))[..., :F].reshape(B, L, -1, HEAD) if inside else x

    def product(matrix, x):
        matrix = matrix.T if inside else matrix
        return multiply(x, matrix, axes, jnp.float32, HEAD)

    def reference(matrix, x):
        y = x.reshape(B, L, -1) @ (matrix.T if inside else matrix)
        return jnp.sin(y).sum()

    (value, gradient), text = on(shape, product, MATRIX, x)
    expected, expected_gradient = jax.value_and_grad(reference)(MATRIX, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5 * np.abs(expected_gradient).max())
    heads = F // HEAD // shape.tensor
    assert (f"f32[{heads},{HEAD},{D}]" if inside else f"f32[{D},{heads},{HEAD}]") in sent(text, "all-gather")


def test_gathered_parameters_are_not_kept():
    def layer(x, matrix):
        return jnp.sin(multiply(x, matrix, ("embed", "mlp"), jnp.float32))

    def largest_kept(function):
        """Of what the backward pass needs, on all eight devices together."""
        with use_mesh(make_mesh(MeshShape(1, 8))):
            pullback = jax.eval_shape(lambda *args: jax.vjp(function, *args)[1], ROWS["positions"], MATRIX)
        return max(leaf.size for leaf in jax.tree.leaves(pullback))

    assert largest_kept(layer) == 8 * D * F
    assert largest_kept(jax.checkpoint(layer, policy=all_but_gathered)) == B * L * F
