"""Augmentation of pictures with boxes inside the compiled train step: scaled, cropped and mirrored together."""

from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Statistics, statistics, to_pixels
from t5x_lite.images.colors import to_bytes
from t5x_lite.images.geometry import Box, Interpolation, inside_pixels, resample
from t5x_lite.validation import Positive, Share, Validated

PUBLISHED_SIDES = tuple(range(480, 801, 32))
"""Lengths of the shorter side of pictures in training (Carion et al. 2020, section 4)."""


@dataclass(frozen=True)
class BoxAugmentation(Validated):
    """A picture of any size and its boxes on a canvas of one size: mirrored, cropped, scaled, normalized.

    The default is DETR's (Carion et al. 2020, section 4); `for_evaluation` has no randomness. Each picture depends on
    its key alone.
    """

    image_size: tuple[int, int] = (1344, 1344)
    """Height and width of the result; a picture is in its upper left, zeros beyond. One that would be larger is scaled
    down to fit."""
    short_sides: tuple[int, ...] = PUBLISHED_SIDES
    """Lengths in pixels to which the shorter side is scaled, one drawn for each picture."""
    longest: Positive = 1333
    """The longer side has no more pixels."""
    crop: Share = 0.5
    """The share of pictures of which a random part is cut out before they are scaled."""
    crop_short_sides: tuple[int, ...] = (400, 500, 600)
    """Of these the shorter side has one as the part is cut out,"""
    crop_sides: tuple[int, int] = (384, 600)
    """whose sides have each a random length between these, or as much as there is."""
    flip: Share = 0.5
    """The share of pictures that are mirrored, left to right."""
    interpolation: Interpolation = "bilinear"
    normalization: Statistics = "imagenet"
    """What is subtracted and divided by: see `STATISTICS` of `t5x_lite.images.augmentation`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("image_size", "short_sides", "crop_short_sides", "crop_sides"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise InputError(f"augmentation.{name}={getattr(self, name)} has no length of 1 or more; choose some")
        low, high = self.crop_sides
        if not low <= high or low > min(self.crop_short_sides):
            raise InputError(
                f"augmentation.crop_sides={self.crop_sides} is not a range that begins within crop_short_sides="
                f"{self.crop_short_sides}; choose two lengths, the smaller first"
            )
        if max(self.short_sides) > self.longest:
            raise InputError(
                f"augmentation.longest={self.longest} is less than the shorter side may have, "
                f"{max(self.short_sides)}; choose more, or other short_sides"
            )

    def for_evaluation(self) -> Self:
        """The whole picture at its largest scale."""
        return replace(self, short_sides=(max(self.short_sides),), crop=0.0, flip=0.0)

    def extent(self, size: Int[Array | np.ndarray, "2"]) -> Int[Array, "2"]:
        """Height and width on the canvas of a whole picture of this height and width, at its largest scale."""
        return self._scaled(jnp.asarray(size), jnp.int32(max(self.short_sides)))

    def to_pixels(self, images: Float[Array | np.ndarray, "*B C"]) -> UInt8[np.ndarray, "*B C"]:
        """The pixels of its results."""
        return to_pixels(images, *statistics(self.normalization, images.shape[-1]))

    def __call__(
        self,
        key: Key[Array, ""],
        image: UInt8[Array, "H W C"],
        size: Int[Array, "2"],
        boxes: Float[Array, "M 4"],
        valid: Bool[Array, "M"],
    ) -> tuple[Float[Array, "h w C"], Int[Array, "2"], Float[Array, "M 4"], Bool[Array, "M"]]:
        """(the canvas in float32, height and width of the picture on it, its boxes, which of them there are).

        Args:
          image: stretched to any height and width; C is 1 or 3.
          size: the height and width that it had before.
          boxes: left, top, right, bottom, as shares of the picture; also in the result, clipped to what is seen.
          valid: which of them there are. Those of which nothing is seen are none any more.
        """
        flip_key, side_key, crop_key = jax.random.split(key, 3)
        flip = jax.random.uniform(flip_key) < self.flip
        box, seen = self._crop(crop_key, size)
        extent = self._scaled(seen, jax.random.choice(side_key, jnp.array(self.short_sides)))
        planes = resample(image.astype(jnp.float32), box, self.image_size, self.interpolation, flip, extent)
        mean, std = statistics(self.normalization, len(planes))
        planes = (to_bytes(planes + 0.5) / 255.0 - mean[:, None, None]) / std[:, None, None]
        is_filled = inside_pixels(jnp.zeros_like(extent), extent, *self.image_size)
        canvas = jnp.where(is_filled[None], planes, 0.0).transpose(1, 2, 0)
        corner, sides = jnp.stack([box.left, box.top] * 2), jnp.stack([box.width, box.height] * 2)
        boxes = jnp.clip((boxes - corner[None]) / sides[None], 0.0, 1.0)
        left, top, right, bottom = boxes.T
        mirrored = jnp.stack([1.0 - right, top, 1.0 - left, bottom], axis=1)
        is_seen = (left < right) & (top < bottom)
        return canvas, extent, jnp.where(flip, mirrored, boxes), valid & is_seen

    def _crop(self, key: Key[Array, ""], size: Int[Array, "2"]) -> tuple[Box, Int[Array, "2"]]:
        """The part of a picture that is seen, and the pixels that it has as it is cut out."""
        use_key, side_key, *keys = jax.random.split(key, 6)
        scaled = _to_short_side(size, jax.random.choice(side_key, jnp.array(self.crop_short_sides)))
        low, high = self.crop_sides
        most = jnp.minimum(scaled, high)
        sides = jnp.stack([jax.random.randint(keys[axis], (), low, most[axis] + 1) for axis in range(2)])
        start = jnp.stack(
            [jax.random.randint(keys[2 + axis], (), 0, scaled[axis] - sides[axis] + 1) for axis in range(2)]
        )
        use = jax.random.uniform(use_key) < self.crop
        corner = jnp.where(use, start / scaled, 0.0)
        shares = jnp.where(use, sides / scaled, 1.0)
        return Box(corner[0], corner[1], shares[0], shares[1]), jnp.where(use, sides, size)

    def _scaled(self, size: Int[Array, "2"], short: Int[Array, ""]) -> Int[Array, "2"]:
        """The height and width on the canvas of a picture."""
        # Whole numbers, since a quotient of floats may be just below one.
        shorter, longer = size.min(), size.max()
        limited = jnp.stack([(2 * self.longest * shorter + longer) // (2 * longer), jnp.int32(self.longest)])
        given = jnp.stack([short, short * longer // shorter])
        sides = jnp.where(short * longer > self.longest * shorter, limited, given)
        scaled = jnp.where(size[0] <= size[1], sides, sides[::-1])
        canvas = jnp.array(self.image_size)
        by_height = jnp.stack([canvas[0], scaled[1] * canvas[0] // scaled[0]])
        by_width = jnp.stack([scaled[0] * canvas[1] // scaled[1], canvas[1]])
        smaller = jnp.where(canvas[0] * scaled[1] <= canvas[1] * scaled[0], by_height, by_width)
        return jnp.maximum(jnp.where((scaled > canvas).any(), smaller, scaled), 1)


def _to_short_side(size: Int[Array, "2"], short: Int[Array, ""]) -> Int[Array, "2"]:
    return short * size // size.min()
