"""Boxes, resampling and warps against Pillow, on photographs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite.images.geometry import GREY, Box, Warp, center_crop, random_box, random_crop, resample, warp


@pytest.fixture(scope="module")
def photograph():
    from sklearn.datasets import load_sample_images

    return Image.fromarray(load_sample_images().images[0]).resize((96, 80))


def shares(top, left, height, width):
    return Box(*map(jnp.float32, (top, left, height, width)))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("box", [(0, 0, 1, 1), (0.11, 0.23, 0.62, 0.35), (0.4, 0.0, 0.1, 0.2)])
def test_resampling(photograph, box, interpolation, flip):
    """Shrunk with antialias, enlarged in the last box; Pillow rounds its weights, and between its passes."""
    top, left, height, width = box
    corners = (left * 96, top * 80, (left + width) * 96, (top + height) * 80)
    expected = photograph.resize((24, 32), getattr(Image.Resampling, interpolation.upper()), corners)
    expected = np.asarray(expected, np.float32)[:, ::-1] if flip else np.asarray(expected, np.float32)
    image = jnp.asarray(np.asarray(photograph), jnp.float32)
    ours = np.clip(resample(image, shares(*box), (32, 24), interpolation, flip).transpose(1, 2, 0), 0, 255)
    assert np.abs(ours - expected).max() <= 1.3
    assert np.abs(ours - expected).mean() <= 0.4


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resampling_by_the_function_of_jax(photograph, interpolation):
    image = jnp.asarray(np.asarray(photograph), jnp.float32)
    box, size = shares(0.25, 0.125, 0.5, 0.75), (20, 36)
    scale = jnp.array([size[0] / 40, size[1] / 72])
    offsets, method = -scale * jnp.array([20.0, 12.0]), "linear" if interpolation == "bilinear" else "cubic"
    expected = jax.image.scale_and_translate(image, (*size, 3), (0, 1), scale, offsets, method)
    np.testing.assert_allclose(resample(image, box, size, interpolation).transpose(1, 2, 0), expected, atol=2e-2)


def test_pictures_of_one_value_stay_whatever_the_box():
    image = jnp.full((1, 9, 1), 7.0)
    for box in (shares(0, 0, 1, 1), shares(0.9, 0.9, 0.1, 0.1), shares(0.5, 0.5, 1e-4, 1e-4)):
        np.testing.assert_allclose(resample(image, box, (5, 1), "bicubic"), 7.0, rtol=1e-5)


def by(**values):
    return Warp(**{name: jnp.float32(values.get(name, 0.0)) for name in Warp._fields})


@pytest.mark.parametrize("amount", [-0.3, -0.07, 0.0, 0.21])
@pytest.mark.parametrize("name", ["shear_x", "shear_y", "shift_x", "shift_y"])
def test_shears_and_shifts_are_those_of_pillow(photograph, name, amount):
    planes = jnp.asarray(np.asarray(photograph), jnp.float32).transpose(2, 0, 1)
    value = round(amount * 100) if "shift" in name else amount
    matrix = {
        "shear_x": (1, value, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, value, 1, 0),
        "shift_x": (1, 0, value, 0, 1, 0),
        "shift_y": (1, 0, 0, 0, 1, value),
    }[name]
    expected = photograph.transform((96, 80), Image.Transform.AFFINE, matrix, fillcolor=(128, 128, 128))
    ours = warp(planes, by(**{name: value}), math.radians(30)).transpose(1, 2, 0)
    # Pixels between two others may go to either.
    assert (np.asarray(ours) != np.asarray(expected)).any(axis=-1).mean() < 0.005


@pytest.mark.parametrize("degrees", [-30, -11, 0, 7, 30])
def test_rotations_are_near_those_of_pillow(photograph, degrees):
    """About as near to the interpolated picture as the nearest pixels are; the grey corners differ at their edges."""
    planes = jnp.asarray(np.asarray(photograph), jnp.float32).transpose(2, 0, 1)
    ours = np.asarray(warp(planes, by(angle=math.radians(degrees)), math.radians(30)).transpose(1, 2, 0))
    smooth, nearest = (
        np.asarray(photograph.rotate(degrees, method, fillcolor=(128, 128, 128)), np.float32)
        for method in (Image.Resampling.BILINEAR, Image.Resampling.NEAREST)
    )
    assert np.abs(ours - smooth).mean() <= 1.6 * np.abs(nearest - smooth).mean() + 1e-3
    white = jnp.full((1, 80, 96), 255.0)
    inside = np.asarray(warp(white, by(angle=math.radians(degrees)), math.radians(30))[0]) == 255
    expected = np.asarray(Image.new("L", (96, 80), 255).rotate(degrees, fillcolor=128)) == 255
    assert (inside != expected).mean() < 0.03
    assert (inside.mean() == 1.0) == (degrees == 0)


def test_warps_only_move_pixels():
    """Every number of the result is one of the picture's, or grey."""
    planes = jnp.arange(2 * 9 * 11.0).reshape(2, 9, 11) + 300.0
    result = np.asarray(warp(planes, by(angle=0.4), 0.5))
    assert set(result.ravel()) <= {*np.asarray(planes).ravel(), GREY}


@pytest.mark.parametrize("size", [(300, 400), (1000, 90), (1, 1)])
def test_crops_lie_inside_and_follow_their_distributions(size):
    area, aspect = (0.2, 0.6), (0.5, 2.0)
    keys = jax.random.split(jax.random.key(0), 4000)
    boxes = jax.jit(jax.vmap(lambda key: random_crop(key, jnp.array(size), area, aspect)))(keys)
    top, left, height, width = map(np.asarray, boxes)
    assert min(top.min(), left.min(), (1 - top - height).min(), (1 - left - width).min()) >= -1e-6
    aspects = width * size[1] / (height * size[0])
    assert (aspects >= 0.5 * (1 - 1e-5)).all()
    assert (aspects <= 2.0 * (1 + 1e-5)).all()
    if size == (1000, 90):  # an area of 0.2 has no aspect of 0.5 or more here: the center, as torchvision
        np.testing.assert_allclose(width, 1.0, rtol=1e-5)
        np.testing.assert_allclose(aspects, 0.5, rtol=1e-5)
        return
    areas = height * width
    assert areas.min() >= 0.2 - 1e-5
    assert areas.max() <= 0.6 + 1e-5
    # Nearly all fit at once; those that do not are large ones.
    assert areas.mean() == pytest.approx(0.4, abs=0.02)
    assert np.log(aspects).mean() == pytest.approx(0.0, abs=0.08)
    assert np.log(aspects).std() == pytest.approx(np.log(4) / np.sqrt(12), abs=0.05)
    offset = top / np.maximum(1 - height, 1e-6)
    assert offset.mean() == pytest.approx(0.5, abs=0.02)


def test_a_box_that_does_not_fit_is_empty():
    box, found = random_box(jax.random.key(0), jnp.array([100, 5]), (0.9, 0.9), (3.0, 3.0))
    assert not found
    assert float(box.height * box.width) == 0.0


@pytest.mark.parametrize(("size", "resize"), [((300, 400), 256), ((500, 333), 224), ((7, 7), 232)])
def test_the_center_in_evaluation(size, resize):
    """224 x 224 pixels of the center after the shorter side is scaled to `resize`."""
    box = center_crop(jnp.array(size), (224, 224), resize)
    scaled = np.array(size) * resize / min(size)
    np.testing.assert_allclose([box.height, box.width], 224 / scaled, rtol=1e-5)
    np.testing.assert_allclose([box.top, box.left], (1 - 224 / scaled) / 2, atol=1e-5)
