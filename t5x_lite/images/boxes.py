"""Boxes around objects: their forms, how much they overlap, and those of a picture."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class TrueBoxes(NamedTuple):
    """The objects of a picture."""

    boxes: Float[np.ndarray, "M 4"]
    """Left, top, right, bottom, in pixels."""
    classes: Int[np.ndarray, "M"]
    areas: Float[np.ndarray, "M"]
    """Square pixels; of an outline, where the data have one, or of the box."""
    crowd: Int[np.ndarray, "M"]
    """1 for a box around many objects, which none is to be found in."""


class DetectedBoxes(NamedTuple):
    """What a model finds in a picture."""

    boxes: Float[np.ndarray, "D 4"]
    """Left, top, right, bottom, in pixels."""
    scores: Float[np.ndarray, "D"]
    classes: Int[np.ndarray, "D"]


def to_corners(boxes: Float[Array, "*B 4"]) -> Float[Array, "*B 4"]:
    """Left, top, right, bottom of boxes given by center x, center y, width and height.

    >>> to_corners(jnp.array([2.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 1.0, 3.0, 5.0]
    """
    center, size = boxes[..., :2], boxes[..., 2:]
    return jnp.concatenate([center - size / 2, center + size / 2], axis=-1)


def to_centers(boxes: Float[Array, "*B 4"]) -> Float[Array, "*B 4"]:
    """The inverse of `to_corners`."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return jnp.concatenate([(low + high) / 2, high - low], axis=-1)


def area(boxes: Float[Array, "*B 4"]) -> Float[Array, "*B"]:
    """Of boxes by their corners; 0 where they are turned inside out."""
    sides = jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0.0)
    return sides[..., 0] * sides[..., 1]


def generalized_iou(left: Float[Array, "*B 4"], right: Float[Array, "*B 4"]) -> Float[Array, "*B"]:
    """Intersection over union of boxes by their corners, less the share of the smallest box around both that is in
    neither (Rezatofighi et al. 2019, algorithm 1): 1 for the same box, towards -1 for two that are far apart.

    Boxes without area have finite values and gradients.

    >>> generalized_iou(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([0.0, 0.0, 2.0, 1.0])).item()
    0.5
    """
    together = jnp.concatenate(
        [jnp.maximum(left[..., :2], right[..., :2]), jnp.minimum(left[..., 2:], right[..., 2:])], -1
    )
    around = jnp.concatenate(
        [jnp.minimum(left[..., :2], right[..., :2]), jnp.maximum(left[..., 2:], right[..., 2:])], -1
    )
    intersection = area(together)
    union = area(left) + area(right) - intersection
    hull = area(around)
    return intersection / jnp.maximum(union, _SMALLEST) - (hull - union) / jnp.maximum(hull, _SMALLEST)


_SMALLEST = 1e-9
"""Of an area that is divided by: a box of a thirty-thousandth of a picture's sides."""
