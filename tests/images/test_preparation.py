"""Pictures as models read them: Transformers' processors and Pillow as the outside truths."""

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.preparation import EvaluationPreparation, open_image, prepare_image, read_processor

STATISTICS = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}
PROCESSORS = {
    "ViTImageProcessor": {"size": {"height": 12, "width": 10}},
    "DeiTImageProcessor": {"size": {"height": 14, "width": 18}, "crop_size": {"height": 12, "width": 12}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 12}, "crop_pct": 0.8},
    "BitImageProcessor": {"size": {"shortest_edge": 14}, "crop_size": {"height": 16, "width": 12}},
}
OPTIONS = {
    "as they are": {},
    "another filter": {"resample": 3},
    "not scaled to 1": {"do_rescale": False, **STATISTICS, "image_mean": [90.0, 100.0, 110.0]},
    "not normalized": {"do_normalize": False},
    "their size": {"do_resize": False},
}


def pixels(height=21, width=34, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", PROCESSORS)
def test_processors_are_those_of_transformers(kind, options):
    pytest.importorskip("torch", reason="torch is the oracle")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    if not hasattr(transformers, f"{kind}Pil"):
        pytest.skip("this version of Transformers has no processors that compute with Pillow")
    theirs = getattr(transformers, f"{kind}Pil")(**STATISTICS | PROCESSORS[kind] | OPTIONS[options])
    preparation = read_processor(json.loads(theirs.to_json_string()), 3)
    for size in ((21, 34), (40, 12)):
        image = pixels(*size)
        expected = np.asarray(theirs(Image.fromarray(image), return_tensors="np")["pixel_values"][0]).transpose(1, 2, 0)
        ours = preparation(Image.fromarray(image))
        assert ours.std() > 0.05
        np.testing.assert_allclose(ours, expected, atol=2e-5 * np.abs(expected).max())


def test_a_size_is_reached_by_pillows_filter_and_the_inverse_of_normalization_gives_pixels():
    preparation = read_processor({"image_processor_type": "ViTImageProcessor", "size": 9, **STATISTICS}, 3)
    resized = np.asarray(Image.fromarray(pixels()).resize((9, 9), Image.Resampling.BILINEAR))
    prepared = preparation(png(pixels()))
    expected = (resized / 255 - STATISTICS["image_mean"]) / STATISTICS["image_std"]
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    np.testing.assert_array_equal(preparation.to_pixels(prepared), resized)


def test_a_run_prepares_as_its_evaluation():
    """A rectangle loses its ends: of twice the width the middle half is left."""
    augmentation = Augmentation((8, 8), normalization="none", interpolation="bilinear").for_evaluation()
    preparation = EvaluationPreparation(augmentation, (8, 16), 3)
    image = pixels(8, 16)
    np.testing.assert_allclose(preparation(png(image)), image[:, 4:12] / 255, atol=1e-5)
    assert preparation.processor["size"] == {"shortest_edge": 8}
    again = read_processor(preparation.processor, 3)
    np.testing.assert_allclose(again(png(image)), image[:, 4:12] / 255, atol=1e-5)
    np.testing.assert_array_equal(preparation.to_pixels(preparation(png(image))), image[:, 4:12])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_the_same_in_every_form(channels, tmp_path):
    preparation = read_processor({"size": 8, "image_mean": 0.5, "image_std": 0.5}, channels)
    grey = pixels(9, 7, 1)[..., 0]
    (tmp_path / "a.png").write_bytes(png(grey))
    forms = [
        *(tmp_path / "a.png", str(tmp_path / "a.png"), png(grey), Image.fromarray(grey), grey, grey[..., None]),
        *(jnp.asarray(grey), np.repeat(grey[..., None], 3, axis=2), Image.fromarray(grey).convert("RGBA")),
    ]
    first, *others = (prepare_image(preparation, form, "image") for form in forms)
    assert first.shape == (8, 8, channels)
    for other in others:
        np.testing.assert_allclose(other, first, atol=0.005)  # grey and back may round by one level


def test_a_pillow_picture_is_turned_upright_as_its_file_is_and_stays_as_it_was():
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = 6
    Image.fromarray(pixels()).save(file, "JPEG", exif=exif, quality=95)
    preparation = read_processor({"size": {"height": 34, "width": 21}}, 3)
    opened = Image.open(io.BytesIO(file.getvalue()))
    prepared = preparation(opened)
    np.testing.assert_array_equal(prepared, preparation(file.getvalue()))
    assert opened.size == (34, 21) and prepared.shape == (34, 21, 3)


BAD = {
    "class": ({"image_processor_type": "BeitImageProcessor"}, "image_processor_type='BeitImageProcessor' in prepro"),
    "size": ({"size": {"height": 8}}, r"size=\{'height': 8\} in preprocessor_config.json is not valid; it is damaged"),
    "crop": ({"do_center_crop": True, "crop_size": -1}, "crop_size=-1 in preprocessor_config.json is not valid"),
    "std": ({"image_std": [0.5, 0, 0.5]}, r"image_std=\[0.5, 0, 0.5\] in preprocessor_config.json is not valid"),
    "mean": ({"image_mean": [0.5, 0.5]}, "is of 2 channels, and the model has num_channels=3; correct one of the two"),
    "filter": ({"resample": "cubic"}, "resample='cubic' in preprocessor_config.json is not valid"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_processor_that_is_damaged_or_unknown(name):
    described, message = BAD[name]
    with pytest.raises(InputError, match=message):
        read_processor(described, 3)


def test_what_is_not_a_picture(tmp_path):
    (tmp_path / "a.txt").write_text("a text")
    preparation = read_processor({}, 3)
    for image, message in (
        (tmp_path / "b.png", "image: .*b.png cannot be read .*; correct the path"),
        (tmp_path, "image: .* is not a file; correct the path"),
        (tmp_path / "a.txt", "a.txt: the picture is not a picture .*; give JPEG"),
        (b"", r"image: the picture is empty \(0 bytes\); copy or export it again"),
        (np.zeros((4, 4)), "image has type float64; give uint8, pixels from 0 to 255"),
        (np.zeros((4, 4, 5), np.uint8), r"image has shape \(4, 4, 5\); give \[H, W\] or \[H, W, C\] with 1, 3 or 4"),
        (np.zeros((0, 4), np.uint8), r"image has shape \(0, 4\)"),
        (3, "image is a int, not a picture; give a path"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_image(preparation, image, "image")
    assert isinstance(open_image(jax.numpy.zeros((2, 2, 1), jnp.uint8), "image"), Image.Image)
