"""Questions without a text, whose answers stand somewhere in a corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Column, EncoderRows, Layout, RowSpec
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, field_of, name_of, text_in
from t5x_lite.data.tasks.base import TaskLayout, TaskSource
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Positive


class OpenQuestion(NamedTuple):
    """A question."""

    question: str
    answers: tuple[str, ...]
    """Every right answer; none where they are not known."""
    name: Any = None


@dataclass(frozen=True)
class OpenQuestions(TaskSource):
    """Questions and their answers, which any passage may hold (Natural Questions, WebQuestions, TriviaQA)."""

    question: str = "question"
    answers: str = "answers"
    """The field of the answer, or of a list of all right ones; empty where they are not known."""

    answer_option = "answers"

    def documents(self) -> Iterator[str]:
        return (example.question for example in self.read())

    def convert(self, record: Record) -> list[OpenQuestion]:
        answers: Any = ()
        if self.answers:
            answers = field_of(record, self.answers, "answers")
            answers = [answers] if isinstance(answers, str) else answers
            if not isinstance(answers, list | tuple) or not all(isinstance(one, str) for one in answers):
                raise InputError(
                    f"{self.answers}={answers!r} in {record.location} is neither a text nor a list of texts; correct it"
                )
        answers = tuple(dict.fromkeys(one.strip() for one in answers if one.strip()))
        return [OpenQuestion(text_in(record, self.question, "question"), answers, name_of(record))]


class OpenQuestionRows(EncoderRows):
    """See `OpenQuestionLayout`."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._pad_id = vocabulary.pad_id

    def add(self, document: list[Any]) -> None:
        question, answers = document
        layout = self._layout
        self.documents += 1
        self.tokens += len(question)
        question = question[: layout.length - self._special.count(1)]
        short = [ids for ids in answers if 0 < len(ids) <= layout.answer_length]
        if answers and not short:
            longest = min(map(len, answers))
            self._count_too_long(
                f"its answer has {longest} tokens and answer_length={layout.answer_length} is the most that is found"
            )
        columns = np.full((layout.num_answers, layout.answer_length), self._pad_id, np.int32)
        for row, ids in zip(columns, short, strict=False):
            row[: len(ids)] = ids
        ids = self._special.join(layout.length, question)
        self._emit(layout.length - len(question) - self._special.count(1), ids=ids, answers=columns)


@dataclass(frozen=True)
class OpenQuestionLayout(TaskLayout):
    """`[CLS] question [SEP] pad ...`, and the tokens of its answers as they stand in a passage.

    >>> rows = OpenQuestionLayout(8, 2, 3).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11]), [np.array([20])]])
    >>> [{name: column.tolist() for name, column in row.items()} for row in rows.take()]
    [{'ids': [2, 10, 11, 3, 0, 0, 0, 0], 'answers': [[20, 0, 0], [0, 0, 0]]}]
    """

    num_answers: Positive = 8
    """Right answers that are kept, at most: the first ones."""
    answer_length: Positive = 10
    """Tokens of an answer, at most; longer ones are never found."""

    source_type = OpenQuestions
    builder = OpenQuestionRows
    unit_name = "questions"
    too_long_means = "have no answer that is short enough to be found"

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"answers": Column((self.num_answers, self.answer_length))}

    def content(self, example: OpenQuestion) -> str:
        return example.question

    def answer(self, example: OpenQuestion) -> tuple[str, str]:
        return example.question, "\0".join(example.answers[:1])

    def tokenize(self, examples: list[Any], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """The ids of the question, and those of each answer, inside a text and, where they differ, at its beginning."""
        questions = tokenizer.encode_batch([example.question for example in examples])
        for example, question in zip(examples, questions, strict=True):
            forms = [form for answer in example.answers for form in (f" {answer}", answer)]
            encoded = {tuple(np.asarray(ids).tolist()): None for ids in tokenizer.encode_batch(forms)} if forms else {}
            yield [question, [np.array(ids, np.int32) for ids in encoded]]
