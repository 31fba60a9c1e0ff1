"""Augmentation of pictures inside the compiled train step: one picture and its key in, one picture out."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt8

from t5x_lite.errors import InputError
from t5x_lite.images import colors
from t5x_lite.images.geometry import (
    Box,
    Interpolation,
    Planes,
    center_crop,
    inside,
    random_box,
    random_crop,
    random_place,
    resample,
)
from t5x_lite.images.randaugment import RandAugment
from t5x_lite.validation import NonNegativeFloat, Positive, Range, Share, Validated

PixelStatistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, on a scale of 0 to 1."""

STATISTICS: dict[str, PixelStatistics] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""(mean, standard deviation) of red, green and blue on a scale of 0 to 1; grey pictures have their averages."""

Statistics = Literal["imagenet", "inception", "clip", "none"]


@dataclass(frozen=True)
class ColorJitter(Validated):
    """Brightness, contrast and saturation times a factor uniform in [1 - x, 1 + x], and the hue turned by a share of
    the circle uniform in [-hue, hue], in a random order; as torchvision has it."""

    brightness: NonNegativeFloat = 0.3
    contrast: NonNegativeFloat = 0.3
    saturation: NonNegativeFloat = 0.3
    hue: Annotated[float, Range(ge=0, le=0.5)] = 0.0

    def __call__(self, key: Key[Array, ""], planes: Planes) -> Planes:
        order_key, key = jax.random.split(key)
        operations = {
            "brightness": colors.brightness,
            "contrast": colors.contrast,
            "saturation": colors.color,
            "hue": colors.hue,
        }
        used = [name for name in operations if getattr(self, name)]
        draws = jax.random.uniform(key, (4,), minval=-1.0)
        order = jax.random.permutation(order_key, len(used))
        for turn in range(len(used)):
            result = planes
            for number, name in enumerate(used):
                change = getattr(self, name) * draws[number]
                amount = change if name == "hue" else jnp.maximum(1.0 + change, 0.0)
                result = jnp.where(order[turn] == number, operations[name](planes, amount), result)
            planes = result
        return planes


@dataclass(frozen=True)
class RandomErasing(Validated):
    """A box of noise, standard normal in the normalized picture (Zhong et al. 2020, section 3; noise as in timm)."""

    probability: Share = 0.25
    area: tuple[float, float] = (0.02, 1 / 3)
    """The least and the most of the picture's area."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    """The least and the most of width / height."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ranges("random_erasing.", self.area, self.aspect)

    def __call__(self, key: Key[Array, ""], planes: Planes) -> Planes:
        box_key, use_key, noise_key = jax.random.split(key, 3)
        _, height, width = planes.shape
        box, found = random_box(box_key, jnp.array([height, width]), self.area, self.aspect)
        erased = inside(box, height, width) & found & (jax.random.uniform(use_key) < self.probability)
        return jnp.where(erased[None], jax.random.normal(noise_key, planes.shape), planes)


