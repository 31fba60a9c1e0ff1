import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.dense import sum_of_first


@pytest.mark.parametrize("shape", [(5,), (1, 3), (7, 2, 9), (0, 4)])
def test_the_first_dimension_is_summed(shape):
    x = jax.random.normal(jax.random.key(0), shape)
    got = jax.jit(sum_of_first)(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, np.asarray(x, np.float64).sum(axis=0), rtol=0, atol=1e-5)


def test_what_is_not_finite_stays_where_it_is():
    x = jnp.ones((3, 4)).at[1, 2].set(jnp.nan)
    np.testing.assert_array_equal(sum_of_first(x), [3.0, 3.0, np.nan, 3.0])
