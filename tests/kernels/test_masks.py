import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.masks import Mask, keeps

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


@pytest.mark.parametrize(("causal", "prefix"), [(False, 0), (True, 0), (True, 3)])
@pytest.mark.parametrize("with_valid", [False, True])
@pytest.mark.parametrize("with_segments", [False, True])
def test_a_pair_is_seen_if_every_condition_lets_it_be(causal, prefix, with_valid, with_segments):
    random = np.random.default_rng(0)
    valid, segments = random.random((2, 5)) < 0.6, random.integers(0, 2, (2, 5))
    mask = Mask(
        valid=jnp.asarray(valid) if with_valid else None,
        query_segments=jnp.asarray(segments) if with_segments else None,
        key_segments=jnp.asarray(segments) if with_segments else None,
        causal=causal,
        prefix=prefix,
    )
    seen = mask.dense(5, 5)
    if not (causal or with_valid or with_segments):
        assert seen is None
        return
    seen = np.broadcast_to(seen, (2, 1, 5, 5))
    for b, i, j in itertools.product(range(2), range(5), range(5)):
        expected = (
            (not causal or j <= i or max(i, j) < prefix)
            and (not with_valid or valid[b, j])
            and (not with_segments or segments[b, i] == segments[b, j])
        )
        assert seen[b, 0, i, j] == expected


def test_is_a_pytree_whose_arrays_are_its_leaves():
    mask = Mask.of_segments(jnp.ones((1, 3), jnp.int32), causal=True)
    assert len(jax.tree.leaves(mask)) == 2
    assert jax.jit(lambda mask: mask.dense(3, 3))(mask).sum() == 6
