"""The attention of recurrent decoders, against the papers' equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.alignment import Memory, align, reverse_valid

INPUTS, SEQUENCES, LENGTH, KEYS, VALUES = 2, 3, 6, 4, 5
VALID = np.arange(LENGTH) < np.array([6, 4])[:, None]


@pytest.fixture(scope="module", params=["dot", "additive"])
def arrays(request):
    random = np.random.default_rng(0)
    memory = Memory(
        jnp.asarray(random.normal(size=(INPUTS, LENGTH, KEYS)), jnp.float32),
        jnp.asarray(random.normal(size=(INPUTS, LENGTH, VALUES)), jnp.float32),
        jnp.asarray(VALID),
        jnp.asarray(random.normal(size=KEYS), jnp.float32) if request.param == "additive" else None,
    )
    return memory, jnp.asarray(random.normal(size=(INPUTS * SEQUENCES, KEYS)), jnp.float32)


def expected(memory, query, row):
    """The weights of one sequence, over the tokens that are there."""
    keys = np.asarray(memory.keys[row // SEQUENCES])[VALID[row // SEQUENCES]]
    scores = keys @ query[row] if memory.vector is None else np.tanh(keys + query[row][None]) @ memory.vector
    return np.exp(scores) / np.exp(scores).sum()


def test_sequences_of_an_input_share_its_memory(arrays):
    memory, query = arrays
    context, weights = align(memory, query)
    for row in range(INPUTS * SEQUENCES):
        of_row = expected(memory, query, row)
        np.testing.assert_allclose(weights[row, : len(of_row)], of_row, rtol=1e-5)
        assert np.abs(weights[row, len(of_row) :]).max(initial=0) == 0
        np.testing.assert_allclose(context[row], of_row @ memory.values[row // SEQUENCES, : len(of_row)], atol=1e-5)


def test_local_attention_is_the_papers(arrays):
    """Luong et al. 2015, equation 10: the softmax over the window, times a normal distribution around its center."""
    memory, query = arrays
    center, window = jnp.array([0.0, 2.5, 4.9, 0.4, 1.0, 3.0]), 2
    context, weights = align(memory, query, center=center, window=window)
    for row in range(INPUTS * SEQUENCES):
        whole = expected(memory, query, row)
        distance = np.arange(len(whole)) - float(center[row])
        inside = np.where(np.abs(distance) <= window, whole, 0)
        of_row = inside / inside.sum() * np.exp(-(distance**2) / (2 * (window / 2) ** 2))
        np.testing.assert_allclose(weights[row, : len(of_row)], of_row, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(context[row], of_row @ memory.values[row // SEQUENCES, : len(of_row)], atol=1e-5)


def test_the_center_is_learned(arrays):
    """Though the window moves by whole tokens."""
    memory, query = arrays

    def loss(center):
        return (align(memory, query, center=center, window=2)[0] ** 2).sum()

    center = jnp.array([0.2, 2.5, 4.7, 0.4, 1.3, 2.8])
    numerical = [
        (loss(center.at[n].add(1e-2)) - loss(center.at[n].add(-1e-2))) / 2e-2 for n in range(INPUTS * SEQUENCES)
    ]
    np.testing.assert_allclose(jax.grad(loss)(center), numerical, rtol=2e-2, atol=2e-3)


def test_reversing_twice_changes_nothing():
    valid = jnp.asarray(VALID)
    x = jnp.arange(2 * LENGTH * 3).reshape(2, LENGTH, 3) * 1.0
    once = reverse_valid(x, valid)
    np.testing.assert_array_equal(once[1, :4], x[1, :4][::-1])
    np.testing.assert_array_equal(once[1, 4:], x[1, 4:])
    np.testing.assert_array_equal(reverse_valid(once, valid), x)
