"""A task as a value: its examples, how they are put into words, what a head is asked, and what it is scored by."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from t5x_lite.data import (
    Choices,
    Data,
    ExamplePairs,
    LabeledTexts,
    LabelTemplate,
    Mixture,
    Part,
    PromptTemplate,
    Proportional,
    Questions,
    Rates,
    Records,
    Source,
    TaggedWords,
)
from t5x_lite.data.records.tfds import with_datasets
from t5x_lite.errors import InputError
from t5x_lite.evaluation.metric_names import PartMetrics, TextMetric


@dataclass(frozen=True)
class Shape(ABC):
    """The fields of an example, and what they are to a head."""

    @abstractmethod
    def source(self, examples: Records) -> Source:
        """Examples of this shape, as a head's objective trains on them."""


@dataclass(frozen=True)
class TextLabels(Shape):
    """The class of a text or a pair of texts, or a number: `Classification`."""

    texts: tuple[str, ...]
    """The field of the text, or those of a pair in their order."""
    label: str = "label"
    """The field of the label."""
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data; empty: labels are numbers."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out."""

    def source(self, examples: Records) -> LabeledTexts:
        return LabeledTexts(examples, self.texts, self.label, self.labels, self.left_out)


@dataclass(frozen=True)
class WordTags(Shape):
    """A tag for each word of a sentence: `Tagging`."""

    labels: tuple[str, ...]
    """The tags by number, as they are written in the data."""
    words: str = "tokens"
    """The field of the words, a list."""
    tags: str = "tags"
    """The field of their tags, a list of the same length."""

    def source(self, examples: Records) -> TaggedWords:
        return TaggedWords(examples, self.labels, self.words, self.tags)


@dataclass(frozen=True)
class AnswerSpans(Shape):
    """The part of a text that answers a question, if one does: `QuestionAnswering`."""

    answers: str = "answers"
    """The field of the answers, a list of texts."""
    starts: str = "starts"
    """The field of their first characters in the context, a list."""
    question: str = "question"
    """The field of the question."""
    context: str = "context"
    """The field of the text that the answer is in."""

    def source(self, examples: Records) -> Questions:
        return Questions(examples, self.question, self.context, self.answers, self.starts)


@dataclass(frozen=True)
class OneOf(Shape):
    """Which of several texts goes with another one: `MultipleChoice`."""

    context: str
    """The field of what the choices go with, such as an article."""
    choices: tuple[str, ...]
    """The field of each choice, or the one field with a list of them."""
    question: str = ""
    """The field of what stands before each choice, if there is one."""
    label: str = "label"
    """The field of the label."""
    labels: tuple[str, ...] = ()
    """How the label names each choice; empty: 0, 1, 2 ..."""

    def source(self, examples: Records) -> Choices:
        return Choices(examples, self.context, self.choices, self.question, self.label, self.labels)


@dataclass(frozen=True)
class WrittenText(Shape):
    """Another text: there is no head for it, but text to text alone."""

    def source(self, examples: Records) -> Source:
        raise InputError("the task has no head: its answers are texts; use text_data with SequenceToSequence")


@dataclass(frozen=True)
class Task:
    """What a model is fine-tuned on. A variant is `dataclasses.replace(task, ...)`, on one's own files too."""

    name: str
    """As figures call it."""
    train: Records
    dev: Records | None
    """What is evaluated on; None holds out a part of `train`."""
    wording: PromptTemplate
    """Text to text: what is read, and what is to be written."""
    shape: Shape
    """What a head is asked instead."""
    text_metrics: tuple[TextMetric, ...]
    """What written answers are scored by."""
    test: Records | None = None
    """Whose labels a benchmark may hide."""
    submission: str = ""
    """The name of the file with predictions that its benchmark takes; empty where there is none."""
    submitted: tuple[str | int, ...] = ()
    """How that file names the classes, by number; empty: as the data does."""

    def text_data(self, **options: Any) -> Data:
        """What an experiment on text to text takes as `data`; `options` are those of `Data`, such as a tokenizer."""
        return Data(self.pairs(self.train), held_out_source=self._held_out(self.pairs), **options)

    def head_data(self, **options: Any) -> Data:
        """What an experiment with a head takes as `data`. Raises `InputError` for a task whose answers are texts."""
        return Data(self.shape.source(self.train), held_out_source=self._held_out(self.shape.source), **options)

    def pairs(self, examples: Records) -> ExamplePairs:
        """Some of its examples in words."""
        return ExamplePairs(examples, self.wording)

    def part(self) -> Part:
        """The task as a part of a mixture."""
        return Part(self.name, self.pairs(self.train), self._held_out(self.pairs))

    def at(self, data_dir: str) -> Self:
        """The same task, its datasets of TensorFlow Datasets in another folder."""
        moved = {name: with_datasets(getattr(self, name), data_dir=data_dir) for name in ("train", "dev", "test")}
        return dataclasses.replace(self, **moved)

    def _held_out(self, source: Any) -> Any:
        return None if self.dev is None else source(self.dev)


def mixture(tasks: Sequence[Task], rates: Rates = Proportional()) -> Mixture:  # noqa: B008 (frozen)
    """Tasks to train on together, as text to text."""
    return Mixture(tuple(task.part() for task in tasks), rates)


def metrics_of_parts(tasks: Sequence[Task]) -> tuple[PartMetrics, ...]:
    """What an experiment on a mixture of tasks takes as `evaluation.part_metrics`."""
    return tuple(PartMetrics(task.name, task.text_metrics) for task in tasks)


def text_classes(
    name: str,
    train: Records,
    dev: Records | None = None,
    *,
    labels: tuple[str, ...],
    texts: tuple[str, ...] = ("text",),
    label: str = "label",
    words: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    source: str = "",
) -> Task:
    """A task of one's own: the classes of texts, or of pairs of them.

    Args:
      name: of the task.
      train: its examples.
      dev: examples to evaluate on; None holds out a part of the others.
      labels: the classes, as they are written in the data.
      texts: the field of the text, or those of a pair.
      label: the field of the label.
      words: what is written for each class; empty: the label itself.
      left_out: labels whose examples are left out.
      source: the template of what is read; empty: the name and the fields as the T5 paper has them.

    >>> from t5x_lite.data import Tfds
    >>> task = text_classes("snli", train=Tfds("snli"), labels=("yes", "no"), texts=("premise", "hypothesis"))
    >>> task.wording.source
    'snli premise: {premise} hypothesis: {hypothesis}'
    """
    return Task(
        name,
        train,
        dev,
        LabelTemplate(source or template(name, *texts), label, labels, words, left_out),
        TextLabels(texts, label, labels, left_out),
        ("exact_match", "f1") if len(labels) == 2 else ("exact_match", "macro_f1"),
    )


def template(name: str, *fields: str) -> str:
    """The name of a task and then each field behind its own name, as Raffel et al. 2020 write it (appendix D).

    >>> template("mrpc", "sentence1", "sentence2")
    'mrpc sentence1: {sentence1} sentence2: {sentence2}'
    """
    return " ".join([name, *(f"{field}: {{{field}}}" for field in fields)])
