from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation, ColorJitter, RandomErasing, augment_by_one_of_three, statistics
from t5x_lite.images.randaugment import RandAugment

SIZE = (23, 19)
FULL = Augmentation(
    image_size=SIZE,
    rand_augment=RandAugment(2, 12),
    three_augment=True,
    color_jitter=ColorJitter(hue=0.1),
    random_erasing=RandomErasing(),
)


@pytest.fixture(scope="module")
def pictures():
    """[2 32 32 3]: canvases; and the sizes that they had."""
    from sklearn.datasets import load_sample_images

    images = [Image.fromarray(image) for image in load_sample_images().images]
    return jnp.array([np.asarray(image.resize((32, 32))) for image in images]), jnp.array([[427, 640], [640, 427]])


def test_one_by_one_is_the_batch(pictures):
    """Compiled over rows, in a loop, and a second time: the same pictures; other keys give others."""
    images, sizes = (jnp.tile(x, (3, *[1] * (x.ndim - 1))) for x in pictures)
    keys = jax.random.split(jax.random.key(0), 6)
    batch, single = jax.jit(jax.vmap(FULL)), jax.jit(FULL)
    whole = np.asarray(batch(keys, images, sizes))
    assert whole.shape == (6, *SIZE, 3)
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(whole, batch(keys, images, sizes))
    for row in range(6):
        one = np.asarray(single(keys[row], images[row], sizes[row]))
        # Pixels may round to either side of a level.
        assert (np.abs(one - whole[row]) > 1e-3).mean() < 0.01
    assert np.abs(whole[0] - whole[2]).max() > 0.1


def test_evaluation_is_the_center_alone(pictures):
    images, sizes = pictures
    augmentation = replace(FULL, image_size=(20, 20), resize=24, interpolation="bilinear").for_evaluation()
    first, second = (augmentation(jax.random.key(seed), images[0], sizes[0]) for seed in (0, 1))
    np.testing.assert_array_equal(first, second)
    # In pixels of the canvas: the box is 20 / 24 of the height and as long across.
    height, width = 32 * 20 / 24, 32 * 20 / 24 * 427 / 640
    box = (16 - width / 2, 16 - height / 2, 16 + width / 2, 16 + height / 2)
    expected = Image.fromarray(np.asarray(images[0])).resize((20, 20), Image.Resampling.BILINEAR, box)
    mean, std = statistics("imagenet", 3)
    assert np.abs((np.asarray(first) * std + mean) * 255 - np.asarray(expected)).max() < 1.6


def test_stretched_pictures_lose_nothing(pictures):
    """As Pillow resizes the whole picture, whatever its proportions were."""
    stretch = Augmentation((9, 7), area=None, flip=0.0, resize="stretch", normalization="none")
    for size in ((300, 20), (20, 300)):
        image = pictures[0][0]
        found = stretch(jax.random.key(0), image, jnp.array(size))
        expected = Image.fromarray(np.asarray(image)).resize((7, 9), Image.Resampling.BICUBIC)
        np.testing.assert_allclose(np.asarray(found) * 255, np.asarray(expected), atol=1.01)
    assert stretch.for_evaluation() == stretch


def test_flips_and_normalization(pictures):
    images, _ = pictures
    plain = Augmentation(image_size=(32, 32), area=None, flip=0.0, normalization="none").for_evaluation()
    square = jnp.array([50, 50])
    keys = jax.random.split(jax.random.key(0), 400)
    picture = np.asarray(plain(keys[0], images[0], square))
    np.testing.assert_allclose(picture, np.asarray(images[0]) / 255.0, atol=1e-6)
    flipped = np.asarray(jax.jit(jax.vmap(replace(plain, flip=0.3), (0, None, None)))(keys, images[0], square))
    is_flipped = np.array([np.allclose(one, picture[:, ::-1]) for one in flipped])
    assert all(np.allclose(one, picture) for one in flipped[~is_flipped])
    assert is_flipped.mean() == pytest.approx(0.3, abs=0.07)
    for name in ("inception", "imagenet", "clip"):
        mean, std = statistics(name, 3)
        normalized = replace(plain, normalization=name)(keys[0], images[0], square)
        np.testing.assert_allclose(normalized, (picture - mean) / std, atol=1e-5)
    assert statistics("inception", 1)[0].tolist() == [0.5]
    np.testing.assert_allclose(statistics("imagenet", 1)[0], [0.449], atol=1e-3)


def test_one_of_three(pictures):
    planes = pictures[0][0].astype(jnp.float32).transpose(2, 0, 1)
    keys = jax.random.split(jax.random.key(0), 600)
    results = np.asarray(jax.jit(jax.vmap(augment_by_one_of_three, (0, None)))(keys, planes))
    grey = (results[:, :1] == results).all(axis=(1, 2, 3))
    solarized = (results == np.where(planes < 128, planes, 255 - np.asarray(planes))).all(axis=(1, 2, 3))
    assert grey.mean() == pytest.approx(1 / 3, abs=0.06)
    assert solarized.mean() == pytest.approx(1 / 3, abs=0.06)
    blurred = results[~grey & ~solarized]
    roughness = np.abs(np.diff(blurred, axis=3)).mean(axis=(1, 2, 3))
    assert roughness.max() <= np.abs(np.diff(planes, axis=2)).mean() + 1e-3
    assert roughness.min() < 0.5 * roughness.max()


