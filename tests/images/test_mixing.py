import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from t5x_lite.images.mixing import Mixing, cutmix_box, random_beta

KEYS = jax.random.split(jax.random.key(0), 1000)


@pytest.fixture(scope="module")
def mixed():
    """`mixed(mixing)`: ([1000, 2, 6, 8] how much of each pixel is its own picture's, [1000] shares)."""
    images = jnp.broadcast_to(jnp.arange(2.0)[:, None, None, None], (2, 6, 8, 1))

    def of(mixing):
        results, shares = jax.jit(jax.vmap(mixing, (0, None)))(KEYS, images)
        own = np.stack([1.0 - results[:, 0], results[:, 1]], axis=1)[..., 0]
        return own, np.asarray(shares)

    return of


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 2.0])
def test_beta(alpha):
    draw = jax.jit(jax.vmap(lambda key: random_beta(key, alpha)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 5000)))
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 0.001


def test_mixup_weighs_every_pixel_by_the_share(mixed):
    own, shares = mixed(Mixing(mixup=0.8))
    np.testing.assert_allclose(own, np.broadcast_to(shares[:, None, None, None], own.shape), atol=1e-6)
    assert stats.kstest(shares, stats.beta(0.8, 0.8).cdf).pvalue > 0.001


def test_cutmix_pastes_a_box_whose_area_is_the_share(mixed):
    own, shares = mixed(Mixing(cutmix=1.0))
    assert set(np.unique(own)) == {0.0, 1.0}
    np.testing.assert_array_equal(own[:, 0], own[:, 1])
    np.testing.assert_allclose(own.mean(axis=(1, 2, 3)), shares, atol=1e-6)
    for one in 1 - own[:100, 0]:
        rows, columns = one.any(axis=1), one.any(axis=0)
        np.testing.assert_array_equal(one, rows[:, None] & columns[None, :])
        for line in (rows, columns):
            assert not line.any() or line.sum() == np.ptp(np.flatnonzero(line)) + 1


def test_boxes_of_cutmix_have_the_sides_of_the_paper():
    """sqrt(1 - lambda) of each side, cut off at the border: whole boxes are as long as they are wide in shares."""
    pasted, shares = jax.jit(jax.vmap(lambda key: cutmix_box(key, 1.0, 100, 200)))(KEYS)
    pasted, shares = np.asarray(pasted), np.asarray(shares)
    np.testing.assert_allclose(1 - pasted.mean(axis=(1, 2)), shares, atol=1e-5)
    heights, widths = pasted.any(axis=2).sum(axis=1), pasted.any(axis=1).sum(axis=1)
    touches = pasted[:, [0, -1]].any(axis=(1, 2)) | pasted[:, :, [0, -1]].any(axis=(1, 2))
    assert 0.05 < (~touches).mean() < 0.6
    assert np.abs(2 * heights - widths)[~touches].max() <= 4
    # The share is the paper's lambda for whole boxes, and more for those that are cut off.
    keys = jax.vmap(lambda key: jax.random.split(key)[0])(KEYS)
    drawn = np.asarray(jax.vmap(lambda key: random_beta(key, 1.0))(keys))
    assert (shares >= drawn - 1e-6).all()
    np.testing.assert_allclose(shares[~touches], drawn[~touches], atol=0.03)


def test_both_are_drawn(mixed):
    own, shares = mixed(Mixing(mixup=0.8, cutmix=1.0, cutmix_share=0.3, probability=0.6))
    whole = own.min(axis=(1, 2, 3)) == 1.0
    boxes = np.isin(own, (0.0, 1.0)).all(axis=(1, 2, 3)) & ~whole
    np.testing.assert_allclose(shares[whole], 1.0, atol=1e-6)
    # Some boxes are empty.
    assert whole.mean() == pytest.approx(0.4, abs=0.06)
    assert boxes.mean() == pytest.approx(0.6 * 0.3, abs=0.05)
    np.testing.assert_allclose(own.mean(axis=(1, 2, 3)), shares, atol=1e-5)


def test_nothing_is_mixed_by_default():
    assert not Mixing()
    images = jnp.arange(8.0).reshape(2, 2, 2, 1)
    result, share = Mixing()(jax.random.key(0), images)
    np.testing.assert_array_equal(result, images)
    assert float(share) == 1.0