@dataclass(frozen=True)
class Augmentation(Validated):
    """A picture of any size to one of `image_size`: cropped, mirrored, its colors changed, normalized, in this order.

    The default is that of most recipes; `for_evaluation` has no randomness. Each picture depends on its key alone.
    """

    image_size: tuple[int, int] = (224, 224)
    """Height and width of the result."""
    resize: Positive | Literal["stretch"] | None = None
    """In evaluation, and without `area`: the length of the shorter side before the center is cut out; None is that of
    the result, so that no more is cut than its aspect needs; "stretch" cuts nothing, whatever the aspect."""
    area: tuple[float, float] | None = (0.08, 1.0)
    """The least and the most of the picture's area in a random crop (Szegedy et al. 2015, section 6); None cuts out the
    most that the result's aspect allows."""
    position: Literal["center", "random"] = "center"
    """Of a crop without `area`: "random" is CLIP's square of a picture that was scaled (Radford et al. 2021, section
    2.4)."""
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    """The least and the most of width / height of a random crop."""
    flip: Share = 0.5
    """The share of pictures that are mirrored, left to right."""
    interpolation: Interpolation = "bicubic"
    rand_augment: RandAugment | None = None
    three_augment: bool = False
    """One of grayscale, solarize and blur by a Gaussian of 0.1 to 2 pixels (Touvron et al. 2022, section 3.3)."""
    color_jitter: ColorJitter | None = None
    normalization: Statistics = "imagenet"
    """What is subtracted and divided by: see `STATISTICS`."""
    random_erasing: RandomErasing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.image_size) < 1:
            raise InputError(f"augmentation.image_size={self.image_size} is empty; choose 1 or more pixels a side")
        if isinstance(self.resize, int) and self.resize < min(self.image_size):
            raise InputError(
                f"augmentation.resize={self.resize} is smaller than the shorter side of image_size={self.image_size}; "
                f"choose {min(self.image_size)} or more"
            )
        _check_ranges("augmentation.", self.area or (1.0, 1.0), self.aspect)

    def to_pixels(self, images: Float[Array | np.ndarray, "*B C"]) -> UInt8[np.ndarray, "*B C"]:
        """The pixels of its results."""
        return to_pixels(images, *statistics(self.normalization, images.shape[-1]))

    def for_evaluation(self) -> Self:
        """The center of each picture, normalized, and nothing else."""
        return replace(
            self,
            area=None,
            position="center",
            flip=0.0,
            rand_augment=None,
            three_augment=False,
            color_jitter=None,
            random_erasing=None,
        )

    def __call__(
        self, key: Key[Array, ""], image: UInt8[Array, "H W C"], size: Int[Array, "2"]
    ) -> Float[Array, "h w C"]:
        """One picture, normalized, [image_size C] in float32.

        Args:
          image: stretched to a canvas of any height and width; C is 1 or 3.
          size: the height and width that it had before: crops have the aspects of the original.
        """
        crop_key, flip_key, rand_key, three_key, jitter_key, erase_key = jax.random.split(key, 6)
        if self.area is None and self.resize == "stretch":
            box = Box(*map(jnp.float32, (0.0, 0.0, 1.0, 1.0)))
        elif self.area is None:
            box = center_crop(size, self.image_size, self.resize or min(self.image_size))
            if self.position == "random":
                box = random_place(crop_key, box)
        else:
            box = random_crop(crop_key, size, self.area, self.aspect)
        flip = jax.random.uniform(flip_key) < self.flip if self.flip else False
        planes = resample(image.astype(jnp.float32), box, self.image_size, self.interpolation, flip)
        planes = colors.to_bytes(planes + 0.5)
        if self.rand_augment:
            planes = self.rand_augment(rand_key, planes)
        if self.three_augment:
            planes = augment_by_one_of_three(three_key, planes)
        if self.color_jitter:
            planes = self.color_jitter(jitter_key, planes)
        mean, std = statistics(self.normalization, len(planes))
        planes = (planes / 255.0 - mean[:, None, None]) / std[:, None, None]
        if self.random_erasing:
            planes = self.random_erasing(erase_key, planes)
        return planes.transpose(1, 2, 0)


def augment_by_one_of_three(key: Key[Array, ""], planes: Planes) -> Planes:
    """Grayscale, solarize (from 128 on) or a blur, one of the three (Touvron et al. 2022, section 3.3)."""
    choice_key, sigma_key = jax.random.split(key)
    choice = jax.random.randint(choice_key, (), 0, 3)
    sigma = jax.random.uniform(sigma_key, minval=0.1, maxval=2.0)
    others = jnp.where(choice == 1, colors.solarize(planes, 128.0), colors.gaussian_blur(planes, sigma))
    return jnp.where(choice == 0, colors.grayscale(planes), others)


def statistics(
    given: Statistics | PixelStatistics, channels: int
) -> tuple[Float[np.ndarray, "C"], Float[np.ndarray, "C"]]:
    """(mean, standard deviation) of each channel; those of colors are averaged for grey pictures."""
    mean, std = (np.float32(values) for values in (STATISTICS[given] if isinstance(given, str) else given))
    return (mean, std) if channels == len(mean) else (mean.mean(keepdims=True), std.mean(keepdims=True))


def to_pixels(
    images: Float[Array | np.ndarray, "*B C"], mean: Float[np.ndarray, "C"], std: Float[np.ndarray, "C"]
) -> UInt8[np.ndarray, "*B C"]:
    """The pixels of normalized pictures: the inverse of normalization, rounded.

    >>> to_pixels(np.float32([[-1.0], [0.0], [1.0]]), np.float32([0.5]), np.float32([0.5])).tolist()
    [[0], [128], [255]]
    """
    return np.clip(np.rint(255 * (np.asarray(images, np.float32) * std + mean)), 0, 255).astype(np.uint8)


def _check_ranges(prefix: str, area: tuple[float, float], aspect: tuple[float, float]) -> None:
    if not 0 < area[0] <= area[1] <= 1:
        raise InputError(f"{prefix}area={area} is not a range of shares; choose two in (0, 1], the smaller first")
    if not 0 < aspect[0] <= aspect[1] < float("inf"):
        raise InputError(f"{prefix}aspect={aspect} is not a range of ratios; choose two above 0, the smaller first")
