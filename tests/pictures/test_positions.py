"""Positions as pictures."""

import jax.numpy as jnp
import numpy as np

from t5x_lite.layers.positions import RelativePositionBias, sinusoidal_positions
from t5x_lite.pictures import RelativeBias, draw_positions, draw_relative_bias


def test_tables_and_how_alike_their_rows_are():
    table = sinusoidal_positions(10, 6)
    picture = draw_positions({"encoder": table, "decoder": table[:5]})
    vectors, likeness = (axes.images[0].get_array() for axes in picture.axes[:2])
    np.testing.assert_array_equal(vectors, table)
    np.testing.assert_allclose(np.diag(likeness), 1.0, atol=1e-6)
    # Of sinusoids the likeness depends on the distance alone.
    for distance in range(1, 10):
        np.testing.assert_allclose(np.ptp(np.diag(likeness, distance)), 0.0, atol=1e-5)
    assert picture.axes[0].get_title() == "encoder: vectors"


def test_the_bias_is_that_of_the_layer():
    random = np.random.default_rng(0)
    for bidirectional in (True, False):
        buckets = random.normal(size=(8, 3)).astype(np.float32)
        module = RelativePositionBias(3, bidirectional, num_buckets=8, max_distance=11)
        expected = np.asarray(module.apply({"params": {"bias": jnp.asarray(buckets)}}, 20, 20).dense(20, 20))[0]
        found = RelativeBias(buckets, bidirectional, 11).by_distance(19)
        assert found.shape == (3, 39 if bidirectional else 20)
        for query in range(20):
            for key in range(20 if bidirectional else query + 1):
                np.testing.assert_array_equal(found[:, 19 + key - query], expected[:, query, key])


def test_every_head_has_a_line():
    buckets = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    picture = draw_relative_bias({"decoder": RelativeBias(buckets, False, 16)})
    lines, grid = picture.axes[:2]
    assert len(lines.lines) == 3
    distances, values = lines.lines[1].get_data()
    assert (distances[0], distances[-1]) == (-18, 0)
    assert values[-1] == buckets[0, 1]
    assert grid.collections[0].get_array().shape == (3, 19)
    picture.png()
