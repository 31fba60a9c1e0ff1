"""The shift of relative positions: looked up one by one, and by the TPU's kernel, interpreted and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.shift import shift_positions, tpu_shift

SIZES = [(1, 4, 0), (4, 7, 0), (5, 9, 3), (150, 300, 0), (300, 420, -250)]
"""Queries, keys, and relative positions beyond or short of all."""


def scores_of(length, memory_length, more, dtype=jnp.float32):
    size = length + memory_length + more
    return jnp.asarray(np.random.default_rng(0).normal(size=(2, 1, length, size)), dtype)


@pytest.mark.parametrize(("length", "memory_length", "more"), SIZES[:3])
def test_each_score_is_that_of_its_distance(length, memory_length, more):
    scores = scores_of(length, memory_length, more)
    shifted = shift_positions(scores, memory_length)
    for i in range(length):
        for j in range(memory_length):
            np.testing.assert_array_equal(shifted[..., i, j], scores[..., i, length - 1 + j - i])


@pytest.mark.parametrize(
    ("length", "memory_length", "more"),
    [
        pytest.param(*SIZES[0], marks=pytest.mark.slow),
        *SIZES[2:4],
        *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in (SIZES[1], SIZES[4])),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_kernel_is_the_same_forward_and_backward(length, memory_length, more, dtype):
    """Where there is a relative position; with fewer positions than keys only some queries have them all."""
    scores = scores_of(length, memory_length, more, dtype)
    known = (length - 1 + jnp.arange(memory_length)[None] - jnp.arange(length)[:, None]) < scores.shape[3]

    def of(shift):
        return jax.vjp(lambda x: jnp.where(known, shift(x), 0), scores)

    found, back = of(lambda x: tpu_shift(x, memory_length, True))
    expected, expected_back = of(lambda x: shift_positions(x, memory_length))
    np.testing.assert_array_equal(found, expected)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=found.shape), dtype)
    np.testing.assert_array_equal(back(gradient)[0], expected_back(gradient)[0])
