"""Rows of pictures as they are, and as their objective gives them to the model."""

import textwrap
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int, UInt8

from t5x_lite.data.layouts.base import Row
from t5x_lite.data.layouts.image_texts import texts_of_row
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.images.boxes import to_corners
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import MaskedAutoencoding
from t5x_lite.objectives.base import Objective, corrupt_rows
from t5x_lite.objectives.masked_autoencoding import hide_patches
from t5x_lite.pictures import model_title
from t5x_lite.pictures.drawing import LabeledBox, Picture, Tile, draw_image_grid
from t5x_lite.tokenizers.base import Tokenizer

_LONGEST = 16  # characters of a class's name


def check_augments(objective: Objective) -> None:
    """Raises `InputError` for an objective that augments no pictures."""
    if not hasattr(objective, "augmentation"):
        raise InputError(
            f"objective={type(objective).__name__} augments no pictures that could be drawn; draw rows of text with "
            "--corruption"
        )


def draw_augmentation(
    objective: Objective,
    rows: Sequence[Row],
    classes: Sequence[str] = (),
    *,
    model: ModelConfig,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
    most_rows: int = 5,
) -> Picture:
    """The first rows as they are, in their own proportions, and beside each what training makes of it under other keys.
    Boxes around objects have the colors of their classes; what is not of the picture on a canvas is cut off.

    Mixed pictures, each with the row above it, have their classes and weights below them. Of masked autoencoding each
    augmented picture has the patches beside it that the model sees. Pixels are those before normalization.

    Args:
      rows: of a store of pictures.
      classes: the names of the classes; empty writes their numbers.
      tokenizer: reads the texts of pictures that have some.
      seed: of the keys.

    Raises `InputError` for an objective that augments no pictures.
    """
    check_augments(objective)
    rows = [rows[number] for number in range(min(most_rows, len(rows)))]
    masks = isinstance(objective, MaskedAutoencoding)
    corrupt = jax.jit(lambda key, batch: corrupt_rows(objective, key, batch))
    copies = [
        jax.device_get(corrupt(jax.random.fold_in(jax.random.key(seed), copy), stack(rows)))
        for copy in range(2 if masks else 4)
    ]
    columns = ["original", *(["augmented", "visible"] if masks else ["augmented"]) * len(copies)]
    table = []
    for number, row in enumerate(rows):
        label = [f"label: {_class_name(int(row['label']), classes)}"] if "label" in row else []
        if "captions" in row:
            first, *_ = texts_of_row(row, tokenizer)
            label = [textwrap.shorten(first, 24, placeholder="…")]
        boxes = _boxes(row["boxes"][: int(row["num_boxes"])], row["classes"], row["image"]) if "boxes" in row else ()
        tiles = [Tile(row["image"], "\n".join([f"row {number}", *label]), tuple(row["size"].tolist()), boxes)]
        for features in copies:
            of_row = {name: value[number] for name, value in features.items()}
            augmented = objective.augmentation.to_pixels(of_row["images"])
            if "extent" in of_row:
                rows_seen, columns_seen = of_row["extent"].tolist()
                seen, valid = augmented[:rows_seen, :columns_seen], of_row["boxes_valid"]
                corners = np.asarray(to_corners(of_row["boxes"][valid]))
                tiles.append(Tile(seen, "", None, _boxes(corners, of_row["classes"][valid], seen)))
                continue
            tiles.append(Tile(augmented, _mixed_classes(of_row, classes)))
            if masks:
                ranks = objective.on_grid(of_row["noise"].argsort().argsort())
                tiles.append(Tile(hide_patches(augmented, ranks >= model.num_visible(ranks.shape))))
        table.append(tiles)
    return draw_image_grid(table, columns, model_title(type(objective).__name__, model))


def _boxes(
    boxes: Float[np.ndarray, "N 4"], classes: Int[np.ndarray, "_"], image: UInt8[np.ndarray, "H W C"]
) -> tuple[LabeledBox, ...]:
    """Boxes by their corners as shares of a picture, the classes by color."""
    height, width = image.shape[:2]
    pixels = (boxes * np.float32([width, height, width, height])).tolist()
    return tuple(LabeledBox(tuple(box), "", str(number)) for box, number in zip(pixels, classes, strict=False))


def _class_name(number: int, classes: Sequence[str]) -> str:
    name = classes[number] if classes else str(number)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _mixed_classes(features: Mapping[str, np.ndarray], classes: Sequence[str]) -> str:
    """The classes that a picture is mixed of, a line for each, with their weights."""
    if "shares" not in features:
        return ""
    share = float(features["shares"])
    weights = {"label": share, "partner_label": 1.0 - share}
    return "\n".join(f"{weight:.2f} {_class_name(int(features[name]), classes)}" for name, weight in weights.items())
