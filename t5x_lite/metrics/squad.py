"""Scores of answers to questions as SQuAD's two official scripts give them (evaluate-v1.1.py, evaluate-v2.0.py).

Rajpurkar et al. 2016, section 6.1, and Rajpurkar et al. 2018, section 4.1 (questions without an answer).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Figures, RatioMetric
from t5x_lite.objectives.base import Predictions

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Answers = Mapping[str, Sequence[str]]
"""By question: every text that is right; none where there is no answer."""


@dataclass(frozen=True)
class Squad(RatioMetric):
    """SQuAD 1.1's exact match and F1, the best over the correct answers of each question, in per cent.

    >>> Squad().figures(Squad().read(Predictions("texts", ["the Nile", "red"], [("Nile", "River Nile"), ("blue",)])))
    {'squad_exact_match': 50.0, 'squad_f1': 50.0}
    """

    name = "squad"
    compares = ("spans",)
    scale = "percent"
    labels: ClassVar = {"squad_f1": "SQuAD F1", "squad_exact_match": "SQuAD match"}

    def compute(self, predictions: Predictions) -> Figures:
        return {f"squad_{name}": value for name, value in scores_1_1(*_by_question(predictions)).items()}

    def ratios(self, predictions: Predictions) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        pairs = list(zip(predictions.predicted, predictions.references, strict=True))
        each = {"exact_match": [exact_match(*pair) for pair in pairs], "f1": [f1(*pair) for pair in pairs]}
        return {f"squad_{name}": (100 * np.array(values), np.ones(len(pairs))) for name, values in each.items()}


@dataclass(frozen=True)
class Squad2(RatioMetric):
    """SQuAD 2.0's figures of answers that may be none: see `scores_2_0`.

    The best over all thresholds, and the thresholds themselves, have no interval.
    """

    name = "squad2"
    compares = ("spans",)
    reads_texts = False  # nobody knows how likely it is that there is no answer
    scale = "percent"

    def compute(self, predictions: Predictions) -> Figures:
        by_question, answers = _by_question(predictions)
        no_answer = dict(zip(by_question, predictions.no_answer, strict=True))
        figures = scores_2_0(by_question, answers, no_answer, threshold=0.0)
        return {f"squad2_{name}": value for name, value in figures.items()}

    def ratios(self, predictions: Predictions) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        triples = zip(predictions.predicted, predictions.references, predictions.no_answer, strict=True)
        each = [scores_2_0({"": text}, {"": texts}, {"": none}, threshold=0.0) for text, texts, none in triples]
        one = np.ones(len(each))
        return {f"squad2_{name}": (np.array([figures[name] for figures in each]), one) for name in ("exact", "f1")}

    def format(self, figure: str, value: float) -> str:
        if figure.endswith("_total"):
            return f"{self.label(figure)} {value:,.0f}"
        return f"{self.label(figure)} {value:.3f}" if figure.endswith("thresh") else super().format(figure, value)


def _by_question(predictions: Predictions) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """(predictions, answers) by the names of questions."""
    names = predictions.names or list(map(str, range(len(predictions.predicted))))
    sides = (predictions.predicted, predictions.references)
    return tuple(dict(zip(names, side, strict=True)) for side in sides)


def normalize(text: str) -> str:
    """The text in lower case, without ASCII punctuation and English articles, words apart by one blank.

    >>> normalize("The  U.S. Army's (new) tank")
    'us armys new tank'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> float:
    """1 where the prediction is one of the answers, both normalized; else 0."""
    return float(any(normalize(prediction) == normalize(answer) for answer in answers))


def f1(prediction: str, answers: Iterable[str], *, empty_is_a_match: bool = False) -> float:
    """The F1 of the words of the prediction, normalized, against the best fitting of the answers.

    Two texts without a word agree where `empty_is_a_match`, as in version 2.0; in version 1.1 they share nothing.

    >>> f1("the green cat", ["a cat", "dogs"])
    0.6666666666666666
    """
    return max(_f1(normalize(prediction).split(), normalize(answer).split(), empty_is_a_match) for answer in answers)


