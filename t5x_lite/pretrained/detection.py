"""A model that finds the objects of pictures, in a notebook: boxes with classes, and where each query looks."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, UInt8

from t5x_lite.errors import InputError
from t5x_lite.images.decoding import decode_image, picture_size
from t5x_lite.images.preparation import BoxPreparation, Image, ImagePreparation, open_image, prepare_image
from t5x_lite.objectives.detection import detected
from t5x_lite.pretrained.batches import power
from t5x_lite.pretrained.images import DrawnResult, ReadsImages, named_images

if TYPE_CHECKING:
    from t5x_lite.pictures.drawing import Picture as Drawn

THRESHOLD = 0.7
"""The probability above which an object counts as found, as in the authors' pictures."""
_ROWS = 4  # pictures of a batch, which are large


class FoundObject(NamedTuple):
    """An object in a picture."""

    label: str
    """The name of its class."""
    score: float
    """The probability of this class."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in pixels of the picture as it is; sides may lie outside of it."""
    query: int
    """The number of the query that found it."""


@dataclass(frozen=True, repr=False)
class FoundObjects(DrawnResult):
    """The objects that were found in a picture, the surest first. A notebook shows the picture with their boxes."""

    original: UInt8[np.ndarray, "H W C"]
    objects: tuple[FoundObject, ...]
    model: str = ""
    """The model's name, for the title."""

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[FoundObject]:
        return iter(self.objects)

    def __getitem__(self, number: int) -> FoundObject:
        return self.objects[number]

    @property
    def boxes(self) -> Float[np.ndarray, "N 4"]:
        """Left, top, right, bottom of each, in pixels."""
        return np.array([one.box for one in self.objects], np.float32).reshape(-1, 4)

    @property
    def scores(self) -> Float[np.ndarray, "N"]:
        return np.array([one.score for one in self.objects], np.float32)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(one.label for one in self.objects)

    def __repr__(self) -> str:
        lines = (
            f"  {one.score:6.1%}  {one.label}: " + " ".join(f"{side:.1f}" for side in one.box) for one in self.objects
        )
        return "\n".join((f"FoundObjects: {len(self)}, with left, top, right, bottom in pixels", *lines))

    def picture(self) -> "Drawn":
        """The picture, and the boxes in the colors of their classes."""
        from t5x_lite.pictures.drawing import LabeledBox, draw_boxes

        boxes = [LabeledBox(one.box, f"{one.label} {one.score:.0%}", one.label) for one in self.objects]
        return draw_boxes(self.original, boxes, self.model)


@dataclass(frozen=True, repr=False)
class QueryAttention(DrawnResult):
    """Where the queries that found the objects of a picture look: the weights of the last decoder layer over what the
    encoder gives, averaged over its heads (Carion et al. 2020, figure 6)."""

    found: FoundObjects
    weights: Float[np.ndarray, "N h w"]
    """Of each object, by row and column of the feature map; each sums to one."""

    def __repr__(self) -> str:
        count, rows, columns = self.weights.shape
        return f"QueryAttention: {count} objects, {rows} x {columns} positions of the feature map"

    def picture(self) -> "Drawn":
        """The picture once for each object, with its box and the weights laid over it."""
        from t5x_lite.pictures.drawing import LabeledBox, draw_box_attention

        boxes = [LabeledBox(one.box, f"{one.label} {one.score:.0%}", one.label) for one in self.found]
        return draw_box_attention(self.found.original, boxes, self.weights, self.found.model)


