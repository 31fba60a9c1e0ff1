"""Rows of pictures with their texts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.data.layouts.base import Column, Layout, Row, RowSpec
from t5x_lite.data.layouts.images import ImageRows, Images
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.captions import CaptionedImage, CaptionSource
from t5x_lite.images.decoding import BadImageError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Positive


class ImageTextRows(ImageRows):
    """Its tables of counts are those of `ImageRows`, and `captions`: how many texts a picture has."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary | None) -> None:
        super().__init__(layout, vocabulary)
        self._ends = text_ends(vocabulary)

    def add(self, document: list[Any]) -> None:
        *image, texts = document
        super().add(image)
        if isinstance(image[0], BadImageError):
            return
        layout = self._layout
        room = layout.length - len(self._ends)
        if any(len(ids) > room for ids in texts):
            self._count_too_long(f"a text has {max(map(len, texts))} tokens and a row room for {room}")
        captions = np.full((layout.num_captions, layout.length), self._vocabulary.pad_id, np.int32)
        for number, ids in enumerate(texts):
            framed = np.concatenate([self._ends[:-1], ids[:room], self._ends[-1:]])
            captions[number, : len(framed)] = framed
        self._count("captions", str(len(texts)))
        self._ready[-1] |= {"captions": captions, "num_captions": np.int32(len(texts))}
        self.padding += (layout.num_captions - len(texts)) * layout.length


def texts_of_row(row: Row, tokenizer: Tokenizer) -> list[str]:
    """The texts of a row's picture, as a tokenizer reads their ids."""
    return [tokenizer.decode(ids.tolist()) for ids in row["captions"][: int(row["num_captions"])]]


def text_ends(vocabulary: Vocabulary) -> list[int]:
    """The ids around a text: that which begins it, where the vocabulary has one, and that which ends it."""
    begin = [] if vocabulary.cls_id is None else [vocabulary.cls_id]
    return [*begin, vocabulary.eos_id if vocabulary.sep_id is None else vocabulary.sep_id]


@dataclass(frozen=True)
class ImageTexts(Images):
    """A picture a row, as `Images` has it, without a label; `captions`, the ids of its texts, each between the ids that
    begin and end one, as many as `num_captions`; and `num_captions`, how many of them there are.

    >>> {name: column.shape for name, column in ImageTexts(28, 28, length=9, num_captions=2).spec.items()}
    {'image': (28, 28, 3), 'size': (2,), 'captions': (2, 9), 'num_captions': ()}
    """

    labels: bool = False
    length: Positive = 77
    """Ids of a text."""
    num_captions: Positive = 1
    """Texts of a picture, at most: the first ones."""

    source_type = CaptionSource
    builder = ImageTextRows
    too_long_means = "with a text that was cut, longer than a row"

    @property
    def spec(self) -> RowSpec:
        texts = Column((self.num_captions, self.length), is_ids=True)
        return super().spec | {"captions": texts, "num_captions": Column(())}

    def examples(self, source: CaptionSource) -> Iterator[CaptionedImage]:
        return source.read_captioned()

    def tokenize(
        self, examples: list[CaptionedImage], tokenizer: Tokenizer, sentences: SentenceRule
    ) -> Iterator[list[Any]]:
        texts = [example.captions[: self.num_captions] for example in examples]
        ids = iter(tokenizer.encode_batch([text for of_image in texts for text in of_image]))
        rows = super().tokenize(examples, tokenizer, sentences)
        return ([*row, [next(ids) for _ in of_image]] for row, of_image in zip(rows, texts, strict=True))
