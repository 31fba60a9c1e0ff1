from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import statistics
from t5x_lite.images.box_augmentation import BoxAugmentation

SMALL = BoxAugmentation(
    image_size=(96, 128),
    short_sides=(48, 64, 80),
    longest=112,
    crop_short_sides=(50, 60, 70),
    crop_sides=(48, 70),
    normalization="none",
)
NO_BOXES = (jnp.zeros((3, 4)), jnp.zeros(3, bool))


def grown(short, longest, size):
    """The published rule for sizes (Carion et al. 2020, section 4), in exact fractions: (height, width)."""
    low, high = min(size), max(size)
    sides = (round(longest * low / high), longest) if short * high > longest * low else (short, short * high // low)
    return sides if size[0] <= size[1] else sides[::-1]


@pytest.fixture(scope="module")
def augment():
    return jax.jit(jax.vmap(SMALL, in_axes=(0, None, None, None, None)))


@pytest.mark.parametrize("size", [(60, 90), (90, 60), (33, 33), (20, 100)])
def test_the_whole_picture_is_what_pillow_scales(size):
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (*size, 3)).astype(np.uint8)
    augmentation = replace(SMALL, image_size=(128, 128), normalization="imagenet").for_evaluation()
    canvas, extent, *_ = augmentation(jax.random.key(0), jnp.asarray(image), jnp.array(size), *NO_BOXES)
    height, width = grown(80, 112, size)
    assert tuple(extent.tolist()) == (height, width)
    expected = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    mean, std = statistics("imagenet", 3)
    seen = (np.asarray(canvas)[:height, :width] * std + mean) * 255
    assert np.abs(seen - expected).max() < 1.6
    assert not np.asarray(canvas)[height:].any()
    assert not np.asarray(canvas)[:, width:].any()


@pytest.mark.slow
def test_sizes_are_those_of_the_published_processor():
    transformers = pytest.importorskip("transformers", reason="Transformers is the oracle")
    processor = transformers.DetrImageProcessorPil(do_pad=False)
    augmentation = replace(BoxAugmentation(), image_size=(1344, 1344)).for_evaluation()
    resize = jax.jit(lambda size: augmentation._scaled(size, jnp.int32(800)))
    for size in [(480, 640), (640, 427), (333, 500), (200, 900), (612, 612), (375, 1242)]:
        pixels = processor(Image.new("RGB", size[::-1]), return_tensors="np")["pixel_values"]
        assert tuple(resize(jnp.array(size)).tolist()) == pixels[0].shape[-2:], size


def test_a_picture_that_the_canvas_has_no_room_for_is_scaled_to_fit():
    augmentation = replace(SMALL, image_size=(60, 128)).for_evaluation()
    _, extent, *_ = augmentation(jax.random.key(0), jnp.zeros((8, 8, 3), jnp.uint8), jnp.array([200, 100]), *NO_BOXES)
    assert extent.tolist() == [60, 30]


def test_the_box_of_a_mask_is_the_mask_of_the_box(augment):
    """Whatever is drawn, white rectangles are where their boxes are, and those that are cut off are not there."""
    size, keys = (120, 200), jax.random.split(jax.random.key(3), 64)
    corners = np.array([[20, 10, 90, 70], [150, 60, 180, 110], [2, 90, 40, 118]])
    for number, (left, top, right, bottom) in enumerate(corners):
        image = np.zeros((*size, 3), np.uint8)
        image[top:bottom, left:right] = 255
        boxes = jnp.asarray(corners / [200, 120, 200, 120], jnp.float32)
        canvases, extents, found, valid = map(
            np.asarray, augment(keys, jnp.asarray(image), jnp.array(size), boxes, jnp.array([True, True, False]))
        )
        assert not valid[:, 2].any()
        count = 0
        for canvas, extent, box, there in zip(canvases, extents, found[:, number], valid[:, number], strict=True):
            rows, columns = (np.flatnonzero((canvas[..., 0] > 0.5).any(axis)) for axis in (1, 0))
            if number < 2 and there and len(rows) and len(columns):
                seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
                np.testing.assert_allclose(box * np.tile(extent[::-1], 2), seen, atol=1.01)
                count += 1
            elif number < 2:
                # Less than a pixel of it.
                sides = (box[2:] - box[:2]) * extent[::-1]
                assert min(sides) < 1.01 or not there
        assert number == 2 or 20 < count <= 64
        shares = (extents[:, None] == np.array([[48, 80], [64, 106], [67, 112]])).all(-1).any(-1)
        assert 0.3 < shares.mean() < 0.7, "half are crops, of other aspects"


def test_a_mirrored_picture_has_mirrored_boxes():
    image = np.random.default_rng(1).integers(0, 256, (40, 60, 1)).astype(np.uint8)
    boxes = jnp.array([[0.1, 0.2, 0.4, 0.9]])
    same, mirrored = (
        replace(SMALL, short_sides=(64,), crop=0.0, flip=flip)(
            jax.random.key(0), jnp.asarray(image), jnp.array([40, 60]), boxes, jnp.array([True])
        )
        for flip in (0.0, 1.0)
    )
    height, width = same[1].tolist()
    np.testing.assert_array_equal(same[0][:height, :width], mirrored[0][:height, :width][:, ::-1])
    np.testing.assert_allclose(mirrored[2], [[0.6, 0.2, 0.9, 0.9]], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"short_sides": ()}, r"augmentation.short_sides=\(\) has no length of 1 or more"),
        ({"image_size": (0, 9)}, r"augmentation.image_size=\(0, 9\) has no length"),
        ({"crop_sides": (600, 384)}, r"augmentation.crop_sides=\(600, 384\) is not a range"),
        ({"crop_sides": (500, 600)}, r"begins within crop_short_sides"),
        ({"longest": 700}, "augmentation.longest=700 is less than the shorter side may have, 800"),
    ],
)
def test_what_makes_no_picture_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        BoxAugmentation(**changes)
