import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.decoding.methods import best_tokens


@pytest.mark.parametrize("size", [5, 128, 300, 1280])
@pytest.mark.parametrize("number", [1, 4])
def test_they_are_those_of_a_sort_ties_included(size, number):
    random = np.random.default_rng(size)
    for scores in (random.normal(size=(7, size)), random.integers(0, 3, size=(7, size)), np.zeros((7, size))):
        scores = jnp.asarray(scores.astype(np.float32))
        got, expected = best_tokens(scores, number), jax.lax.top_k(scores, number)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


def test_minus_infinity_comes_last():
    scores = jnp.full((1, 300), -jnp.inf).at[0, jnp.array([7, 290])].set(jnp.array([-3.0, -2.0]))
    values, ids = best_tokens(scores, 3)
    assert ids[0, :2].tolist() == [290, 7]
    assert values[0, 2] == -jnp.inf
