import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.cpu import (
    BLOCK,
    BLOCKS_AT_ONCE,
    FEW_ROWS,
    PackedWeights,
    multiply_few_rows,
    pack_weights,
    sum_rows,
)
from t5x_lite.layers.dense import Dense, multiply

from ..slow import mostly_slow


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
@pytest.mark.parametrize("num_rows", [1, FEW_ROWS + 1])
@pytest.mark.parametrize("shape", [(1,), (2, 4), (2, 0)])
@pytest.mark.parametrize("features", mostly_slow([6, BLOCK * BLOCKS_AT_ONCE + 1], BLOCK * BLOCKS_AT_ONCE + 1))
def test_packed_weights_give_the_same_product(make_params, features, shape, num_rows, dtype):
    """By as many rows as they are packed for, and by others."""
    module = Dense(features, ("embed", "mlp"), use_bias=True, dtype=dtype)
    x = jax.random.normal(jax.random.key(0), (*shape, 5))
    params = make_params(module, 1, jnp.ones((1, 5)))
    packed = pack_weights(params, num_rows)
    assert {part.ndim for part in packed["kernel"].parts} == {2 if num_rows > FEW_ROWS else 3}
    assert packed["bias"] is params["bias"]
    got, expected = (module.apply({"params": given}, x) for given in (packed, params))
    assert got.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(expected, np.float32), atol=1e-6 if dtype == jnp.float32 else 3e-2
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_products_of_few_rows_have_the_gradients_of_products(shape, dtype):
    keys = jax.random.split(jax.random.key(0), 3)
    x, matrix, of_y = (
        jax.random.normal(key, size, dtype) for key, size in zip(keys, (shape, (5, 7), (*shape[:-1], 7)), strict=True)
    )
    gradients = {}
    for product in (multiply_few_rows, jnp.matmul):
        y, backward = jax.vjp(product, x, matrix)
        gradients[product] = y, *backward(of_y)
    for got, expected in zip(gradients[multiply_few_rows], gradients[jnp.matmul], strict=True):
        assert (got.shape, got.dtype) == (expected.shape, dtype)
        np.testing.assert_allclose(
            np.asarray(got, np.float32), np.asarray(expected, np.float32), atol=1e-6 if dtype == jnp.float32 else 6e-2
        )


def test_packing_twice_changes_nothing():
    once = pack_weights({"kernel": jnp.ones((5, 6))}, 1)
    assert pack_weights(once, 2) == once


def compile_product(make_matrix, stored):
    """The program of three rows times a matrix of 5 x 200, and of something behind it."""

    def product(x, stored):
        return multiply(x, make_matrix(stored), ("embed", "mlp"), jnp.float32) + 1.0

    return jax.jit(product).lower(jnp.ones((3, 5)), stored).compile().as_text()


def test_blocks_are_read_as_they_are_stored():
    """What is laid out anew is the rows, once for each block."""
    program = compile_product(lambda blocks: PackedWeights((blocks,), 200), jnp.ones((4, 5, 64)))
    (out,) = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", program)
    assert out == "4,3,64"
    shapes = re.findall(r"= f32\[([\d,]+)\](\S*) (\w+)\(", program)
    matrices = {one for one in shapes if math.prod(map(int, one[0].split(","))) == 4 * 5 * 64}
    assert matrices == {("4,5,64", "{2,1,0}", "parameter")}


def test_a_transposed_matrix_stands_on_the_left():
    """Neither is it transposed back, nor is the product turned round."""
    program = compile_product(lambda rows: PackedWeights((rows,), 200), jnp.ones((200, 5)))
    (out,) = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", program)
    assert out == "200,3"
    assert not re.search(r"= f32\[5,200\]", program)
