"""What a head is asked about an example of a task, by the fields that it is in."""

from abc import ABC
from dataclasses import dataclass

from t5x_lite.data import Examples, LabeledTexts


@dataclass(frozen=True)
class Shape(ABC):  # noqa: B024 (each kind has fields of its own)
    """The fields of an example, and what they are to a head."""


@dataclass(frozen=True)
class TextLabels(Shape):
    """The class of a text or a pair of texts, or a number: the head `classification`."""

    texts: tuple[str, ...]
    """The field of the text, or those of a pair in their order."""
    label: str = "label"
    """The field of the label."""
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data; empty: labels are numbers."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out."""

    def source(self, examples: Examples) -> LabeledTexts:
        """Examples of this shape, as `Classification` trains on them."""
        return LabeledTexts(examples, self.texts, self.label, self.labels, self.left_out)


@dataclass(frozen=True)
class WordTags(Shape):
    """A tag for each word of a sentence: the head `tagging`."""

    tokens: str = "tokens"
    """The field of the words, a list."""
    tags: str = "tags"
    """The field of their tags, a list of the same length."""


@dataclass(frozen=True)
class AnswerSpans(Shape):
    """The part of a text that answers a question: the head `question_answering`."""

    question: str = "question"
    context: str = "context"
    """The field of the text that the answer is in."""
    answers: str = "answers"
    """The field of the answers, a list of texts."""
    starts: str = "starts"
    """The field of their places in the context, a list of numbers of characters."""
    may_be_unanswerable: bool = False
    """Whether some questions have no answer."""


@dataclass(frozen=True)
class Choices(Shape):
    """Which of several texts goes with another one: the head `multiple_choice`."""

    texts: tuple[str, ...]
    """The fields of what the choices go with, such as an article and a question."""
    choices: tuple[str, ...]
    """The field of each choice, 'options/0' where they are a list."""
    label: str = "label"
    """The field of the label."""
    labels: tuple[str, ...] = ()
    """How the label names each choice, in the order of `choices`."""


@dataclass(frozen=True)
class WrittenText(Shape):
    """Another text: no head but text to text alone."""
