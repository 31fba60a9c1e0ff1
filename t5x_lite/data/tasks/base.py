"""What all tasks share: examples made of records, their labels, and rows of examples."""

import abc
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from t5x_lite.data.layouts.base import Layout, RowLength, encode_each
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import (
    EmptyCorpusError,
    Record,
    Records,
    Source,
    field_of,
    hash_fields,
    shards_of_examples,
)
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer

Made = TypeVar("Made")


@dataclass(frozen=True)
class TaskSource(Source):
    """Examples of a task, made of records. A task defines `convert`; and `documents` for examples without `texts`."""

    examples: Records
    """TableFiles, JsonlFiles, ParallelFiles, Tfds, ConllFiles, SquadFiles and others."""

    answer_option: ClassVar[str] = ""
    """The option that names the field of the answer, and is empty where answers are not known."""
    unit: ClassVar[str] = "examples"
    """What messages call its examples."""

    fingerprint = hash_fields
    shards = shards_of_examples

    @abc.abstractmethod
    def convert(self, record: Record) -> Iterable[Any]:
        """The examples in a record, mostly one. Raises `UnknownLabelError`, and `InputError` for a bad record."""

    def read(self) -> Iterator[Any]:
        """Every example. Raises `InputError` for a bad one or none, and at the end for unknown labels, counted."""
        return (example for _, example in self._located())

    def documents(self) -> Iterator[str]:
        return (text for example in self.read() for text in example.texts)

    def location(self, number: int) -> str:
        """The location of an example by its number, from 1; reads up to it."""
        return next(itertools.islice(self._located(), number - 1, None))[0]

    @property
    def has_answers(self) -> bool:
        return not self.answer_option or bool(getattr(self, self.answer_option))

    def _located(self) -> Iterator[tuple[str, Any]]:
        is_empty = True
        for record, examples in map_records(self.examples, self.convert):
            for example in examples:
                is_empty = False
                yield record.location, example
        if is_empty:
            raise EmptyCorpusError(f"{self.examples} holds no {self.unit}; give some")


class UnknownLabelError(InputError):
    """Labels of a record, in the `field` that an `option` of its task names, that are not among the task's `labels`."""

    def __init__(self, option: str, field: str, labels: Sequence[str], unknown: Sequence[str], remedy: str):
        self.problem = f"{option}={field!r} has labels that labels={labels} does not know"
        self.unknown, self.remedy = unknown, remedy
        super().__init__(f"{self.problem}: {', '.join(map(repr, unknown))}; {remedy}")


def map_records(
    records: Iterable[Record], function: Callable[[Record], Iterable[Made]]
) -> Iterator[tuple[Record, list[Made]]]:
    """Each record and what the function makes of it; at the end `InputError` for unknown labels, which it counts."""
    unknown, first, error = Counter[str](), "", None
    for record in records:
        try:
            made = list(function(record))
        except UnknownLabelError as raised:
            unknown.update(raised.unknown)
            first, error = first or record.location, error or raised
            continue
        if error is None:
            yield record, made
    if error is not None:
        counts = ", ".join(f"{label!r} {count} times" for label, count in unknown.most_common(20))
        more = f" and {len(unknown) - 20} others" if len(unknown) > 20 else ""
        raise InputError(f"{error.problem}: {counts}{more}, the first in {first}; {error.remedy}")


def check_labels(labels: tuple[str, ...], left_out: tuple[str, ...] = ()) -> None:
    """Raises `InputError` for a single class, and for one that is named twice or left out too."""
    if len(set(labels)) < len(labels):
        raise InputError(f"labels={labels} names one of them twice; name each once")
    if len(labels) == 1:
        raise InputError(f"labels={labels} is one class, of which there is nothing to learn; name two or more")
    if both := set(labels) & set(left_out):
        raise InputError(f"left_out={left_out} has {min(both)!r}, which labels has too; drop it from one")


def written_label(record: Record, field: str) -> str:
    """The value of the field that the option `label` names, as text."""
    return str(field_of(record, field, "label")).strip()


def class_number(
    record: Record, field: str, labels: Sequence[str], remedy: str = "name them in labels, or in left_out"
) -> int:
    """The number of a record's class among `labels`; `UnknownLabelError` where it is not one of them."""
    label = written_label(record, field)
    if label not in labels:
        raise UnknownLabelError("label", field, labels, (label,), remedy)
    return labels.index(label)


def number_label(record: Record, field: str, remedy: str) -> str:
    """A label that is a finite number, as it is written; `InputError` for any other."""
    label = written_label(record, field)
    try:
        if math.isfinite(float(label)):
            return label
    except ValueError:
        pass
    raise InputError(f"label={label!r} in {record.location} is not a number; {remedy}")


@dataclass(frozen=True)
class TaskLayout(Layout):
    """Base of layouts whose rows hold examples with answers, from a `TaskSource`."""

    length: RowLength
    """Ids of a row, special ones included."""

    source_type = TaskSource
    unit_name = "examples"
    has_examples = True

    def examples(self, source: TaskSource) -> Iterator[Any]:
        return source.read()

    def content(self, example: Any) -> str:
        return "\0".join(example.texts)

    def tokenize(self, examples: list[Any], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """The ids of each text of an example, and its label."""
        texts = encode_each([example.texts for example in examples], tokenizer)
        return ([*ids, example.label] for ids, example in zip(texts, examples, strict=True))

    def answer(self, example: Any) -> tuple[str, str]:
        return self.content(example), str(example.label)