def _f1(tokens: list[str], right: list[str], empty_is_a_match: bool) -> float:
    if empty_is_a_match and not (tokens and right):
        return float(tokens == right)
    shared = sum((Counter(tokens) & Counter(right)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(tokens), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def scores_1_1(predictions: Mapping[str, str], answers: Answers) -> dict[str, float]:
    """`exact_match` and `f1` in per cent over all questions; one that was not answered counts 0.

    Raises `InputError` where there are no questions, or one of them has no answer.
    """
    _check_questions(answers)
    if without := [question for question, texts in answers.items() if not texts]:
        raise InputError(
            f"{len(without)} of {len(answers)} questions have no answer, the first of them {without[0]!r}, which "
            "SQuAD 1.1 does not know; score them as SQuAD 2.0"
        )
    each = [
        (exact_match(predictions[question], texts), f1(predictions[question], texts))
        for question, texts in answers.items()
        if question in predictions
    ]
    exact, words = (sum(column) for column in zip(*each, strict=True)) if each else (0.0, 0.0)
    return {"exact_match": 100 * exact / len(answers), "f1": 100 * words / len(answers)}


def scores_2_0(
    predictions: Mapping[str, str],
    answers: Answers,
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The figures of version 2.0, by its own names, in per cent: `exact`, `f1`, `total`; the same of questions that
    have an answer (`HasAns_`) and of those that have none (`NoAns_`), if there are such.

    Args:
      predictions: by question; an empty text says that there is no answer. Questions without one are left out.
      answers: by question.
      no_answer: by question, how likely it is that there is no answer, on any scale; None means 0 for all. With it
        come `best_exact` and `best_f1`, the most that any threshold gives, and `best_exact_thresh`, `best_f1_thresh`.
      threshold: where `no_answer` is above it, the prediction counts as an empty one.

    Raises `InputError` where there are no questions, or none of them was answered.
    """
    _check_questions(answers)
    answered = [question for question in answers if question in predictions]
    if not answered:
        raise InputError(f"none of the {len(answers)} questions was answered; give predictions by their ids")
    right = {question: [text for text in answers[question] if normalize(text)] or [""] for question in answered}
    doubt = dict.fromkeys(answered, 0.0) if no_answer is None else no_answer
    if missing := [question for question in answered if question not in doubt]:
        raise InputError(f"no_answer lacks {len(missing)} questions, the first of them {missing[0]!r}; give it for all")
    raw = {
        "exact": {question: exact_match(predictions[question], right[question]) for question in answered},
        "f1": {question: f1(predictions[question], right[question], empty_is_a_match=True) for question in answered},
    }
    final = {
        name: {
            question: float(not answers[question]) if doubt[question] > threshold else value
            for question, value in values.items()
        }
        for name, values in raw.items()
    }
    figures = _summary(final, answered, "")
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        if some := [question for question in answered if bool(answers[question]) == has_answer]:
            figures |= _summary(final, some, prefix)
    if no_answer is not None:
        for name, values in raw.items():
            best, where = best_threshold(predictions, values, no_answer, answers)
            figures |= {f"best_{name}": best, f"best_{name}_thresh": where}
    return figures


def best_threshold(
    predictions: Mapping[str, str], scores: Mapping[str, float], no_answer: Mapping[str, float], answers: Answers
) -> tuple[float, float]:
    """(the most that any threshold gives, in per cent; that threshold).

    Every question is first taken to have no answer; the threshold rises through `no_answer`, and with it one question
    after another is answered as it was predicted.
    """
    total = most = float(sum(not texts for texts in answers.values()))
    where = 0.0
    for question in sorted(no_answer, key=no_answer.__getitem__):
        if question not in scores:
            continue
        if answers[question]:
            total += scores[question]
        elif predictions[question]:
            total -= 1.0
        if total > most:
            most, where = total, no_answer[question]
    return 100 * most / len(scores), where


def _summary(scores: dict[str, dict[str, float]], questions: list[str], prefix: str) -> dict[str, float]:
    means = {
        f"{prefix}{name}": 100 * sum(values[question] for question in questions) / len(questions)
        for name, values in scores.items()
    }
    return means | {f"{prefix}total": len(questions)}


def _check_questions(answers: Answers) -> None:
    if not answers:
        raise InputError("there are no questions to score; give one or more")
