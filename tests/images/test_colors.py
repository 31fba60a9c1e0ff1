"""Operations on colors against Pillow, on photographs."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from t5x_lite.images import colors

SIZE = (60, 90)


@pytest.fixture(scope="module")
def photographs():
    """The two that scikit-learn carries, small, and one of a narrow range."""
    from sklearn.datasets import load_sample_images

    small = [Image.fromarray(image).resize(SIZE[::-1]) for image in load_sample_images().images]
    return [*small, small[0].point(lambda value: 40 + value // 3)]


def planes_of(picture):
    pixels = np.asarray(picture)
    return jnp.asarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1), jnp.float32)


def check(operation, reference, pictures, tolerance=0, share=0.0):
    """Equal to Pillow's up to `tolerance` levels, and all but a `share` of the numbers to the level."""
    operation = jax.jit(operation)
    for picture in pictures:
        ours, theirs = np.asarray(operation(planes_of(picture))), np.asarray(planes_of(reference(picture)))
        np.testing.assert_array_equal(ours, np.floor(ours))
        difference = np.abs(ours - theirs)
        assert difference.max() <= tolerance
        assert (difference > 0).mean() <= share


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.0, 1.9])
@pytest.mark.parametrize(
    ("operation", "enhancer"),
    [
        (colors.color, ImageEnhance.Color),
        (colors.contrast, ImageEnhance.Contrast),
        (colors.brightness, ImageEnhance.Brightness),
        (colors.sharpness, ImageEnhance.Sharpness),
    ],
)
def test_enhancements(photographs, operation, enhancer, factor):
    """One level where a product that is a whole number is rounded to below it."""
    check(
        lambda planes: operation(planes, factor),
        lambda picture: enhancer(picture).enhance(factor),
        photographs,
        tolerance=1,
        share=0.02,
    )


def test_histograms(photographs):
    check(colors.autocontrast, ImageOps.autocontrast, photographs, tolerance=1, share=0.02)
    check(colors.equalize, ImageOps.equalize, photographs)
    grey = [photograph.convert("L") for photograph in photographs]
    check(colors.equalize, ImageOps.equalize, grey)
    assert np.abs(np.asarray(ImageOps.equalize(grey[2])) - np.asarray(grey[2], np.int32)).max() > 20


def test_values_of_one_pixel(photographs):
    check(colors.invert, ImageOps.invert, photographs)
    check(colors.grayscale, lambda picture: picture.convert("L").convert("RGB"), photographs)
    for bits in (1, 3, 4, 8):
        check(
            lambda planes, b=bits: colors.posterize(planes, b),
            lambda picture, b=bits: ImageOps.posterize(picture, b),
            photographs,
        )
    for threshold in (0, 100, 128, 256):
        check(
            lambda planes, t=threshold: colors.solarize(planes, t),
            lambda picture, t=threshold: ImageOps.solarize(picture, t),
            photographs,
        )
    check(
        lambda planes: colors.solarize_add(planes, 60.0),
        lambda picture: picture.point(lambda value: min(value + 60, 255) if value < 128 else value),
        photographs,
    )
    np.testing.assert_array_equal(colors.posterize(jnp.full((3, 2, 2), 255.0), 0), 0)


@pytest.mark.parametrize("sigma", [0.1, 0.8, 2.0])
def test_blur(photographs, sigma):
    """Against SciPy, and against Pillow, which approximates a Gaussian by boxes, by 4 levels on the average."""
    from scipy.ndimage import gaussian_filter1d

    for picture in photographs:
        pixels = np.asarray(picture, np.float64).transpose(2, 0, 1)
        exact = pixels
        for axis in (1, 2):
            exact = gaussian_filter1d(exact, sigma, axis=axis, mode="nearest", truncate=6)
        ours = np.asarray(colors.gaussian_blur(planes_of(picture), sigma))
        # A pixel counts by the Gaussian's integral over it here, by its density there.
        assert np.abs(ours - exact).mean() < (0.8 if sigma < 2 else 0.5)
        theirs = np.asarray(planes_of(picture.filter(ImageFilter.GaussianBlur(sigma))))
        assert np.abs(ours - theirs).mean() < 4


@pytest.mark.parametrize("turn", [-0.5, -0.13, 0.0, 0.1, 0.4])
def test_hue(photographs, turn):
    pixels = np.asarray(photographs[0])[::5, ::5]
    ours = colors.hue(planes_of(pixels), turn).transpose(1, 2, 0).reshape(-1, 3)
    for (red, green, blue), got in zip(pixels.reshape(-1, 3) / 255, np.asarray(ours), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        expected = np.array(colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)) * 255
        np.testing.assert_allclose(got, expected, atol=0.51)


ALL = {
    "autocontrast": colors.autocontrast,
    "equalize": colors.equalize,
    "grayscale": colors.grayscale,
    "color": lambda planes: colors.color(planes, 1.7),
    "contrast": lambda planes: colors.contrast(planes, 1.7),
    "sharpness": lambda planes: colors.sharpness(planes, 1.7),
    "blur": lambda planes: colors.gaussian_blur(planes, 1.0),
    "hue": lambda planes: colors.hue(planes, 0.2),
}


@pytest.mark.parametrize("name", ALL)
def test_pictures_of_one_value_stay_and_small_ones_are_finite(name):
    operation = jax.jit(ALL[name])
    for channels in (1, 3):
        for value in (0.0, 77.0, 255.0):
            planes = jnp.full((channels, 7, 5), value)
            np.testing.assert_array_equal(operation(planes), planes)
        for shape in ((1, 1), (2, 3), (1, 9)):
            planes = jnp.arange(np.prod(shape) * channels, dtype=jnp.float32).reshape(channels, *shape)
            result = np.asarray(operation(planes))
            assert result.shape == planes.shape
            assert (np.isfinite(result) & (result >= 0) & (result <= 255)).all()