def test_jitter_by_pillow_in_every_order(pictures):
    """Brightness of 1 +- 0.5 alone: a multiple of the picture; of two operations both orders occur."""
    planes = pictures[0][0].astype(jnp.float32).transpose(2, 0, 1)
    keys = jax.random.split(jax.random.key(0), 300)
    dark = planes / 4
    bright = np.asarray(jax.vmap(ColorJitter(0.5, 0.0, 0.0), (0, None))(keys, jnp.floor(dark)))
    factors = bright.sum(axis=(1, 2, 3)) / np.floor(dark).sum()
    assert factors.min() == pytest.approx(0.5, abs=0.06)
    assert factors.max() == pytest.approx(1.5, abs=0.06)
    assert factors.mean() == pytest.approx(1.0, abs=0.06)
    # Contrast keeps the mean luma and brightness does not: their order shows in a picture of one value.
    flat = jnp.full((3, 4, 4), 100.0).at[:, 0, 0].set(0.0)
    both = np.asarray(jax.vmap(ColorJitter(0.5, 0.5, 0.0), (0, None))(keys, flat))
    assert np.isfinite(both).all()
    assert len(np.unique(both[:, 0, 1, 1])) > 50
    still = np.asarray(ColorJitter(0.0, 0.0, 0.0)(keys[0], planes))
    np.testing.assert_array_equal(still, planes)


def test_erased_boxes():
    keys = jax.random.split(jax.random.key(0), 2000)
    erasing = RandomErasing(0.25, area=(0.1, 0.3))
    results = np.asarray(jax.jit(jax.vmap(erasing, (0, None)))(keys, jnp.full((3, 40, 40), 9.0)))
    erased = (results != 9.0).any(axis=1)
    used = erased.any(axis=(1, 2))
    assert used.mean() == pytest.approx(0.25, abs=0.03)
    share = erased[used].mean(axis=(1, 2))
    assert share.min() > 0.08
    assert share.max() < 0.33
    assert share.mean() == pytest.approx(0.2, abs=0.02)
    for one in erased[used][:50]:
        rows, columns = one.any(axis=1), one.any(axis=0)
        np.testing.assert_array_equal(one, rows[:, None] & columns[None, :])
        assert rows.sum() == np.ptp(np.flatnonzero(rows)) + 1
    noise = results[:, 0][erased]
    assert noise.mean() == pytest.approx(0.0, abs=0.02)
    assert noise.std() == pytest.approx(1.0, abs=0.02)


@pytest.fixture(scope="module")
def augment_all():
    """One canvas by many keys."""
    return jax.jit(jax.vmap(FULL, (0, None, None)))


@pytest.mark.parametrize(
    "canvas",
    [
        jnp.full((4, 4, 3), 255, jnp.uint8),
        pytest.param(jnp.zeros((1, 1, 1), jnp.uint8), marks=pytest.mark.slow),
    ],
    ids=["white", "a black point without colours"],
)
def test_all_pictures_are_finite(augment_all, canvas):
    keys = jax.random.split(jax.random.key(0), 32)
    for size in ((1, 1), (1, 500), (3, 2)):
        assert np.isfinite(augment_all(keys, canvas, jnp.array(size))).all()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"resize": 200}, r"augmentation.resize=200 is smaller than .* choose 224 or more"),
        ({"area": (0.5, 0.1)}, r"augmentation.area=\(0.5, 0.1\) is not a range of shares"),
        ({"aspect": (0.0, 1.0)}, r"augmentation.aspect=\(0.0, 1.0\) is not a range of ratios"),
        ({"image_size": (0, 9)}, "is empty"),
        ({"normalization": "mean"}, "choose imagenet, inception, clip or none"),
        ({"flip": 1.5}, r"flip=1.5 is not in \[0, 1\]"),
    ],
)
def test_options_that_are_wrong(options, problem):
    with pytest.raises(InputError, match=problem):
        Augmentation(**options)


def test_a_random_square_is_as_high_as_the_picture_and_anywhere_along_it():
    """Of a ramp of 4 x 16 pixels stretched to 16 x 16: the mean of a square says where it was."""
    image = jnp.tile(jnp.arange(16, dtype=jnp.uint8)[None, :, None] * 16, (16, 1, 1))
    augmentation = Augmentation(
        (8, 8), area=None, position="random", flip=0.0, interpolation="bilinear", normalization="none"
    )
    keys = jax.random.split(jax.random.key(0), 200)
    squares = np.asarray(jax.jit(jax.vmap(augmentation, (0, None, None)))(keys, image, jnp.array([4, 16]))) * 255
    means = squares.mean(axis=(1, 2, 3))
    # A quarter of the picture is 4 of its columns: their middle is from 1.5 to 13.5.
    assert means.min() < 2.0 * 16
    assert means.max() > 13.0 * 16
    np.testing.assert_allclose(np.ptp(squares[:, 0, :, 0], axis=1), 3.5 * 16, atol=9)
    center = np.asarray(augmentation.for_evaluation()(keys[0], image, jnp.array([4, 16]))) * 255
    assert center.mean() == pytest.approx(7.5 * 16, abs=1)