@dataclass(frozen=True, repr=False)
class PretrainedDetector(ReadsImages):
    """`detect` for the objects of a picture, `attention` for where the model looks as it finds them.

    Pictures, and how they are prepared: see `ReadsImages`.
    """

    @property
    def abilities(self) -> tuple[str, ...]:
        return ("detect", "attention")

    @cached_property
    def preparation(self) -> ImagePreparation:
        if self._is_prepared_by_run:
            objective = self.experiment.objective
            augmentation = objective.augmentation.for_evaluation()
            return BoxPreparation(augmentation, objective.canvas_size, self._image_config.num_channels)
        return super().preparation

    def detect(self, image: Image | list[Image], threshold: float = THRESHOLD) -> Any:
        """The objects of a picture: classes, scores and boxes in pixels, and a picture with them; a list gives a list.

        Args:
          threshold: objects with a lower probability are left out.

        Raises `InputError` for a threshold that is not from 0 to 1.
        """
        given = [self._found(*one, threshold)[0] for one in self._outputs(image, _detect)]
        return given if isinstance(image, list | tuple) else given[0]

    def attention(self, image: Image, threshold: float = THRESHOLD) -> QueryAttention:
        """What each query that finds an object looks at; a notebook shows it.

        Raises `InputError` for several pictures, and where nothing is found.
        """
        if isinstance(image, list | tuple):
            raise InputError(f"image is a list of {len(image)}; give one picture")
        ((pixels, outputs),) = self._outputs(image, _detect_with_attention)
        found, queries = self._found(pixels, outputs["found"], threshold)
        if not len(found):
            best = outputs["found"][:, 4].max()
            raise InputError(f"threshold={threshold}: nothing is found with more than {best:.2f}; choose less")
        rows, columns = outputs["counts"]
        # What is not of the picture has no weight.
        weights = outputs["weights"][queries][:, :rows, :columns]
        return QueryAttention(found, weights)

    def _outputs(self, image: Image | list[Image], function: Any) -> list[tuple[UInt8[np.ndarray, "H W C"], Any]]:
        """(the pixels as they are, what `function(module, params, images, extents)` gives) of each picture."""
        named, results = named_images(image), []
        for start in range(0, len(named), _ROWS):
            read = [_read(self.preparation, one, name) for name, one in named[start : start + _ROWS]]
            outputs: list[Any] = [None] * len(read)
            for shape in dict.fromkeys(one.prepared.shape for one in read):
                indices = [index for index, one in enumerate(read) if one.prepared.shape == shape]
                # Rows that fill up a batch are copies of the last one.
                rows = (indices + indices[-1:] * len(indices))[: power(len(indices), 1)]
                batch = np.stack([read[index].prepared for index in rows])
                extents = np.array([read[index].extent for index in rows], np.int32)
                given = jax.device_get(function(self.module, self.params, batch, extents))
                for number, index in enumerate(indices):
                    outputs[index] = jax.tree.map(lambda leaf, number=number: leaf[number], given)
            results += [(one.pixels, output) for one, output in zip(read, outputs, strict=True)]
        return results

    def _found(
        self, pixels: UInt8[np.ndarray, "H W C"], output: Float[np.ndarray, "Q 6"], threshold: float
    ) -> tuple[FoundObjects, list[int]]:
        """(the objects above a threshold, their queries)."""
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InputError(f"threshold={threshold} is out of range; choose a probability, from 0 to 1")
        count = self.config.num_classes
        names = self._class_names
        names = names if len(names) == count else tuple(map(str, range(count)))
        height, width = pixels.shape[:2]
        kept = [number for number in np.argsort(-output[:, 4], kind="stable").tolist() if output[number, 4] > threshold]
        objects = []
        for number in kept:
            left, top, right, bottom = (output[number, :4] * np.float32([width, height, width, height])).tolist()
            score, label = float(output[number, 4]), names[int(output[number, 5])]
            objects.append(FoundObject(label, score, (left, top, right, bottom), number))
        return FoundObjects(pixels, tuple(objects), self.title), kept


class _Read(NamedTuple):
    """A picture, and what the model reads of it."""

    pixels: UInt8[np.ndarray, "H W C"]
    prepared: Float[np.ndarray, "h w C"]
    extent: tuple[int, int]


def _read(preparation: ImagePreparation, image: Image, name: str) -> _Read:
    prepared = prepare_image(preparation, image, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = open_image(image, name)
        size = picture_size(opened)
        pixels = decode_image(opened, (*size, prepared.shape[-1]))
    is_padded = isinstance(preparation, BoxPreparation)
    return _Read(pixels, prepared, preparation.extent(size) if is_padded else prepared.shape[:2])


@partial(jax.jit, static_argnums=0)
def _detect(
    module: nn.Module, params: Any, images: Float[Array, "B H W C"], extents: Int[Array, "B 2"]
) -> Float[Array, "B Q 6"]:
    return detected(module.apply({"params": params}, images, extents))


@partial(jax.jit, static_argnums=0)
def _detect_with_attention(
    module: nn.Module, params: Any, images: Float[Array, "B H W C"], extents: Int[Array, "B 2"]
) -> dict[str, Array]:
    found, sown = module.apply({"params": params}, images, extents, mutable=["intermediates"])
    weights = sown["intermediates"]["decoder"]["layers"]["cross_attention"]["weights"][-1][-1]  # [B H Q P]
    reduction = module.config.backbone.reduction
    rows, columns = (-(-side // reduction) for side in images.shape[1:3])
    mean = weights.astype(jnp.float32).mean(axis=1).reshape(len(images), -1, rows, columns)
    return {"found": detected(found), "weights": mean, "counts": module.valid_counts(images, extents)}
