"""What a model answers to the examples of a task, read from the outputs of its head or from the text it writes."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from t5x_lite.data import (
    AnswerTemplate,
    CoreferenceTemplate,
    LabelTemplate,
    NumberTemplate,
    PromptTemplate,
    Record,
    TagTemplate,
    Tokenizer,
)
from t5x_lite.data.records.base import field_of, name_of, text_in
from t5x_lite.data.tasks.question_answering import ContextQuestion
from t5x_lite.objectives import QuestionAnswering, Tagging
from t5x_lite.objectives.task import TaskObjective


@dataclass(frozen=True)
class Answers:
    """Of examples, in their order."""

    predictions: list[Any]
    """By example: the number of a class or choice, a number, the tags of words, or a text."""
    references: list[Any]
    """What is right, in the same way; of questions the list of all answers, empty where there is none."""
    names: list[str]
    """Of the examples: those of questions, else numbers from 0."""
    no_answer: list[float] | None = None
    """Of questions: how much better no answer fits than the best one."""


def read_answers(
    objective: TaskObjective,
    prediction_outputs: np.ndarray,
    features: Mapping[str, np.ndarray],
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    labels: Sequence[str] | None,
) -> Answers:
    """The answers to all examples whose rows are all there.

    Args:
      objective: the task.
      prediction_outputs: what `TaskObjective.prediction_outputs` gives, by row.
      features: of the rows, which are the first ones that the documents make.
      documents: the examples; they are read for questions alone.
      tokenizer: that of the rows.
      labels: the names of the classes, for tags.
    """
    match objective:
        case Tagging():
            return _tags(prediction_outputs, features, labels or ())
        case QuestionAnswering():
            return _spans(objective, prediction_outputs, features, documents, tokenizer)
    labels_of = features["label"].tolist()
    return Answers(prediction_outputs.tolist(), labels_of, _numbers(len(labels_of)))


def _numbers(count: int) -> list[str]:
    return list(map(str, range(count)))


def _tags(prediction_outputs: np.ndarray, features: Mapping[str, np.ndarray], labels: Sequence[str]) -> Answers:
    """Sentences that stand in several rows are put together."""
    said: dict[int, list[str]] = {}
    right: dict[int, list[str]] = {}
    for predicted, tags, example in zip(
        prediction_outputs, features["tags"], features["example"].tolist(), strict=True
    ):
        asked = tags >= 0
        for sentences, numbers in ((said, predicted), (right, tags)):
            sentences.setdefault(example, []).extend(labels[number] for number in numbers[asked].tolist())
    return Answers(list(said.values()), list(right.values()), list(map(str, said)))


def _spans(
    objective: QuestionAnswering,
    logits: Float[np.ndarray, "B L 2"],
    features: Mapping[str, np.ndarray],
    documents: Iterable[ContextQuestion],
    tokenizer: Tokenizer,
) -> Answers:
    rows_of: dict[int, list[int]] = {}
    for row, example in enumerate(features["example"].tolist()):
        rows_of.setdefault(example, []).append(row)
    answers = Answers([], [], [], [])
    context, spans = None, np.empty((0, 2), np.int32)
    for rows, document in zip(rows_of.values(), documents, strict=False):
        if document.context != context:
            context = document.context
            spans = tokenizer.encode_with_offsets([context])[0].spans
        windows = [
            _window(features["inputs"][row], features["segments"][row], int(features["window"][row])) for row in rows
        ]
        text, doubt = best_answer(objective, [logits[row] for row in rows], windows, context, spans)
        answers.predictions.append(text)
        answers.references.append(list(document.answers))
        answers.names.append(document.id)
        answers.no_answer.append(doubt)
    return answers


@dataclass(frozen=True)
class Window:
    """A part of a text as it stands in a row."""

    place: int
    """Of its first token in the row."""
    first: int
    """Which of the text's tokens that is."""
    size: int
    """In tokens."""


def _window(inputs: np.ndarray, segments: np.ndarray, first: int) -> Window:
    places = np.flatnonzero(segments)
    # The SEP behind the window is of its segment.
    return Window(int(places[0]), first, len(places) - 1)


def best_answer(
    objective: QuestionAnswering,
    logits: Sequence[Float[np.ndarray, "L 2"]],
    windows: Sequence[Window],
    context: str,
    spans: np.ndarray,
) -> tuple[str, float]:
    """(the likeliest answer, how much better none fits) of a question, over all windows of its text.

    The score of an answer is the logit of its first token as a beginning and that of its last as an end; of none,
    those of [CLS], the lowest over the windows (Devlin et al. 2019, section 4.3). A token begins an answer only in the
    window that shows most of what stands around it (the released code).
    """
    best, answer, none = -np.inf, (0, 0), np.inf
    for number, (said, window) in enumerate(zip(logits, windows, strict=True)):
        none = min(none, float(said[0].sum()))
        inside = said[window.place : window.place + window.size]
        begins, ends = (np.argsort(-inside[:, side])[: objective.num_candidates] for side in (0, 1))
        length = ends[None] - begins[:, None] + 1
        shown = np.array([most_around(windows, window.first + begin) == number for begin in begins.tolist()], bool)
        allowed = (length >= 1) & (length <= objective.answer_length) & shown[:, None]
        scores = np.where(allowed, inside[begins, 0][:, None] + inside[ends, 1][None], -np.inf)
        place = np.unravel_index(int(scores.argmax()), scores.shape)
        if scores[place] > best:
            best, answer = float(scores[place]), (window.first + begins[place[0]], window.first + ends[place[1]])
    if best == -np.inf:
        return "", np.inf
    begin, end = int(spans[answer[0], 0]), int(spans[answer[1], 1])
    return context[begin:end].strip(), none - best


