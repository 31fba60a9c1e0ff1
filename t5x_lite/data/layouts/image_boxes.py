"""Rows of pictures with boxes around objects."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.data.layouts.base import Column, Layout, RowSpec
from t5x_lite.data.layouts.images import ImageRows, Images
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.boxes import BoxedImage, BoxSource, ImageObjects
from t5x_lite.images.decoding import BadImageError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Positive


class ImageBoxRows(ImageRows):
    """Its tables of counts are those of `ImageRows`; `labels`, the objects of each class; `objects`, how many a picture
    has, by powers of two; and `boxes`, what is wrong with some."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary | None) -> None:
        super().__init__(layout, vocabulary)

    def add(self, document: list[Any]) -> None:
        row, location, objects = document
        height_width = objects.size
        if not isinstance(row, BadImageError) and height_width not in (None, tuple(row[0].size)):
            (height, width), (other_height, other_width) = row[0].size, height_width
            row = BadImageError(
                "of another size",
                f"of {width} x {height} pixels, and {other_width} x {other_height} where its boxes are",
                "correct one of the two",
            )
        super().add([row, location])
        if isinstance(row, BadImageError):
            return
        layout, count = self._layout, len(objects.boxes)
        if count > layout.max_boxes:
            self._count_too_long(f"a picture has {count} objects and a row room for {layout.max_boxes}")
        kept = _largest(objects, layout.max_boxes)
        height, width = row[0].size
        columns = {
            "boxes": np.zeros((layout.max_boxes, 4), np.float32),
            "classes": np.zeros(layout.max_boxes, np.int32),
            "areas": np.zeros(layout.max_boxes, np.float32),
            "crowd": np.zeros(layout.max_boxes, np.int32),
        }
        if kept:
            columns["boxes"][: len(kept)] = [objects.boxes[number] for number in kept]
            columns["classes"][: len(kept)] = [objects.classes[number] for number in kept]
            columns["areas"][: len(kept)] = [objects.areas[number] * height * width for number in kept]
            columns["crowd"][: len(kept)] = [objects.crowd[number] for number in kept]
        for number in objects.classes:
            self._count("labels", str(number))
        self._count("objects", str(1 << count.bit_length() - 1 if count else 0))
        for problem in objects.problems:
            self._count("boxes", problem)
        self._ready[-1] |= columns | {"num_boxes": np.int32(len(kept))}


def _largest(objects: ImageObjects, most: int) -> list[int]:
    """The numbers of the objects that a row keeps, in order: all, or the largest ones."""
    numbers = range(len(objects.boxes))
    if len(numbers) <= most:
        return list(numbers)
    return sorted(sorted(numbers, key=lambda number: -objects.areas[number])[:most])


@dataclass(frozen=True)
class ImageBoxes(Images):
    """A picture a row, as `Images` has it, without a label; `boxes`, of its objects, `max_boxes` at most: left, top,
    right, bottom, as shares of width and height; `classes`, `areas` (square pixels) and `crowd` (1 for a box around
    many) of these; and `num_boxes`, how many there are. Of more the largest ones are kept.

    >>> [(name, column.shape) for name, column in ImageBoxes(28, 28, max_boxes=9).spec.items()][:4]
    [('image', (28, 28, 3)), ('size', (2,)), ('boxes', (9, 4)), ('classes', (9,))]
    """

    labels: bool = False
    max_boxes: Positive = 100
    """Objects of a picture, at most."""

    source_type = BoxSource
    builder = ImageBoxRows
    too_long_means = "with more objects than a row holds, of which the smallest are left out"

    @property
    def spec(self) -> RowSpec:
        many = (self.max_boxes,)
        columns = {"boxes": Column((*many, 4), np.float32), "classes": Column(many), "areas": Column(many, np.float32)}
        return super().spec | columns | {"crowd": Column(many), "num_boxes": Column(())}

    def examples(self, source: BoxSource) -> Iterator[BoxedImage]:
        return source.read_boxed()

    def classes_of(self, source: BoxSource) -> tuple[str, ...]:
        return source.read_classes()

    def tokenize(
        self, examples: list[BoxedImage], tokenizer: Tokenizer | None, sentences: SentenceRule
    ) -> Iterator[list[Any]]:
        rows = super().tokenize(examples, tokenizer, sentences)
        return ([*row, example.objects] for row, example in zip(rows, examples, strict=True))
