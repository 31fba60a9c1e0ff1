"""Rows of pictures: each is one, with the number of its class."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from t5x_lite.data.layouts.base import MOST_NAMED, Column, Layout, RowBuilder, RowSpec
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.images import ImageSource, LabeledImage
from t5x_lite.images.decoding import BadImageError, StoredImage, encode_array, picture_size, stored_image
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Positive

if TYPE_CHECKING:
    from t5x_lite.images.preparation import ProcessorPreparation


class ImageRows(RowBuilder):
    """Its tables of counts: `labels` (numbers of classes), `sizes` (the power of two that the shorter side reaches),
    `stored` ("as they are" or "anew"), and `broken` (what is wrong)."""

    def add(self, document: list[Any]) -> None:
        row, location = document
        self.documents += 1
        if isinstance(row, BadImageError):
            self.skipped += 1
            self._count("broken", row.problem)
            self.broken = [*self.broken, f"{location} ({row.detail})"][:MOST_NAMED]
            return
        stored, label = row
        self._count("sizes", str(1 << min(stored.size).bit_length() - 1))
        self._count("stored", "anew" if stored.is_new else "as they are")
        columns = {"image": stored.content, "size": np.array(stored.size, np.int32)}
        if self._layout.labels:
            self._count("labels", str(label))
            columns["label"] = np.int32(label)
        self._emit(**columns)

    def _count(self, table: str, name: str) -> None:
        self.counts.setdefault(table, Counter())[name] += 1

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} images and a row needs one", "more of them"


@dataclass(frozen=True)
class Images(Layout):
    """A picture a row: `image`, stretched to height x width when it is read; `size`, the height and width that it had;
    and `label`, the number of its class.

    The store keeps the bytes of files, of large and of slow ones scaled down: see `images.stored_image`.

    >>> Images(224, 224).spec["image"].shape, list(Images(28, 28, channels=1, labels=False).spec)
    ((224, 224, 3), ['image', 'size'])
    """

    height: Positive
    width: Positive
    channels: Literal[1, 3] = 3
    """1 is grey, 3 is RGB."""
    labels: bool = True
    """Whether rows have labels; where they do, the source must."""

    source_type = ImageSource
    builder = ImageRows
    unit_name = "images"

    @property
    def has_examples(self) -> bool:
        return self.labels

    @property
    def spec(self) -> RowSpec:
        columns = {
            "image": Column((self.height, self.width, self.channels), np.uint8, encoding="image"),
            "size": Column((2,)),
        }
        return columns | ({"label": Column(())} if self.labels else {})

    def examples(self, source: ImageSource) -> Iterator[LabeledImage]:
        return source.read_images()

    def content(self, example: LabeledImage) -> bytes:
        """The bytes of the file, or of the pixels; of one that cannot be read its location."""
        image = example.image
        if isinstance(image, BadImageError):
            return example.location.encode("utf-8", "surrogateescape")
        return image if isinstance(image, bytes) else f"{image.shape}".encode() + image.tobytes()

    def answer(self, example: LabeledImage) -> tuple[str, str]:
        """A hash of the picture, and the number of its class."""
        return hashlib.blake2b(self.content(example), digest_size=16).hexdigest(), str(example.label)

    def is_readable(self, example: LabeledImage) -> bool:
        return not isinstance(self._row(example), BadImageError)

    def classes_of(self, source: ImageSource) -> tuple[str, ...]:
        return source.read_classes() if self.labels else ()

    def tokenize(
        self, examples: list[LabeledImage], tokenizer: Tokenizer | None, sentences: SentenceRule
    ) -> Iterator[list[Any]]:
        """What a store keeps of each picture, or what is wrong with it; and its location."""
        return ([self._row(example), example.location] for example in examples)

    def _row(self, example: LabeledImage) -> tuple[StoredImage, int] | BadImageError:
        image = example.image
        try:
            if isinstance(image, BadImageError):
                return image
            return self.store(encode_array(image) if isinstance(image, np.ndarray) else image), example.label
        except BadImageError as error:
            return error

    def store(self, content: bytes) -> StoredImage:
        """What a store keeps of the file of a picture. Raises `BadImageError`."""
        return stored_image(content, self.spec["image"].shape)

    def throughput(self, batch_size: int) -> tuple[str, int]:
        return "images", batch_size


@dataclass(frozen=True)
class PreparedImages(Images):
    """The same, each picture prepared for a model from elsewhere before it is stored: only normalization is left."""

    processor: str = "{}"
    """The preprocessor_config.json, which makes pictures of height x width."""

    @cached_property
    def preparation(self) -> "ProcessorPreparation":
        from t5x_lite.images.preparation import read_processor  # with it JAX, which other layouts do without

        return read_processor(json.loads(self.processor), self.channels)

    def store(self, content: bytes) -> StoredImage:
        return StoredImage(encode_array(self.preparation.resized(content)), picture_size(content), True)
