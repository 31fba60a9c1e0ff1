"""Several answers to choose from: how a story goes on, questions of an exam."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import (
    Column,
    Layout,
    RowBuilder,
    RowSpec,
    SpecialIds,
    UnfitDocumentError,
    check_length,
    encode_each,
    too_many_ids,
    truncated_lengths,
)
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, Records, Source, field_of, name_of, text_in
from t5x_lite.data.tasks.classification import DELIMITER_IDS, check_labels, delimiter_ids, unknown_labels
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary


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


@dataclass(frozen=True)
class Choices(Source):
    """Examples with a text and as many answers each, of which one is right (SWAG, RACE, COPA)."""

    examples: Records
    """TableFiles, JsonlFiles or ParallelFiles."""
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

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if not self.choices:
            raise InputError("choices=() names no field; name one, or that of each answer")

    @property
    def has_answers(self) -> bool:
        return bool(self.label)

    def chosen(self) -> Iterator[Choice]:
        """Every example. Raises `InputError`, at the end, for labels that are not known, which it counts; for another
        number of answers than before; and where there is no example."""
        count, unknown, first, known = 0, {}, "", self.labels
        for example in self.examples:
            answers = self._answers(example)
            if count not in (0, len(answers)):
                raise InputError(
                    f"{example.location} has {len(answers)} choices, those before it {count}; give as many"
                )
            count = len(answers)
            known = self.labels or tuple(map(str, range(count)))
            written = str(field_of(example, self.label, "label")).strip() if self.label else known[0]
            if written not in known[:count]:
                unknown[written] = unknown.get(written, 0) + 1
                first = first or example.location
            elif not unknown:
                context = text_in(example, self.context, "context")
                yield Choice(example.location, context, answers, known.index(written), name_of(example))
        if unknown:
            raise unknown_labels("label", self.label, known[:count], unknown, first, "correct them, or set labels")
        if not count:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        return (text for example in self.chosen() for text in (example.context, *example.choices))

    def location(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.chosen(), number - 1, None)).location

    def fingerprint(self) -> str:
        fields = (self.context, self.choices, self.question, self.label, self.labels)
        return hashlib.blake2b(f"Choices {self.examples.fingerprint()} {fields}".encode(), digest_size=16).hexdigest()

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


@dataclass(frozen=True)
class ChoiceSets(Layout):
    """An example a row: `[CLS] text [SEP] answer [SEP] pad ...` for each answer, in `ids` [num_choices, length], and in
    `label` which one is right (Devlin et al. 2019, section 4.4).

    What is too long loses ends, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> rows = ChoiceSets(8, num_choices=2).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([*(np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22])), 1])
    >>> [(row["ids"].tolist(), row["label"].item()) for row in rows.take()]
    [([[2, 10, 11, 3, 20, 3, 0, 0], [2, 10, 11, 3, 21, 22, 3, 0]], 1)]
    """

    length: int
    """Ids of a text with one answer, special ones included."""
    num_choices: int = 4

    source_type: ClassVar[type] = Choices
    source_has: ClassVar[str] = "choices"
    source_remedy: ClassVar[str] = "give Choices"
    unit_name: ClassVar[str] = "examples"
    has_examples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_length(self.length, 8, "a text and an answer")
        if self.num_choices < 2:
            raise InputError(f"num_choices={self.num_choices} leaves nothing to choose; give 2 or more")

    @property
    def spec(self) -> RowSpec:
        return {"ids": Column((self.num_choices, self.length), is_ids=True), "label": Column(())}

    def examples(self, source: Choices) -> Iterator[Choice]:
        return source.chosen()

    def content(self, example: Choice) -> str:
        return "\0".join((example.context, *example.choices))

    def answer(self, example: Choice) -> tuple[str, str]:
        return self.content(example), str(example.label)

    def tokenize(self, examples: list[Choice], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """The ids of the text, those of each answer, and which is right."""
        texts = encode_each([(example.context, *example.choices) for example in examples], tokenizer)
        return ([*ids, example.label] for ids, example in zip(texts, examples, strict=True))

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return ChoiceRows(self.length, self.num_choices, SpecialIds.of(vocabulary))


class ChoiceRows(RowBuilder):
    """See `ChoiceSets`, and `DelimitedChoices`, whose rows have a `delimiter` between text and answer."""

    def __init__(self, length: int, num_choices: int, special: SpecialIds, *, delimiter: int | None = None) -> None:
        super().__init__()
        self._length, self._num_choices, self._special, self._delimiter = length, num_choices, special, delimiter

    def add(self, document: list[Any]) -> None:
        text, *answers, label = document
        if len(answers) != self._num_choices:
            raise UnfitDocumentError(
                f"it has {len(answers)} choices, and objective.num_choices={self._num_choices}; set that to "
                f"{len(answers)}"
            )
        self.documents += 1
        self.tokens += len(text) + sum(map(len, answers))
        room, padding = self._length - 3, 0
        if (longest := len(text) + max(map(len, answers))) > room:
            self._count_too_long(too_many_ids(longest + 3, self._length))
        sets = []
        for answer in answers:
            kept, of_answer = truncated_lengths([len(text), len(answer)], room)
            padding += room - kept - of_answer
            sets.append(self._special.join(self._length, text[:kept], answer[:of_answer], delimiter=self._delimiter))
        self._emit(padding, ids=np.stack(sets), label=np.int32(label))


@dataclass(frozen=True)
class DelimitedChoices(ChoiceSets):
    """An example a row as a decoder reads it: `start text delimiter answer extract pad ...` for each answer, in `ids`
    [num_choices, length], and in `label` which one is right.

    >>> rows = DelimitedChoices(8, num_choices=2).start(Vocabulary(size=100))
    >>> rows.add([*(np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22])), 1])
    >>> rows.take()[0]["ids"]
    array([[100,  10,  11, 101,  20, 102,   0,   0],
           [100,  10,  11, 101,  21,  22, 102,   0]], dtype=int32)
    """

    added_ids: ClassVar[tuple[str, ...]] = DELIMITER_IDS

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        special, delimiter = delimiter_ids(vocabulary)
        return ChoiceRows(self.length, self.num_choices, special, delimiter=delimiter)
