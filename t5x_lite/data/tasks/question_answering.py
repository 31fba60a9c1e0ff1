"""Questions whose answers stand in a text."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Column, EncoderRows, RowSpec
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, field_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Positive


class ContextQuestion(NamedTuple):
    """A question on a text."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    """Every right answer, none where there is none; models learn the first one."""
    starts: tuple[int, ...]
    """The first character of each answer in the context."""


@dataclass(frozen=True)
class Questions(TaskSource):
    """Questions on texts, with answers that stand there or with none (Rajpurkar et al. 2016 and 2018)."""

    question: str = "question"
    context: str = "context"
    """The field of the text that answers it."""
    answers: str = "answers"
    """The field with a list of the answers; empty where they are not known."""
    starts: str = "starts"
    """The field with a list of their first characters, counted from 0."""
    id: str = "id"

    answer_option = "answers"

    def read(self) -> Iterator[ContextQuestion]:
        """Every example. Raises `InputError` too for two questions of one name, and at the end for answers that are
        not at their offsets, which it counts."""
        misplaced, first, names = 0, "", set[str]()
        for location, question in self._located():
            if question.id in names:
                problem = f"names two questions, the second in {location}"
                raise InputError(f"{self.id}={question.id!r} {problem}; rename it")
            names.add(question.id)
            for answer, start in zip(question.answers, question.starts, strict=True):
                there = question.context[start : start + len(answer)]
                if there != answer or not answer.strip():
                    misplaced += 1
                    first = first or f"{location} has {answer!r} where the text has {there!r}"
                    break
            if not misplaced:
                yield question
        if misplaced:
            raise InputError(
                f"{self.starts} of {misplaced:,} of {len(names):,} questions do not point at their {self.answers}: "
                f"{first}, the first of them; correct them, counting characters from 0"
            )

    def documents(self) -> Iterator[str]:
        for _, group in itertools.groupby(self.read(), key=lambda question: question.context):
            questions = list(group)
            yield questions[0].context
            yield from (one.question for one in questions)

    def convert(self, record: Record) -> list[ContextQuestion]:
        answers, starts = [], []
        if self.answers:
            answers, starts = field_of(record, self.answers, "answers"), field_of(record, self.starts, "starts")
        if not (
            isinstance(answers, list | tuple)
            and isinstance(starts, list | tuple)
            and len(answers) == len(starts)
            and all(isinstance(answer, str) for answer in answers)
            and all(isinstance(start, int) and start >= 0 for start in starts)
        ):
            raise InputError(
                f"{self.answers}={answers!r} and {self.starts}={starts!r} in {record.location} are not a list of texts "
                "and a list of as many characters' numbers; correct them"
            )
        text_in(record, self.context, "context")
        context = field_of(record, self.context, "context")  # not stripped, since `starts` count in it
        name, question = str(field_of(record, self.id, "id")), text_in(record, self.question, "question")
        return [ContextQuestion(name, question, context, tuple(answers), tuple(starts))]


class QuestionRows(EncoderRows):
    def add(self, document: list[np.ndarray]) -> None:
        question, context, answer = document
        length, num_special = self._layout.length, self._special.count(2)
        question = question[: min(self._layout.question_length, length - num_special - 1)]
        self.documents += 1
        self.tokens += len(question) + len(context)
        room = length - num_special - len(question)
        is_covered = False
        step = min(self._layout.stride, room)
        for start in range(0, max(len(context) - room, 0) + step, step):  # the last window reaches the end
            window = context[start : start + room]
            inside = len(answer) and start <= answer[0] and answer[1] < start + len(window)
            is_covered = is_covered or bool(inside)
            none = len(question) + len(window) + num_special - 1 if self._special.cls_last else 0
            self._emit(
                room - len(window),
                ids=self._special.join(length, question, window),
                ends=answer - start + self._special.start(len(question)) if inside else np.full(2, none, np.int32),
                example=np.int32(self.documents - 1),
                window=np.int32(start),
            )
        if len(answer) and not is_covered:
            self._count_too_long(
                f"its answer has {answer[1] - answer[0] + 1} tokens and a window of length={length} (the "
                f"objective's input_length) holds {room}, one every stride={self._layout.stride}"
            )


@dataclass(frozen=True)
class QuestionWindows(TaskLayout):
    """Questions on parts of a text: `[CLS] question [SEP] window [SEP] pad ...` (Devlin et al. 2019, section 4.2).

    A text that is longer than what the question leaves of a row is read in windows, each `stride` tokens after the
    one before (the released code). `ends` are the positions in the row of the first and the last token of the answer,
    both 0, which is [CLS], where the window has no answer or not all of it; `example` is the number of the question,
    from 0; `window` is which of the text's tokens is the window's first.

    >>> import numpy as np
    >>> from t5x_lite.data import Vocabulary
    >>> rows = QuestionWindows(8, 2, 4).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10], np.int32), np.arange(20, 26, dtype=np.int32), np.array([4, 5], np.int32)])
    >>> for row in rows.take():
    ...     print({name: column.tolist() for name, column in row.items()})
    {'ids': [2, 10, 3, 20, 21, 22, 23, 3], 'ends': [0, 0], 'example': 0, 'window': 0}
    {'ids': [2, 10, 3, 22, 23, 24, 25, 3], 'ends': [5, 6], 'example': 0, 'window': 2}
    """

    stride: Positive = 128
    """Tokens of the text from the beginning of one window to that of the next."""
    question_length: Positive = 64
    """Tokens of a question; the ends of longer ones are cut."""

    source_type = Questions
    builder = QuestionRows
    unit_name = "questions"
    too_long_means = "have an answer that no window holds, and count as having none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question_length > self.length - 4:
            raise InputError(
                f"question_length={self.question_length} leaves no room for a text in length={self.length}; choose "
                f"{self.length - 4} or less"
            )

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"ends": Column((2,)), "example": Column(()), "window": Column(())}

    def content(self, example: ContextQuestion) -> str:
        return example.context  # the questions on one text stay on one side of a split

    def answer(self, example: ContextQuestion) -> tuple[str, str]:
        return f"{example.question}\0{example.context}", "\0".join(example.answers[:1])

    def tokenize(self, examples: list[Any], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """The ids of the question and of the text, and the first and the last token of the first answer in the text."""
        texts = list(dict.fromkeys(example.context for example in examples))
        contexts = dict(zip(texts, tokenizer.encode_with_offsets(texts), strict=True))
        questions = tokenizer.encode_batch([example.question for example in examples])
        for example, question in zip(examples, questions, strict=True):
            ids, spans = contexts[example.context]
            answer = np.empty(0, np.int32)
            if example.answers:
                answer = tokens_of(spans, example.starts[0], example.starts[0] + len(example.answers[0]))
            yield [question, ids, answer]


def tokens_of(spans: np.ndarray, start: int, end: int) -> np.ndarray:
    """The first and the last token [2] that overlap some characters; empty where none does.

    >>> tokens_of(np.array([[0, 3], [3, 7], [8, 9]]), 4, 9).tolist()
    [1, 2]
    """
    tokens = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start)).astype(np.int32)
    return tokens[[0, -1]] if len(tokens) else tokens
