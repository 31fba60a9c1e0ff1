"""Texts and pairs of texts with a label or a number, and texts with several answers to choose from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import (
    DELIMITER_IDS,
    Column,
    EncoderRows,
    RowSpec,
    UnfitDocumentError,
    truncated_lengths,
)
from t5x_lite.data.records.base import Record, field_of, name_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource, check_labels, class_number, number_label, written_label
from t5x_lite.errors import InputError
from t5x_lite.validation import Range


class LabeledText(NamedTuple):
    """An example of a task on whole texts."""

    location: str
    texts: tuple[str, ...]
    """One text, or two."""
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
        return [LabeledText(record.location, texts, label, name_of(record))]


class Choice(NamedTuple):
    """A text with several answers."""

    location: str
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
        return [Choice(record.location, text_in(record, self.context, "context"), texts, label, name_of(record))]

    def read(self) -> Iterator[Choice]:
        """Every example; `InputError` too for another number of answers than before."""
        count = 0
        for example in super().read():
            size = len(example.choices)
            if count not in (0, size):
                raise InputError(f"{example.location} has {size} choices, those before it {count}; give as many")
            count = size
            yield example


class LabeledRows(EncoderRows):
    """See `Labeled` and `ChoiceSets`: a row has one sequence of ids, or several of two texts each, and a label."""

    def add(self, document: list[Any]) -> None:
        *texts, label = document
        sequences = self._layout.sequences(texts)
        self.documents += 1
        self.tokens += sum(map(len, texts))
        length, num_special = self._layout.length, 1 + len(sequences[0])
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
