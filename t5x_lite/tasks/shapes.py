"""What a head is asked about an example of a task, by the fields that it is in."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from t5x_lite.data import Choices, Examples, LabeledTexts, Questions, Source, TaggedWords
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class Shape(ABC):
    """The fields of an example, and what they are to a head."""

    @abstractmethod
    def source(self, examples: Examples) -> Source:
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

    def source(self, examples: Examples) -> LabeledTexts:
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

    def source(self, examples: Examples) -> TaggedWords:
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

    def source(self, examples: Examples) -> Questions:
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

    def source(self, examples: Examples) -> Choices:
        return Choices(examples, self.context, self.choices, self.question, self.label, self.labels)


@dataclass(frozen=True)
class WrittenText(Shape):
    """Another text: there is no head for it, but text to text alone."""

    def source(self, examples: Examples) -> Source:
        raise InputError("the task has no head: its answers are texts; use text_data with SequenceToSequence")
