"""Several answers to choose from: how a story goes on, questions of an exam."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from t5x_lite.data.records.tables import Example, Examples, field_of, name_of, text_in
from t5x_lite.data.records.text import Source
from t5x_lite.data.tasks.classification import check_labels, unknown_labels
from t5x_lite.errors import InputError


class Choice(NamedTuple):
    """An example as a task reads it, and where it stands."""

    place: str
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

    examples: Examples
    """TableExamples, JsonlExamples or ParallelExamples."""
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
                raise InputError(f"{example.place} has {len(answers)} choices, those before it {count}; give as many")
            count = len(answers)
            known = self.labels or tuple(map(str, range(count)))
            written = str(field_of(example, self.label, "label")).strip() if self.label else known[0]
            if written not in known[:count]:
                unknown[written] = unknown.get(written, 0) + 1
                first = first or example.place
            elif not unknown:
                context = text_in(example, self.context, "context")
                yield Choice(example.place, context, answers, known.index(written), name_of(example))
        if unknown:
            raise unknown_labels("label", self.label, known[:count], unknown, first, "correct them, or set labels")
        if not count:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        return (text for example in self.chosen() for text in (example.context, *example.choices))

    def place(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.chosen(), number - 1, None)).place

    def fingerprint(self) -> str:
        fields = (self.context, self.choices, self.question, self.label, self.labels)
        return hashlib.blake2b(f"Choices {self.examples.fingerprint()} {fields}".encode(), digest_size=16).hexdigest()

    def _answers(self, example: Example) -> tuple[str, ...]:
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
                    f"choices={self.choices[0]!r} is {answers!r} in {example.place}; set choices to the field of a "
                    "list of two texts or more, or to the field of each"
                )
        if not self.question:
            return tuple(answer.strip() for answer in answers)
        question = text_in(example, self.question, "question")
        return tuple(f"{question} {answer.strip()}" for answer in answers)
