"""Pictures in any form to what a model reads in inference: decoded, scaled, cropped and normalized as in training."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from t5x_lite.errors import InputError
from t5x_lite.files import read_bytes
from t5x_lite.images.augmentation import STATISTICS, Augmentation, statistics, to_pixels
from t5x_lite.images.box_augmentation import BoxAugmentation
from t5x_lite.images.decoding import BadImageError, Picture, decode_image, picture_size

Image = Any
"""A path or the bytes of a picture file, a Pillow picture, or uint8 [H W] or [H W C] with 1, 3 or 4 channels."""

_RESAMPLING = {"nearest": 0, "bilinear": 2, "bicubic": 3}
_SQUARE, _SHORT = {"height": 224, "width": 224}, {"shortest_edge": 224}
_HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_USUAL: dict[str, dict[str, Any]] = {
    "ViT": {"size": _SQUARE, "resample": 2},
    "DeiT": {"size": {"height": 256, "width": 256}, "resample": 3, "do_center_crop": True, "crop_size": _SQUARE},
    "ConvNext": {"size": {"shortest_edge": 384}, "resample": 3, "crop_pct": 224 / 256},
    "Bit": {"size": _SHORT, "resample": 3, "do_center_crop": True, "crop_size": _SQUARE},
    "CLIP": {"size": _SHORT, "resample": 3, "do_center_crop": True, "crop_size": _SQUARE},
    "Siglip": {"size": _SQUARE, "resample": 3},
    "Detr": {
        "size": {"shortest_edge": 800, "longest_edge": 1333},
        "resample": 2,
        **dict(zip(("image_mean", "image_std"), map(list, STATISTICS["imagenet"]), strict=True)),
    },
}
"""By class of Transformers what a preprocessor_config.json of it may leave out."""


class ImagePreparation(ABC):
    """What a model reads of a picture, [h w C] in float32."""

    @abstractmethod
    def __call__(self, image: bytes | Picture) -> Float[np.ndarray, "h w C"]:
        """The picture that is left of a file's bytes or a Pillow picture. Raises `BadImageError`."""

    @property
    @abstractmethod
    def statistics(self) -> tuple[Float[np.ndarray, "C"], Float[np.ndarray, "C"]]:
        """The mean and the deviation of each channel that normalize pixels from 0 to 1."""

    @property
    @abstractmethod
    def processor(self) -> dict[str, Any]:
        """The same as Hugging Face's preprocessor_config.json."""

    def to_pixels(self, images: Float[np.ndarray, "*B C"]) -> UInt8[np.ndarray, "*B C"]:
        """The pixels of pictures as a model reads them."""
        return to_pixels(images, *self.statistics)


@dataclass(frozen=True)
class EvaluationPreparation(ImagePreparation):
    """That of a run: stretched to its canvas, then its augmentation as in evaluation."""

    augmentation: Augmentation
    """What `Augmentation.for_evaluation` gives."""
    canvas_size: tuple[int, int]
    num_channels: int

    def __call__(self, image: bytes | Picture) -> Float[np.ndarray, "h w C"]:
        canvas = decode_image(image, (*self.canvas_size, self.num_channels))
        return np.asarray(self._augmented(canvas, np.array(picture_size(image), np.int32)))

    def _augmented(self, canvas: UInt8[np.ndarray, "H W C"], size: Int[np.ndarray, "2"]) -> Float[Array, "h w C"]:
        return _augment(self.augmentation, canvas, size)

    @property
    def statistics(self) -> tuple[Float[np.ndarray, "C"], Float[np.ndarray, "C"]]:
        return statistics(self.augmentation.normalization, self.num_channels)

    @property
    def processor(self) -> dict[str, Any]:
        """The center of a square picture, or the whole picture stretched to it; where `image_size` is a rectangle,
        which no class of theirs cuts out, the whole picture stretched to that."""
        height, width = self.augmentation.image_size
        described = {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": self.augmentation.resize or height},
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
            "do_convert_rgb": self.num_channels == 3,
        }
        if height != width or self.augmentation.resize == "stretch":
            described = {"image_processor_type": "ViTImageProcessor", "size": {"height": height, "width": width}}
        return described | self._numbers

    @property
    def _numbers(self) -> dict[str, Any]:
        """What the file says of filters and of pixels."""
        mean, std = (values.astype(float).round(8).tolist() for values in self.statistics)
        return {
            "do_resize": True,
            "resample": _RESAMPLING[self.augmentation.interpolation],
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": mean,
            "image_std": std,
        }


