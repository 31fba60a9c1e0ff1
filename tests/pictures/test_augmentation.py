"""Rows of pictures beside what training makes of them."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from t5x_lite.data import Bytes, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation, ColorJitter
from t5x_lite.images.mixing import Mixing
from t5x_lite.models import MAEConfig, ViTConfig
from t5x_lite.objectives import ContrastiveLanguageImage, ImageClassification, MaskedAutoencoding, SpanCorruption
from t5x_lite.pictures.augmentation import draw_augmentation

SIZE = (8, 12)
SIZES = {"image_size": SIZE, "patch_size": 4, "embed_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}
VIT = ViTConfig(**SIZES, num_classes=3)
PLAIN = Augmentation(SIZE, area=None, flip=0.0)
CLASSES = ("cat", "dog", "a bird of the longest name of all")


@pytest.fixture(scope="module")
def rows():
    """Pictures that lost nothing on the canvas, but the last, which was high and narrow."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, *SIZE, 3), np.uint8)
    sizes = np.array([SIZE, (16, 24), SIZE, (60, 20)], np.int32)
    return [
        {"image": image, "size": size, "label": np.int32(number % 3)}
        for number, (image, size) in enumerate(zip(images, sizes, strict=True))
    ]


def tiles(picture, columns=5):
    """The pixels of a grid [rows, columns, H, W, C], and the texts below each."""
    shown = [np.asarray(axes.images[0].get_array()) for axes in picture.axes]
    return np.stack(shown).reshape(-1, columns, *shown[0].shape)


def captions(picture):
    return [text.get_text() for text in picture.texts if text.get_va() == "top"]


@pytest.mark.parametrize("normalization", ["imagenet", "inception", "none"])
def test_pixels_are_those_before_normalization(rows, normalization):
    objective = ImageClassification(replace(PLAIN, normalization=normalization), SIZE)
    pixels = tiles(draw_augmentation(objective, rows[:3], CLASSES, model=VIT))
    for number, row in enumerate(pixels):
        np.testing.assert_array_equal(row, np.broadcast_to(rows[number]["image"], row.shape))


def test_copies_differ_and_rows_have_their_classes(rows):
    objective = ImageClassification(replace(PLAIN, area=(0.3, 1.0), color_jitter=ColorJitter()), SIZE)
    picture = draw_augmentation(objective, rows, CLASSES, model=VIT, most_rows=3)
    pixels = tiles(picture).astype(float)
    assert len(pixels) == 3
    for row in pixels[:, 1:]:
        assert min(np.abs(row[a] - row[b]).mean() for a in range(4) for b in range(a)) > 1
    below = [caption for caption in captions(picture) if caption]
    assert below == ["row 0\nlabel: cat", "row 1\nlabel: dog", "row 2\nlabel: a bird of the l…"]
    again = tiles(draw_augmentation(objective, rows, CLASSES, model=VIT, most_rows=3))
    np.testing.assert_array_equal(again, pixels)
    assert (tiles(draw_augmentation(objective, rows, model=VIT, most_rows=3, seed=1)) != pixels).any()


def test_originals_have_the_proportions_of_their_files(rows):
    picture = draw_augmentation(ImageClassification(PLAIN, SIZE), rows, model=VIT)
    picture.draw_without_rendering()
    boxes = [axes.get_window_extent() for axes in picture.axes]
    proportions = np.array([box.height / box.width for box in boxes]).reshape(4, 5)
    np.testing.assert_allclose(proportions[:, 0], [8 / 12, 8 / 12, 8 / 12, 3], rtol=1e-3)
    np.testing.assert_allclose(proportions[:, 1:], 8 / 12, rtol=1e-3)
    texts = [text.get_window_extent() for text in picture.texts]
    inside = picture.bbox
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 for box in (*boxes, *texts))
    assert not [1 for box in boxes for text in texts if text.width and box.overlaps(text)]


def test_mixed_pictures_have_both_classes_and_their_weights(rows):
    objective = ImageClassification(PLAIN, SIZE, mixing=Mixing(mixup=1.0))
    picture = draw_augmentation(objective, rows[:3], ("a", "b", "c"), model=VIT)
    pixels, below = tiles(picture).astype(float), np.reshape(captions(picture), (3, 5))
    for number in range(3):
        for copy in range(1, 5):
            (own, first), (other, second) = re.findall(r"([\d.]+) (\w)", below[number, copy])
            assert (first, second) == ("abc"[number], "abc"[number - 1])
            assert float(own) + float(other) == pytest.approx(1.0, abs=0.011)
            expected = float(own) * pixels[number, 0] + float(other) * pixels[number - 1, 0]
            np.testing.assert_allclose(pixels[number, copy], expected, atol=0.006 * 255 + 0.6)
    assert len(set(below[0, 1:])) > 1


def test_of_masked_autoencoding_the_visible_patches_stand_beside(rows):
    model = MAEConfig(**SIZES, decoder_embed_dim=8, decoder_num_heads=2, mask_ratio=0.5)
    objective = MaskedAutoencoding(replace(PLAIN, area=(0.3, 1.0)), SIZE, patch_size=4)
    unlabelled = [{name: row[name] for name in ("image", "size")} for row in rows[:3]]
    picture = draw_augmentation(objective, unlabelled, model=model)
    pixels = tiles(picture)
    assert captions(picture)[::5] == ["row 0", "row 1", "row 2"]
    hidden = []
    for row in pixels:
        for augmented, visible in (row[1:3], row[3:5]):
            patches = (visible == augmented).reshape(2, 4, 3, 4, 3).all(axis=(1, 3, 4))
            assert patches.sum() == 3
            greyed = np.repeat(np.repeat(~patches, 4, axis=0), 4, axis=1)
            assert (visible[greyed] == 128).all()
            hidden.append(patches.tobytes())
    assert len(set(hidden)) > 2


def test_pictures_with_texts_have_the_first_one_below(rows):
    tokenizer = make_tokenizer(Bytes(), iter)
    with_texts = []
    for row, texts in zip(rows, (["a cat", "unseen"], ["a bird of the long-legged sort"]), strict=False):
        ids = np.zeros((2, 40), np.int32)
        for of_text, text in zip(ids, tokenizer.encode_batch(texts), strict=False):
            of_text[: len(text) + 1] = [*text, tokenizer.vocabulary.eos_id]
        columns = {"image": row["image"], "size": row["size"]}
        with_texts.append(columns | {"captions": ids, "num_captions": np.int32(len(texts))})
    objective = ContrastiveLanguageImage(40, 2, PLAIN, SIZE)
    picture = draw_augmentation(objective, with_texts, model=VIT, tokenizer=tokenizer)
    assert captions(picture)[::5] == ["row 0\na cat", "row 1\na bird of the long-…"]


@pytest.mark.slow
def test_files_have_few_colors_and_keep_black(rows):
    random = np.random.default_rng(0)
    many = [row | {"image": random.integers(0, 256, (64, 64, 3), np.uint8)} for row in rows]
    drawn = draw_augmentation(ImageClassification(PLAIN, (64, 64)), many, CLASSES, model=VIT).png()
    colors = [color for _, color in Image.open(io.BytesIO(drawn)).convert("RGB").getcolors(1 << 24)]
    assert len(colors) <= 256 and max(min(colors, key=sum)) <= 16, "text is black"


def test_objectives_of_text_have_another_picture(rows):
    with pytest.raises(InputError, match="SpanCorruption augments no pictures .*; draw rows of text with --corruption"):
        draw_augmentation(SpanCorruption(32), rows, model=VIT)