def most_around(windows: Sequence[Window], token: int) -> int:
    """Which window shows most of what stands before or behind a token of the text, whichever is less; the first of
    those that show as much.

    >>> most_around([Window(0, 0, 8), Window(0, 4, 8)], 5), most_around([Window(0, 0, 8), Window(0, 4, 8)], 6)
    (0, 1)
    """
    around = [
        min(token - window.first, window.first + window.size - 1 - token) + 0.01 * window.size
        if window.first <= token < window.first + window.size
        else -np.inf
        for window in windows
    ]
    return int(np.argmax(around))


_TAG = re.compile(r"[BIESLUM]-\S+")
_DETERMINERS = {
    *("a", "an", "few", "her", "his", "each", "every", "many", "much", "my", "our", "some", "that", "the", "their"),
    *("these", "this", "those", "which", "whose", "your"),
}

NO_NUMBER = -1.0
"""What a text counts as that is no number."""
NO_CLASS = -1


def class_of(text: str, answers: Sequence[str]) -> int:
    """The number of the class whose word the text is, `NO_CLASS` where it is none.

    >>> class_of(" positive ", ("negative", "positive")), class_of("positively", ("negative", "positive"))
    (1, -1)
    """
    text = text.strip()
    return answers.index(text) if text in answers else NO_CLASS


def number_of(text: str) -> float:
    """The number that the text is, `NO_NUMBER` where it is none.

    >>> number_of("3.8 "), number_of("nan"), number_of("3,8")
    (3.8, -1.0, -1.0)
    """
    try:
        number = float(text)
    except ValueError:
        return NO_NUMBER
    return number if math.isfinite(number) else NO_NUMBER


def tags_of(text: str, count: int) -> list[str]:
    """The tags of `count` words: what is too many is dropped, and 'O' stands where there are too few.

    >>> tags_of("B-PER O", 3), tags_of("DET NOUN VERB", 2)
    (['B-PER', 'O', 'O'], ['DET', 'NOUN'])
    """
    tags = text.split()[:count]
    return tags + ["O"] * (count - len(tags))


def entity_tags(tags: Sequence[str]) -> list[str]:
    """Tags of entities; what is none, such as 'BPER', counts as 'O'.

    >>> entity_tags(["B-PER", "BPER", "-", "O"])
    ['B-PER', 'O', 'O', 'O']
    """
    return [tag if _TAG.fullmatch(tag) else "O" for tag in tags]


def names_referent(text: str, candidate: str) -> bool:
    """Whether a text names a candidate: the words of one are among those of the other, but for determiners and upper
    case, and both are possessive or neither is.

    >>> names_referent("stable", "The stable"), names_referent("Bob", "Bob's hat"), names_referent("", "Bob")
    (True, False, False)
    """
    said, meant = ({word for word in one.lower().split() if word not in _DETERMINERS} for one in (text, candidate))
    possessive = ["'" in " ".join(words) for words in (said, meant)]
    return bool(said) and possessive[0] == possessive[1] and (said <= meant or meant <= said)


def read_texts(prompt: PromptTemplate, examples: Sequence[Record], texts: Sequence[str], *, labeled: bool) -> Answers:
    """The class, number, tags or text that each text is; what is no class's word is `NO_CLASS`.

    Args:
      prompt: that of the task.
      examples: what was asked about.
      texts: what was written, in the same order.
      labeled: whether the examples say what is right; else nothing is.
    """
    predictions = [_read(prompt, *pair) for pair in zip(examples, texts, strict=True)]
    references = [
        _read(prompt, one, prompt.right(one)[0]) if labeled and not isinstance(prompt, CoreferenceTemplate) else None
        for one in examples
    ]
    names = [name_of(one) for one in examples]
    return Answers(predictions, references, [number if name is None else name for number, name in enumerate(names)])


def _read(prompt: PromptTemplate, example: Record, text: str) -> int | float | list[str] | str:
    match prompt:
        case LabelTemplate():
            return class_of(text, prompt.answers)
        case NumberTemplate():
            return number_of(text)
        case CoreferenceTemplate():
            return int(names_referent(text, text_in(example, prompt.candidate, "candidate")))
        case TagTemplate():
            return tags_of(text, len(field_of(example, prompt.tokens, "tokens")))
        case AnswerTemplate() if prompt.no_answer and text.strip() == prompt.no_answer:
            return ""
    return text.strip()


def count_unread(answers: Answers) -> int:
    """How many texts are no class's word."""
    return sum(said == NO_CLASS for said in answers.predictions if isinstance(said, int))
