"""What all tasks share: examples made of records, their labels, and rows of examples."""

import abc
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t5x_lite.data.layouts.base import Layout, RowLength, encode_each
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import (
    EmptyCorpusError,
    Record,
    Records,
    Source,
    UnknownLabelError,
    field_of,
    hash_fields,
    map_records,
    shards_of_examples,
)
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer


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
