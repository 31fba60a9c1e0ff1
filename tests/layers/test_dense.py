import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.dense import Dense, Transposed, multiply, sum_of_first, to_multiply_few
from t5x_lite.parallel import MeshShape, make_mesh, use_mesh


@pytest.mark.parametrize("shape", [(5,), (1, 3), (7, 2, 9), (0, 4)])
def test_the_first_dimension_is_summed(shape):
    x = jax.random.normal(jax.random.key(0), shape)
    got = jax.jit(sum_of_first)(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, np.asarray(x, np.float64).sum(axis=0), rtol=0, atol=1e-5)


def test_what_is_not_finite_stays_where_it_is():
    x = jnp.ones((3, 4)).at[1, 2].set(jnp.nan)
    np.testing.assert_array_equal(sum_of_first(x), [3.0, 3.0, np.nan, 3.0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [(3,), (2, 4), (2, 0)])
def test_a_transposed_kernel_gives_the_same(make_params, rows, dtype):
    module, x = Dense(6, ("embed", "mlp"), use_bias=True, dtype=dtype), jax.random.normal(jax.random.key(0), (*rows, 5))
    params = make_params(module, 1, jnp.ones((1, 5)))
    turned = to_multiply_few(params)
    assert isinstance(turned["kernel"], Transposed)
    assert turned["bias"] is params["bias"]
    got, expected = (module.apply({"params": given}, x) for given in (turned, params))
    assert got.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(expected, np.float32), atol=1e-6 if dtype == jnp.float32 else 2e-2
    )


def test_a_transposed_kernel_stays_on_the_left():
    """As it is stored: nothing is transposed but the few rows that come out."""

    def product(x, rows):
        return multiply(x, Transposed(rows), ("embed", "mlp"), jnp.float32) + 1.0

    program = jax.jit(product).lower(jnp.ones((3, 5)), jnp.ones((40, 5))).compile().as_text()
    (out,) = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", program)
    assert out == "40,3"
    assert not re.search(r"f32\[5,40\]", program)


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
        assert to_multiply_few(params) is params
