"""Texts and pairs of texts with a label, or with a number."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import (
    DELIMITER_IDS,
    Column,
    EncoderRows,
    RowBuilder,
    RowLength,
    RowSpec,
    UnfitDocumentError,
    too_many_ids,
    truncated_lengths,
)
from t5x_lite.data.records.base import Record, field_of, name_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource, UnknownLabelError, check_labels
from t5x_lite.errors import InputError


class LabeledText(NamedTuple):
    """An example as a task reads it, and where it stands."""

    location: str
    texts: tuple[str, ...]
    """One text, or two."""
    label: float
    """The number of its class, or the number that is to be predicted."""
    name: Any = None
    """See `name_of`."""


@dataclass(frozen=True)
class LabeledTexts(TaskSource):
    """Examples of a task on whole texts: sentiment, inference, paraphrase, similarity."""

    texts: tuple[str, ...] = ("text",)
    """The field of the text, or those of a pair in their order."""
    label: str = "label"
    """The field of the label; empty where labels are not known, as in a benchmark's test set."""
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data; empty: labels are numbers that are to be predicted."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out, such as '-' in SNLI, on which its annotators did not agree."""

    answer_option: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.texts) <= 2:
            raise InputError(f"texts={self.texts} are {len(self.texts)} fields; name one, or the two of a pair")
        check_labels(self.labels, self.left_out)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    def convert(self, record: Record) -> list[LabeledText]:
        """The example, unless it is left out."""
        written = str(field_of(record, self.label, "label")).strip() if self.label else ""
        if self.label and written in self.left_out:
            return []
        label = self._number(record, written) if self.label else 0.0
        texts = tuple(text_in(record, name, "texts") for name in self.texts)
        return [LabeledText(record.location, texts, label, name_of(record))]

    def _number(self, record: Record, written: str) -> float:
        if self.labels:
            if written not in self.labels:
                raise UnknownLabelError("label", self.label, self.labels, (written,))
            return float(self.labels.index(written))
        try:
            number = float(written)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InputError(
                f"label={written!r} in {record.location} is not a number; correct it, leave such examples out by "
                "left_out, or name the classes in labels"
            )
        return number


class LabeledRows(EncoderRows):
    """See `Labeled` and `Delimited`."""

    def add(self, document: list[Any]) -> None:
        *texts, label = document
        if self._layout.pairs and len(texts) < 2:
            raise UnfitDocumentError(
                "it has one text, which cannot be read in both orders; name the fields of a pair in data.source.texts, "
                "or set objective.both_orders to False"
            )
        self.documents += 1
        lengths = list(map(len, texts))
        self.tokens += sum(lengths)
        room = self._layout.length - 1 - len(texts)
        if sum(lengths) > room:
            self._count_too_long(too_many_ids(sum(lengths) + 1 + len(texts), self._layout.length))
        kept = truncated_lengths(lengths, room)
        cut = [text[:length] for text, length in zip(texts, kept, strict=True)]
        ids = self._special.join(self._layout.length, *cut)
        self._emit(room - sum(kept), ids=ids, label=np.float32(label))


@dataclass(frozen=True)
class Labeled(TaskLayout):
    """An example a row: `[CLS] A [SEP] pad ...` or `[CLS] A [SEP] B [SEP] pad ...` (Devlin et al. 2019, figure 4), and
    its `label`.

    What is too long loses the ends of its texts, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> from t5x_lite.data import Vocabulary
    >>> rows = Labeled(8).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12, 13, 14, 15], np.int32), 2.5])
    >>> [(row["ids"].tolist(), row["label"].item()) for row in rows.take()]
    [([2, 10, 11, 3, 12, 13, 14, 3], 2.5)]
    """

    length: RowLength
    """Ids of a row, special ones included."""
    pairs: bool = False
    """Every example must have two texts."""

    source_type: ClassVar[type] = LabeledTexts
    builder: ClassVar[type[RowBuilder]] = LabeledRows

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"label": Column((), np.float32)}


@dataclass(frozen=True)
class Delimited(Labeled):
    """An example a row as a decoder reads it: `start A extract pad ...` or `start A delimiter B extract pad ...`, and
    its `label`.

    >>> from t5x_lite.data import Vocabulary
    >>> rows = Delimited(8).start(Vocabulary(size=100))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12], np.int32), 1.0])
    >>> rows.take()[0]["ids"].tolist()
    [100, 10, 11, 101, 12, 102, 0, 0]
    """

    added_ids: ClassVar[tuple[str, ...]] = DELIMITER_IDS
