"""Scores of answers to questions as SQuAD's two official scripts compute them (evaluate-v1.1.py, evaluate-v2.0.py).

Rajpurkar et al. 2016, section 6.1, and Rajpurkar et al. 2018, section 4.1 (questions without an answer).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Figures, RatioMetric, Ratios
from t5x_lite.objectives.base import Predictions

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Squad(RatioMetric):
    """SQuAD 1.1's exact match and F1, the best over the correct answers of each question, in per cent.

    Raises `InputError` where a question has no answer.

    >>> Squad().figures(Squad().read(Predictions("texts", ["the Nile", "red"], [("Nile", "River Nile"), ("blue",)])))
    {'squad_exact_match': 50.0, 'squad_f1': 50.0}
    """

    name = "squad"
    compares = ("spans",)
    scale = "percent"
    labels: ClassVar = {"squad_f1": "SQuAD F1", "squad_exact_match": "SQuAD match"}

    def ratios(self, predictions: Predictions) -> Ratios:
        count = len(predictions.references)
        if without := [number for number, texts in enumerate(predictions.references) if not texts]:
            first = predictions.names[without[0]] if predictions.names else str(without[0])
            raise InputError(
                f"{len(without)} of {count} questions have no answer, the first of them {first!r}, which SQuAD 1.1 "
                "does not know; score them as SQuAD 2.0"
            )
        pairs = list(zip(predictions.predicted, predictions.references, strict=True))
        each = {"exact_match": [exact_match(*pair) for pair in pairs], "f1": [f1(*pair) for pair in pairs]}
        return {f"squad_{name}": (100 * np.array(values), 1) for name, values in each.items()}


@dataclass(frozen=True)
class Squad2(RatioMetric):
    """SQuAD 2.0's figures, by its own names, in per cent: `exact`, `f1`, `total`; the same of questions that have an
    answer (`HasAns_`) and of those that have none (`NoAns_`), if there are such; and `best_exact`, `best_f1`, the most
    that any threshold gives, with `best_exact_thresh`, `best_f1_thresh`.

    A prediction counts as empty, which says that there is no answer, where `no_answer` is above 0. The best over all
    thresholds, and the thresholds themselves, have no interval.
    """

    name = "squad2"
    compares = ("spans",)
    reads_texts = False  # a written text does not tell how likely it is that there is no answer
    scale = "percent"

    def compute(self, predictions: Predictions) -> Figures:
        raw, final, has_answer = self._scores(predictions)
        figures = {}
        for prefix, some in (("", np.ones_like(has_answer)), ("HasAns_", has_answer), ("NoAns_", ~has_answer)):
            if count := int(some.sum()):
                figures |= {
                    f"{prefix}{name}": 100 * sum(values[some].tolist()) / count for name, values in final.items()
                }
                figures[f"{prefix}total"] = count
        # With the lowest threshold no question has an answer; as it rises, one after another is answered as predicted.
        is_empty = np.array([not text for text in predictions.predicted])
        no_answer = np.array(predictions.no_answer)
        order = np.argsort(no_answer, kind="stable")
        for name, values in raw.items():
            gains = np.where(has_answer, values, is_empty - 1.0)[order]
            totals = np.cumsum([(~has_answer).sum(), *gains])
            best = int(totals.argmax())
            figures[f"best_{name}"] = 100 * float(totals[best]) / len(values)
            figures[f"best_{name}_thresh"] = float(no_answer[order[best - 1]]) if best else 0.0
        return {f"squad2_{name}": value for name, value in figures.items()}

    def ratios(self, predictions: Predictions) -> Ratios:
        _, final, _ = self._scores(predictions)
        return {f"squad2_{name}": (100 * values, 1) for name, values in final.items()}

    def _scores(self, predictions: Predictions) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        """(scores of the predicted texts from 0 to 1, those with the threshold, whether there is an answer)."""
        references = [[text for text in texts if normalize(text)] or [""] for texts in predictions.references]
        pairs = list(zip(predictions.predicted, references, strict=True))
        raw = {
            "exact": np.array([exact_match(*pair) for pair in pairs]),
            "f1": np.array([f1(*pair, empty_is_a_match=True) for pair in pairs]),
        }
        has_answer = np.array(list(map(bool, predictions.references)))
        is_empty = np.array(predictions.no_answer) > 0.0
        return raw, {name: np.where(is_empty, ~has_answer, values) for name, values in raw.items()}, has_answer

    def format(self, figure: str, value: float) -> str:
        if figure.endswith("_total"):
            return f"{self.label(figure)} {value:,.0f}"
        return f"{self.label(figure)} {value:.3f}" if figure.endswith("thresh") else super().format(figure, value)


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
    """The F1 of the words of the prediction, normalized, with the best of the answers.

    Two texts without a word agree where `empty_is_a_match`, as in version 2.0; in version 1.1 their F1 is 0.

    >>> f1("the green cat", ["a cat", "dogs"])
    0.6666666666666666
    """
    tokens = normalize(prediction).split()

    def of(right: list[str]) -> float:
        if empty_is_a_match and not (tokens and right):
            return float(tokens == right)
        shared = sum((Counter(tokens) & Counter(right)).values())
        if not shared:
            return 0.0
        precision, recall = shared / len(tokens), shared / len(right)
        return 2 * precision * recall / (precision + recall)

    return max(of(normalize(answer).split()) for answer in answers)
