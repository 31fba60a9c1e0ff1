"""Questions whose answers stand in a text."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from t5x_lite.data.records.tables import Example, Examples, field_of, text_in
from t5x_lite.data.records.text import Source
from t5x_lite.errors import InputError


class ContextQuestion(NamedTuple):
    """An example as a task reads it, and where it stands."""

    place: str
    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    """Every text that is right; none where there is no answer. Models learn the first one."""
    starts: tuple[int, ...]
    """Of each answer: its first character in the context."""


@dataclass(frozen=True)
class Questions(Source):
    """Questions on texts, with answers that stand there or with none (Rajpurkar et al. 2016 and 2018)."""

    examples: Examples
    """SquadExamples, or JsonlExamples."""
    question: str = "question"
    """The field of the question."""
    context: str = "context"
    """The field of the text that answers it."""
    answers: str = "answers"
    """The field with a list of the answers; empty where they are not known."""
    starts: str = "starts"
    """The field with a list of their first characters, counted from 0."""
    id: str = "id"
    """The field of the question's name."""

    @property
    def has_answers(self) -> bool:
        return bool(self.answers)

    def questions(self) -> Iterator[ContextQuestion]:
        """Every example. Raises `InputError`, at the end, for answers that do not stand where they should, which it
        counts; for two questions of one name; and where there is no example."""
        misplaced, first, names = 0, "", set[str]()
        for example in self.examples:
            asked = self._question(example)
            if asked.id in names:
                raise InputError(f"{self.id}={asked.id!r} names two questions, the second in {asked.place}; rename it")
            names.add(asked.id)
            if wrong := _misplaced(asked):
                misplaced += 1
                first = first or f"{asked.place} has {wrong}"
            elif not misplaced:
                yield asked
        if misplaced:
            raise InputError(
                f"{self.starts} of {misplaced:,} of {len(names):,} questions do not point at their {self.answers}: "
                f"{first}, the first of them; correct them, counting characters from 0"
            )
        if not names:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        for _, group in itertools.groupby(self.questions(), key=lambda asked: asked.context):
            asked = list(group)
            yield asked[0].context
            yield from (one.question for one in asked)

    def place(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.questions(), number - 1, None)).place

    def fingerprint(self) -> str:
        fields = (self.question, self.context, self.answers, self.starts, self.id)
        return hashlib.blake2b(f"Questions {self.examples.fingerprint()} {fields}".encode(), digest_size=16).hexdigest()

    def _question(self, example: Example) -> ContextQuestion:
        answers, starts = (
            field_of(example, name, option) if self.answers else []
            for name, option in ((self.answers, "answers"), (self.starts, "starts"))
        )
        if not (
            isinstance(answers, list | tuple)
            and isinstance(starts, list | tuple)
            and len(answers) == len(starts)
            and all(isinstance(answer, str) for answer in answers)
            and all(isinstance(start, int) and start >= 0 for start in starts)
        ):
            raise InputError(
                f"{self.answers}={answers!r} and {self.starts}={starts!r} in {example.place} are no list of texts and "
                "a list of as many characters' numbers; correct them"
            )
        # The context stays as it is: answers are found by their place in it.
        text_in(example, self.context, "context")
        context = field_of(example, self.context, "context")
        name, question = str(field_of(example, self.id, "id")), text_in(example, self.question, "question")
        return ContextQuestion(example.place, name, question, context, tuple(answers), tuple(starts))


def _misplaced(asked: ContextQuestion) -> str:
    """What is wrong with the first answer that is not where it should be; empty where all are."""
    for answer, start in zip(asked.answers, asked.starts, strict=True):
        there = asked.context[start : start + len(answer)]
        if not answer.strip() or there != answer:
            return f"{answer!r} where the text has {there!r}"
    return ""
