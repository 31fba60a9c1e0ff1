"""Several answers to choose from: how a story goes on, questions of an exam."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

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
from t5x_lite.validation import Range


class Choice(NamedTuple):
    """An example as a task reads it, and where it stands."""

    location: str
    context: str
    choices: tuple[str, ...]
    """Each with the question before it, where there is one."""
    label: int
    """Which is right, from 0."""
    name: Any = None
    """See `name_of`."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and the choices."""
        return self.context, *self.choices


@dataclass(frozen=True)
class Choices(TaskSource):
    """Examples with a text and as many answers each, of which one is right (SWAG, RACE, COPA)."""

    context: str = "context"
    """The field of the text before the choice: a story's beginning, a passage."""
    choices: tuple[str, ...] = ("choices",)
    """The field of each answer, or the one field with a list of them."""
    question: str = ""
    """The field of what stands before each answer, if there is one: a question, or the beginning of its sentence."""
    label: str = "label"
    """The field of which answer is right; empty where that is not known."""
    labels: tuple[str, ...] = ()
    """How the right one is written in the data, by number, such as ('A', 'B', 'C', 'D'); empty: 0, 1, 2 ..."""

    answer_option: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        if not self.choices:
            raise InputError("choices=() names no field; name one, or that of each answer")

    def convert(self, record: Record) -> list[Choice]:
        """The example."""
        answers = self._answers(record)
        known = (self.labels or tuple(map(str, range(len(answers)))))[: len(answers)]
        written = str(field_of(record, self.label, "label")).strip() if self.label else known[0]
        if written not in known:
            raise UnknownLabelError("label", self.label, known, (written,), "correct them, or set labels")
        context = text_in(record, self.context, "context")
        return [Choice(record.location, context, answers, known.index(written), name_of(record))]

    def read(self) -> Iterator[Choice]:
        """Every example; `InputError` as other tasks have it, and for another number of answers than before."""
        count = 0
        for example in super().read():
            if count not in (0, len(example.choices)):
                raise InputError(
                    f"{example.location} has {len(example.choices)} choices, those before it {count}; give as many"
                )
            count = len(example.choices)
            yield example

    def _answers(self, example: Record) -> tuple[str, ...]:
        if len(self.choices) > 1:
            answers = [text_in(example, name, "choices") for name in self.choices]
        else:
            answers = field_of(example, self.choices[0], "choices")
            if not (
                isinstance(answers, list | tuple)
                and len(answers) > 1
                and all(isinstance(answer, str) and answer.strip() for answer in answers)
            ):
                raise InputError(
                    f"choices={self.choices[0]!r} is {answers!r} in {example.location}; set choices to the field of a "
                    "list of two texts or more, or to the field of each"
                )
        if not self.question:
            return tuple(answer.strip() for answer in answers)
        question = text_in(example, self.question, "question")
        return tuple(f"{question} {answer.strip()}" for answer in answers)


class ChoiceRows(EncoderRows):
    """See `ChoiceSets` and `DelimitedChoices`."""

    def add(self, document: list[Any]) -> None:
        text, *answers, label = document
        if len(answers) != self._layout.num_choices:
            raise UnfitDocumentError(
                f"it has {len(answers)} choices, and objective.num_choices={self._layout.num_choices}; set that to "
                f"{len(answers)}"
            )
        self.documents += 1
        self.tokens += len(text) + sum(map(len, answers))
        room, padding = self._layout.length - 3, 0
        if (longest := len(text) + max(map(len, answers))) > room:
            self._count_too_long(too_many_ids(longest + 3, self._layout.length))
        sets = []
        for answer in answers:
            kept, of_answer = truncated_lengths([len(text), len(answer)], room)
            padding += room - kept - of_answer
            sets.append(self._special.join(self._layout.length, text[:kept], answer[:of_answer]))
        self._emit(padding, ids=np.stack(sets), label=np.int32(label))


@dataclass(frozen=True)
class ChoiceSets(TaskLayout):
    """An example a row: `[CLS] text [SEP] answer [SEP] pad ...` for each answer, in `ids` [num_choices, length], and in
    `label` which one is right (Devlin et al. 2019, section 4.4).

    What is too long loses ends, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> from t5x_lite.data import Vocabulary
    >>> rows = ChoiceSets(8, num_choices=2).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([*(np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22])), 1])
    >>> [(row["ids"].tolist(), row["label"].item()) for row in rows.take()]
    [([[2, 10, 11, 3, 20, 3, 0, 0], [2, 10, 11, 3, 21, 22, 3, 0]], 1)]
    """

    length: RowLength
    """Ids of a text with one answer, special ones included."""
    num_choices: Annotated[int, Range(ge=2)] = 4

    source_type: ClassVar[type] = Choices
    builder: ClassVar[type[RowBuilder]] = ChoiceRows

    @property
    def spec(self) -> RowSpec:
        return {"ids": Column((self.num_choices, self.length), is_ids=True), "label": Column(())}


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

    added_ids: ClassVar[tuple[str, ...]] = DELIMITER_IDS
