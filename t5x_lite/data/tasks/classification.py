"""Texts and pairs of texts with a label or a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import (
    DELIMITER_IDS,
    Column,
    EncoderRows,
    RowSpec,
    UnfitDocumentError,
    truncated_lengths,
)
from t5x_lite.data.records.base import Record, check_labels, name_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource, class_number, number_label, written_label
from t5x_lite.errors import InputError


class LabeledText(NamedTuple):
    """An example of a task on whole texts."""

    texts: tuple[str, ...]
    label: float
    """The number of its class, or the number to predict."""
    name: Any = None


@dataclass(frozen=True)
class LabeledTexts(TaskSource):
    """Examples of a task on whole texts: sentiment, inference, paraphrase, similarity."""

    texts: tuple[str, ...] = ("text",)
    """The field of the text, or those of a pair in order."""
    label: str = "label"
    """The field of the label; empty where labels are not known, as in a benchmark's test set."""
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data; empty: labels are numbers to predict."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out, such as '-' in SNLI, on which its annotators did not agree."""

    answer_option = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.texts) <= 2:
            raise InputError(f"texts={self.texts} are {len(self.texts)} fields; name one, or the two of a pair")
        check_labels(self.labels, self.left_out)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    def convert(self, record: Record) -> list[LabeledText]:
        label = 0.0
        if self.label:
            if written_label(record, self.label) in self.left_out:
                return []
            if self.labels:
                label = float(class_number(record, self.label, self.labels))
            else:
                remedy = "correct it, leave such examples out by left_out, or name the classes in labels"
                label = float(number_label(record, self.label, remedy))
        texts = tuple(text_in(record, name, "texts") for name in self.texts)
        return [LabeledText(texts, label, name_of(record))]


class LabeledRows(EncoderRows):
    """See `Labeled` and `ChoiceSets`: a row has one sequence of ids, or several of two texts each, and a label."""

    def add(self, document: list[Any]) -> None:
        *texts, label = document
        sequences = self._layout.sequences(texts)
        self.documents += 1
        self.tokens += sum(map(len, texts))
        length, num_special = self._layout.length, self._special.count(len(sequences[0]))
        room = length - num_special
        lengths = [list(map(len, sequence)) for sequence in sequences]
        if (longest := max(map(sum, lengths))) > room:
            self._count_too_long(
                f"it has {longest + num_special} ids, special ones included, which is over length={length} (the "
                "objective's input_length)"
            )
        padding, ids = 0, []
        for sequence, sizes in zip(sequences, lengths, strict=True):
            kept = truncated_lengths(sizes, room)
            padding += room - sum(kept)
            ids.append(self._special.join(length, *(text[:size] for text, size in zip(sequence, kept, strict=True))))
        spec = self._layout.spec
        self._emit(padding, ids=np.reshape(ids, spec["ids"].shape), label=np.asarray(label, spec["label"].dtype))


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

    pairs: bool = False
    """Every example must have two texts."""

    source_type = LabeledTexts
    builder = LabeledRows

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"label": Column((), np.float32)}

    def sequences(self, texts: Sequence[np.ndarray]) -> list[Sequence[np.ndarray]]:
        """The texts of each sequence of ids in a row."""
        if self.pairs and len(texts) < 2:
            raise UnfitDocumentError(
                "it has one text, which cannot be read in both orders; name the fields of a pair in data.source.texts, "
                "or set objective.both_orders to False"
            )
        return [texts]


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

    added_ids = DELIMITER_IDS
