import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.dense import BLOCK, BLOCKS_AT_ONCE, Blocks, Dense, Transposed, multiply, pack_weights, sum_rows
from t5x_lite.parallel import MeshShape, make_mesh, use_mesh


@pytest.mark.parametrize("shape", [(5,), (1, 3), (7, 2, 9), (0, 4)])
def test_the_first_dimension_is_summed(shape):
    x = jax.random.normal(jax.random.key(0), shape)
    got = jax.jit(sum_rows)(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, np.asarray(x, np.float64).sum(axis=0), rtol=0, atol=1e-5)


def test_what_is_not_finite_stays_where_it_is():
    x = jnp.ones((3, 4)).at[1, 2].set(jnp.nan)
    np.testing.assert_array_equal(sum_rows(x), [3.0, 3.0, np.nan, 3.0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("num_rows", [1, 50])
@pytest.mark.parametrize("shape", [(1,), (2, 4), (2, 0)])
@pytest.mark.parametrize("features", [6, BLOCK * BLOCKS_AT_ONCE + 1])
def test_a_kernel_laid_out_for_steps_gives_the_same(make_params, features, shape, num_rows, dtype):
    """By as many rows as it was laid out for, and by others."""
    module = Dense(features, ("embed", "mlp"), use_bias=True, dtype=dtype)
    x = jax.random.normal(jax.random.key(0), (*shape, 5))
    params = make_params(module, 1, jnp.ones((1, 5)))
    turned = pack_weights(params, num_rows)
    assert isinstance(turned["kernel"], Blocks if num_rows == 1 else Transposed)
    assert turned["bias"] is params["bias"]
    got, expected = (module.apply({"params": given}, x) for given in (turned, params))
    assert got.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(expected, np.float32), atol=1e-6 if dtype == jnp.float32 else 3e-2
    )


def test_laying_out_twice_changes_nothing():
    once = pack_weights({"kernel": jnp.ones((5, 6))}, 1)
    assert pack_weights(once, 50) == once


def compile_product(make_matrix, stored):
    """The program of three rows times a matrix of 5 x 200, and of something behind it."""

    def product(x, stored):
        return multiply(x, make_matrix(stored), ("embed", "mlp"), jnp.float32) + 1.0

    return jax.jit(product).lower(jnp.ones((3, 5)), stored).compile().as_text()


def test_a_transposed_kernel_stays_on_the_left():
    """As it is stored: nothing is transposed but the few rows that come out."""
    program = compile_product(Transposed, jnp.ones((200, 5)))
    (out,) = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", program)
    assert out == "200,3"
    assert not re.search(r"f32\[5,200\]", program)


def test_blocks_are_read_as_they_are_stored():
    """What is laid out anew is the rows, once for each block."""
    program = compile_product(lambda blocks: Blocks((blocks,), 200), jnp.ones((4, 5, 64)))
    (out,) = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", program)
    assert out == "4,3,64"
    shapes = re.findall(r"= f32\[([\d,]+)\](\S*) (\w+)\(", program)
    matrices = {one for one in shapes if math.prod(map(int, one[0].split(","))) == 4 * 5 * 64}
    assert matrices == {("4,5,64", "{2,1,0}", "parameter")}


@pytest.mark.parametrize(("inputs", "features"), [(5, 8), (8, 5), (5, 5), (5, 1), (1, 5)])
def test_gradients_are_those_of_a_product(inputs, features):
    x, kernel, of_y = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(2, 7, inputs), (inputs, features), (2, 7, features)])
    )
    y, differentiate = jax.vjp(lambda x, kernel: multiply(x, kernel, ("embed", "mlp"), jnp.float32), x, kernel)
    of_x, of_kernel = differentiate(of_y)
    np.testing.assert_allclose(y, np.einsum("brI,IO->brO", x, kernel), atol=1e-5)
    np.testing.assert_allclose(of_x, np.einsum("brO,IO->brI", of_y, kernel), atol=1e-5)
    np.testing.assert_allclose(of_kernel, np.einsum("brI,brO->IO", x, of_y), atol=1e-5)


@pytest.mark.parametrize(("inputs", "features"), [(24, 40), (40, 24)])
def test_the_gradient_of_a_kernel_is_a_plain_and_wide_product(inputs, features):
    def of_kernel(x, of_y):
        kernel = jnp.ones((inputs, features))
        return jax.vjp(lambda kernel: multiply(x, kernel, ("embed", "mlp"), jnp.float32), kernel)[1](of_y)

    program = jax.jit(of_kernel).lower(jnp.ones((96, inputs)), jnp.ones((96, features))).compile().as_text()
    ((out, left, right),) = re.findall(
        r"= f32\[([\d,]+)\]\S* dot\(.*lhs_contracting_dims={(\d)}, rhs_contracting_dims={(\d)}", program
    )
    assert (out, left, right) == ("24,40", "1", "0")


def test_kernels_whose_rows_are_cut_are_left_alone():
    params = {"kernel": jnp.ones((4, 6))}
    with use_mesh(make_mesh(MeshShape(fsdp=2))):
        assert pack_weights(params, 1) is params