@dataclass(frozen=True)
class BoxPreparation(EvaluationPreparation):
    """That of a run that finds objects: on a canvas of one size, which the picture fills in part."""

    augmentation: BoxAugmentation

    def _augmented(self, canvas: UInt8[np.ndarray, "H W C"], size: Int[np.ndarray, "2"]) -> Float[Array, "h w C"]:
        return _augment(self.augmentation, canvas, size, np.zeros((0, 4), np.float32), np.zeros(0, bool))[0]

    def extent(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width on the canvas of a picture of this height and width."""
        height, width = np.asarray(self.augmentation.extent(np.array(size, np.int32))).tolist()
        return height, width

    @property
    def processor(self) -> dict[str, Any]:
        """Pictures scaled as on the canvas, which has a size of its own for each batch there."""
        sides = {"shortest_edge": max(self.augmentation.short_sides), "longest_edge": self.augmentation.longest}
        described = {"image_processor_type": "DetrImageProcessor", "format": "coco_detection", "size": sides}
        return described | self._numbers | {"do_pad": True}


@partial(jax.jit, static_argnums=0)
def _augment(augmentation: Augmentation | BoxAugmentation, *picture: Array) -> Any:
    return augmentation(jax.random.key(0), *picture)


@dataclass(frozen=True)
class ProcessorPreparation(ImagePreparation):
    """That of a preprocessor_config.json, as Transformers computes it with Pillow; see `read_processor`."""

    size: tuple[int, int] | int | None
    """Height and width, or the length of the shorter side; None keeps the size."""
    resample: int
    """The filter, by Pillow's number."""
    crop: tuple[int, int] | None
    """Height and width of the center that is cut out; black where the picture is smaller."""
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_channels: int
    described: Mapping[str, Any]
    """The file."""
    longest: int | None = None
    """What the longer side has at most, where `size` is the shorter one's."""

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of what is left; None where it depends on the picture."""
        return self.crop or (self.size if isinstance(self.size, tuple) else None)

    def __call__(self, image: bytes | Picture) -> Float[np.ndarray, "h w C"]:
        pixels = self.resized(image).astype(np.float32) * self.scale
        return ((pixels - np.float32(self.mean)) / np.float32(self.std)).astype(np.float32)

    def resized(self, image: bytes | Picture) -> UInt8[np.ndarray, "h w C"]:
        """The pixels of `__call__` before they are normalized. Raises `BadImageError`."""
        from PIL import Image

        height, width = picture_size(image)
        pixels = decode_image(image, (height, width, self.num_channels))
        picture = Image.fromarray(pixels[..., 0] if self.num_channels == 1 else pixels)
        size = self.size
        if isinstance(size, int):
            short, long = min(height, width), max(height, width)
            ends = (size, int(size * long / short))
            if self.longest is not None and long / short * size > self.longest:
                limited = self.longest * short / long
                ends = (round(limited), int(limited * long / short))
            size = ends if height <= width else ends[::-1]
        if size is not None:
            picture = picture.resize(size[::-1], Image.Resampling(self.resample))
        if self.crop is not None:
            top, left = ((side - new) // 2 for side, new in zip(picture.size[::-1], self.crop, strict=True))
            picture = picture.crop((left, top, left + self.crop[1], top + self.crop[0]))
        return np.asarray(picture).reshape(*picture.size[::-1], self.num_channels)

    @property
    def statistics(self) -> tuple[Float[np.ndarray, "C"], Float[np.ndarray, "C"]]:
        mean, std = (np.float32(values) / np.float32(255 * self.scale) for values in (self.mean, self.std))
        return mean, std

    @property
    def processor(self) -> dict[str, Any]:
        return dict(self.described)


def read_processor(described: Mapping[str, Any], num_channels: int) -> ProcessorPreparation:
    """The preparation that a preprocessor_config.json describes, in the words of any version of Transformers.

    Raises `InputError` for a class of Transformers that prepares pictures in another way, for values that are not
    valid, and for another number of channels.
    """
    kind = described.get("image_processor_type") or described.get("feature_extractor_type") or "ViTImageProcessor"
    family = str(kind)
    for end in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        family = family.removesuffix(end)
    if family not in _USUAL:
        known = ", ".join(f"{name}ImageProcessor" for name in _USUAL)
        raise InputError(
            f"image_processor_type={kind!r:.99} in preprocessor_config.json is not one that we have; choose a model "
            f"with one of {known}"
        )
    given = {name: value for name, value in described.items() if value is not None}
    values = {"do_resize": True, "do_center_crop": False, "do_rescale": True, "do_normalize": True}
    values |= {"rescale_factor": 1 / 255} | _HALVES | _USUAL[family] | given

    def number(name: str, value: Any, kinds: tuple[type, ...] = (int,)) -> Any:
        if type(value) not in kinds or not 0 < value < 1 << 20:
            raise InputError(
                f"{name}={values[name]!r:.99} in preprocessor_config.json is not valid; it is damaged: fetch it again"
            )
        return value

    def sides(name: str) -> tuple[int, int] | int:
        value = values[name]
        if isinstance(value, dict) and "shortest_edge" in value:
            if family == "Detr" and "longest_edge" not in value:
                number(name, None)
            return number(name, value["shortest_edge"])
        if isinstance(value, dict):
            return number(name, value.get("height")), number(name, value.get("width"))
        # Early versions wrote one number.
        of_short = ("ConvNext", "Bit", "CLIP", "Detr")
        return number(name, value) if family in of_short else (number(name, value),) * 2

    size, longest = sides("size") if values["do_resize"] else None, None
    if family == "Detr" and isinstance(size, int):
        given_size = (
            values["size"] if isinstance(values["size"], dict) else {"longest_edge": values.get("max_size", 1333)}
        )
        longest = number("size", given_size.get("longest_edge"))
    crop = sides("crop_size") if values["do_center_crop"] else None
    if family == "ConvNext" and size is not None:
        size = size if isinstance(size, int) else number("size", None)
        if size < 384:
            crop = (size, size) if crop is None else crop
            size = int(size / number("crop_pct", values["crop_pct"], (int, float)))
        else:
            size = (size, size)
    channels = {}
    for name, neutral in (("image_mean", 0.0), ("image_std", 1.0)):
        listed = values[name] if isinstance(values[name], list) else [values[name]]
        listed = listed if values["do_normalize"] else [neutral]
        if not all(type(value) in (int, float) for value in listed) or (name == "image_std" and min(listed) <= 0):
            number(name, None)
        if len(listed) not in (1, num_channels):
            raise InputError(
                f"{name}={listed} in preprocessor_config.json is of {len(listed)} channels, and the model has "
                f"num_channels={num_channels}; correct one of the two"
            )
        channels[name] = tuple(map(float, listed * (num_channels // len(listed))))
    scale = number("rescale_factor", values["rescale_factor"], (int, float)) if values["do_rescale"] else 1.0
    resample = values["resample"]
    if type(resample) is not int or not 0 <= resample <= 5:
        number("resample", None)
    crop = (crop, crop) if isinstance(crop, int) else crop
    options = (channels["image_mean"], channels["image_std"], num_channels, described)
    return ProcessorPreparation(size, resample, crop, scale, *options, longest)


def open_image(image: Image, name: str) -> bytes | Picture:
    """The bytes of a file, or a Pillow picture, of a picture in any form, which messages call `name`.

    Raises `InputError` for a file that is missing, and for arrays of other shapes and types.
    """
    from PIL import Image as PillowImage

    if isinstance(image, str | Path):
        return read_bytes(image, name)
    if isinstance(image, bytes | PillowImage.Image):
        return image
    if not isinstance(image, np.ndarray | jax.Array):
        raise InputError(
            f"{name} is a {type(image).__name__}, not a picture; give a path, bytes, a Pillow picture or a uint8 array"
        )
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        raise InputError(f"{name} has type {pixels.dtype}; give uint8, pixels from 0 to 255")
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)) or not pixels.size:
        raise InputError(
            f"{name} has shape {pixels.shape}; give [H, W] or [H, W, C] with 1, 3 or 4 channels, and several pictures "
            "as a list"
        )
    return PillowImage.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))


def prepare_image(preparation: ImagePreparation, image: Image, name: str) -> Float[np.ndarray, "h w C"]:
    """What a model reads of a picture in any form. Raises `InputError`, which begins with its path or `name`."""
    label = str(image) if isinstance(image, str | Path) else name
    try:
        # A picture that can be read is no reason to warn, of its size or of damaged EXIF data.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return preparation(open_image(image, name))
    except BadImageError as error:
        raise InputError(f"{label}: {error}") from None
