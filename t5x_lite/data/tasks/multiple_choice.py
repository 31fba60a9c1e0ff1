"""Texts with several answers, of which one is right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import DELIMITER_IDS, Column, RowSpec, UnfitDocumentError
from t5x_lite.data.records.base import Record, check_labels, field_of, name_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource, class_number
from t5x_lite.data.tasks.classification import LabeledRows
from t5x_lite.errors import InputError
from t5x_lite.validation import Range


class Choice(NamedTuple):
    """A text with several answers."""

    context: str
    choices: tuple[str, ...]
    """Each after the question, where there is one."""
    label: int
    """Which is right, from 0."""
    name: Any = None

    @property
    def texts(self) -> tuple[str, ...]:
        return self.context, *self.choices


@dataclass(frozen=True)
class Choices(TaskSource):
    """Examples with a text and as many answers each, of which one is right (SWAG, RACE, COPA)."""

    context: str = "context"
    """The field of the text before the choice: a story's beginning, a passage."""
    choices: tuple[str, ...] = ("choices",)
    """The field of each answer, or the one field with a list of them."""
    question: str = ""
    """The field of the text before each answer, if there is one: a question, or the beginning of its sentence."""
    label: str = "label"
    """The field of which answer is right; empty where that is not known."""
    labels: tuple[str, ...] = ()
    """How the right one is written in the data, by number, such as ('A', 'B', 'C', 'D'); empty: 0, 1, 2 ..."""

    answer_option = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        if not self.choices:
            raise InputError("choices=() names no field; name one, or that of each answer")

    def convert(self, record: Record) -> list[Choice]:
        if len(self.choices) > 1:
            answers = [text_in(record, name, "choices") for name in self.choices]
        else:
            answers = field_of(record, self.choices[0], "choices")
            if not (
                isinstance(answers, list | tuple)
                and len(answers) > 1
                and all(isinstance(answer, str) and answer.strip() for answer in answers)
            ):
                raise InputError(
                    f"choices={self.choices[0]!r} is {answers!r} in {record.location}; set choices to the field of a "
                    "list of two texts or more, or to the field of each"
                )
        begin = f"{text_in(record, self.question, 'question')} " if self.question else ""
        known = (self.labels or tuple(map(str, range(len(answers)))))[: len(answers)]
        label = class_number(record, self.label, known, "correct them, or set labels") if self.label else 0
        texts = tuple(begin + answer.strip() for answer in answers)
        return [Choice(text_in(record, self.context, "context"), texts, label, name_of(record))]

    def read(self) -> Iterator[Choice]:
        """Every example; `InputError` too for another number of answers than before."""
        count = 0
        for location, example in self._located():
            size = len(example.choices)
            if count not in (0, size):
                raise InputError(f"{location} has {size} choices, those before it {count}; give as many")
            count = size
            yield example


@dataclass(frozen=True)
class ChoiceSets(TaskLayout):
    """An example a row: `[CLS] text [SEP] answer [SEP] pad ...` for each answer, in `ids` [num_choices, length], and in
    `label` which one is right (Devlin et al. 2019, section 4.4). What is too long is cut as in `Labeled`.

    >>> import numpy as np
    >>> from t5x_lite.data import Vocabulary
    >>> rows = ChoiceSets(8, num_choices=2).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([*(np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22])), 1])
    >>> [(row["ids"].tolist(), row["label"].item()) for row in rows.take()]
    [([[2, 10, 11, 3, 20, 3, 0, 0], [2, 10, 11, 3, 21, 22, 3, 0]], 1)]
    """

    num_choices: Annotated[int, Range(ge=2)] = 4

    source_type = Choices
    builder = LabeledRows

    @property
    def spec(self) -> RowSpec:
        return {"ids": Column((self.num_choices, self.length), is_ids=True), "label": Column(())}

    def sequences(self, texts: Sequence[np.ndarray]) -> list[Sequence[np.ndarray]]:
        """The text with each answer."""
        text, *answers = texts
        if len(answers) != self.num_choices:
            raise UnfitDocumentError(
                f"it has {len(answers)} choices, and objective.num_choices={self.num_choices}; set that to "
                f"{len(answers)}"
            )
        return [(text, answer) for answer in answers]


@dataclass(frozen=True)
class DelimitedChoices(ChoiceSets):
    """An example a row as a decoder reads it: `start text delimiter answer extract pad ...` for each answer, in `ids`
    [num_choices, length], and in `label` which one is right.

    >>> from t5x_lite.data import Vocabulary
    >>> rows = DelimitedChoices(8, num_choices=2).start(Vocabulary(size=100))
    >>> rows.add([*(np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22])), 1])
    >>> rows.take()[0]["ids"]
    array([[100,  10,  11, 101,  20, 102,   0,   0],
           [100,  10,  11, 101,  21,  22, 102,   0]], dtype=int32)
    """

    added_ids = DELIMITER_IDS
