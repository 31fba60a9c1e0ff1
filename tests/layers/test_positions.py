import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.positions import (
    RelativePositionBias,
    relative_position_buckets,
    sinusoidal_positions,
)

DISTANCES = np.arange(-1000, 1001)
SHAPES = [(32, 128), (8, 16), (12, 20), (17, 40), (9, 13), (5, 7), (64, 500)]


def paper_bucket(relative, bidirectional, num_buckets, max_distance):
    """(bucket, whether rounding could decide it) after the description in the T5 paper, in exact arithmetic."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance, False
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    return first + min(exact + int(steps), num_buckets - 1), abs(steps - round(steps)) < 1e-4


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SHAPES)
def test_buckets_follow_the_paper(bidirectional, num_buckets, max_distance):
    got = relative_position_buckets(
        DISTANCES, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    expected = [paper_bucket(int(d), bidirectional, num_buckets, max_distance) for d in DISTANCES]
    for ours, (theirs, close) in zip(got.tolist(), expected, strict=True):
        assert ours == theirs or (close and abs(ours - theirs) == 1)
    assert sum(close for _, close in expected) < 20
    assert got.min() == 0
    assert got.max() < num_buckets


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SHAPES)
def test_buckets_equal_those_of_transformers(bidirectional, num_buckets, max_distance, torch, transformers):
    theirs = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket(
        torch.from_numpy(DISTANCES), bidirectional, num_buckets, max_distance
    )
    ours = relative_position_buckets(
        DISTANCES, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (3, 9), (9, 3), (1, 4), (4, 1)])
def test_bias_is_the_bucket_of_key_minus_query(bidirectional, queries, keys):
    module = RelativePositionBias(2, bidirectional, num_buckets=6, max_distance=5)
    table = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    bias = module.apply({"params": {"bias": jnp.asarray(table)}}, queries, keys).dense(queries, keys)
    relative = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    buckets = relative_position_buckets(relative, bidirectional=bidirectional, num_buckets=6, max_distance=5)
    assert bias.shape == (1, 2, queries, keys)
    np.testing.assert_array_equal(bias[0], np.moveaxis(table[buckets], -1, 0))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_shifted_queries_see_a_slice_of_the_full_bias(bidirectional):
    module = RelativePositionBias(2, bidirectional, num_buckets=6, max_distance=5)
    params = {"params": {"bias": jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32))}}
    bias = module.apply(params, 12, 12)
    full, shifted = bias.dense(12, 12), jax.jit(lambda first: bias.of_queries(first, 3))
    for first in (0, 1, 5, 9):
        np.testing.assert_array_equal(shifted(jnp.int32(first)), full[:, :, first : first + 3])


@pytest.mark.parametrize("embed_dim", [6, 7])
def test_sinusoids(embed_dim):
    table = sinusoidal_positions(50, embed_dim)
    assert table.shape == (50, embed_dim)
    # Of feature 2d the paper takes the sine, of feature 2d + 1 the cosine, both of the same angle.
    features = list(range(0, embed_dim, 2)) + list(range(1, embed_dim, 2))
    for position in (0, 1, 17, 49):
        for column, feature in enumerate(features):
            angle = position / 10_000 ** (2 * (feature // 2) / embed_dim)
            wave = math.cos(angle) if feature % 2 else math.sin(angle)
            assert table[position, column] == pytest.approx(wave, abs=1e-6)
