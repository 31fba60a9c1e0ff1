import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.random_bits import HASH
from t5x_lite.layers.dense import Dropout

ROWS, LENGTH, FEATURES = 3, 40, 50


def drop(rate, share=False, *, seed=0, deterministic=False, dtype=jnp.float32, impl=None):
    x = jnp.full((ROWS, LENGTH, FEATURES), 2.0, dtype)
    module = Dropout(rate, share)
    return jax.jit(lambda key: module.apply({}, x, deterministic=deterministic, rngs={"dropout": key}))(
        jax.random.key(seed, impl=impl)
    )


@pytest.mark.parametrize("impl", [None, HASH], ids=["threefry", "hash"])
@pytest.mark.parametrize("share", [False, True])
def test_what_is_kept_is_scaled_so_that_the_mean_stays(share, impl):
    dropped = np.asarray(drop(0.3, share, impl=impl))
    np.testing.assert_allclose(np.unique(dropped), [0.0, 2.0 / 0.7], rtol=1e-6)
    count = dropped[:, 0].size if share else dropped.size  # masks that are drawn by themselves
    assert np.mean(dropped == 0) == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / count) ** 0.5)
    assert (drop(0.3, share, seed=1, impl=impl) != dropped).mean() == pytest.approx(2 * 0.3 * 0.7, abs=0.15)


@pytest.mark.parametrize("impl", [None, HASH], ids=["threefry", "hash"])
def test_rows_and_features_have_masks_of_their_own_and_positions_where_they_do_not_share(impl):
    apart, shared = np.asarray(drop(0.5, impl=impl)), np.asarray(drop(0.5, share=True, impl=impl))
    np.testing.assert_array_equal(shared, np.broadcast_to(shared[:, :1], shared.shape))
    assert (apart != apart[:, :1]).mean() > 0.4
    for dropped in (apart, shared):
        assert (dropped[0] != dropped[1]).mean() > 0.3
        assert (dropped[:, :, :1] != dropped).mean() > 0.3


def test_nothing_is_dropped_where_nothing_is_asked_for():
    for dropped in (drop(0.5, deterministic=True), drop(0.0)):
        np.testing.assert_array_equal(dropped, 2.0)


def test_the_type_stays():
    assert drop(0.5, dtype=jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize("impl", [None, HASH], ids=["threefry", "hash"])
def test_gradients_flow_where_nothing_was_dropped(impl):
    def total(x, key):
        return Dropout(0.5).apply({}, x, deterministic=False, rngs={"dropout": key}).sum()

    x, key = jnp.ones((ROWS, LENGTH, FEATURES)), jax.random.key(2, impl=impl)
    gradient = jax.grad(total)(x, key)
    out = Dropout(0.5).apply({}, x, deterministic=False, rngs={"dropout": key})
    np.testing.assert_array_equal(gradient, out)
