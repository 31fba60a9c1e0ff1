import jax.numpy as jnp
import numpy as np

from t5x_lite.kernels.masks import keeps

RATE = 0.3


def test_dropout_keeps_its_share_and_no_two_streams_are_alike():
    low, high = jnp.int32(123), jnp.int32(-77)
    rows, columns = jnp.arange(400, dtype=jnp.int32)[:, None], jnp.arange(500, dtype=jnp.int32)[None]

    def kept(low, high, row, head):
        return np.asarray(keeps((low, high), jnp.int32(row), jnp.int32(head), rows, columns, RATE))

    first = kept(low, high, 0, 0)
    error = (RATE * (1 - RATE) / first.size) ** 0.5
    assert abs(first.mean() - (1 - RATE)) < 4 * error
    for axis in (0, 1):  # of every query and of every key
        assert abs(first.mean(axis) - (1 - RATE)).max() < 5 * error * first.shape[1 - axis] ** 0.5
    for other in (kept(low, high, 0, 1), kept(low, high, 1, 0), kept(low + 1, high, 0, 0), kept(low, high + 1, 0, 0)):
        agreement = (1 - RATE) ** 2 + RATE**2
        assert abs((first == other).mean() - agreement) < 5 * (agreement * (1 - agreement) / first.size) ** 0.5
    neighbours = (first[1:] == first[:-1]).mean(), (first[:, 1:] == first[:, :-1]).mean()
    assert np.abs(np.array(neighbours) - agreement).max() < 5 * (agreement * (1 - agreement) / first.size) ** 0.5
