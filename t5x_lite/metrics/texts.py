"""How close written texts come to reference texts, as the field's libraries compute it.

Where several references are correct, BLEU, chrF and ROUGE compare with the first one.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from t5x_lite.data.tasks.templates import names_referent
from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Intervals, Metric, RatioMetric, Ratios
from t5x_lite.objectives.base import Predictions


@dataclass(frozen=True)
class CorpusMetric(Metric):
    """Base of sacrebleu's metrics, of sums over the whole corpus."""

    compares = ("texts",)
    scale = "percent"

    def scorer(self) -> Any:
        """sacrebleu's object of this name."""
        from sacrebleu.metrics import METRICS

        return METRICS[self.name.upper()]()

    def compute(self, predictions: Predictions) -> float:
        return self.scorer().corpus_score(list(predictions.predicted), [_first(predictions)]).score

    def intervals(self, predictions: Predictions, *, resamples: int = 1000, seed: int = 0) -> Intervals:
        """sacrebleu's (Koehn 2004), whose middle is the mean of the resampled figures; it has its own seed."""
        scorer = self.scorer()
        score = scorer.corpus_score(list(predictions.predicted), [_first(predictions)], n_bootstrap=resamples)
        written = json.loads(score.format(width=6, signature=str(scorer.get_signature()), is_json=True))
        # Where every draw scores 0, sacrebleu gives no interval.
        middle, half = written.get("confidence_mean", 0.0), written.get("confidence_var", 0.0)
        return {self.name: (middle - half, middle + half)}

    @property
    def signature(self) -> str:
        """sacrebleu's: tokenization, smoothing, version."""
        scorer = self.scorer()
        scorer.corpus_score(["one"], [["one"]])  # it knows the number of references from then on
        return str(scorer.get_signature())


@dataclass(frozen=True)
class Bleu(CorpusMetric):
    """Corpus BLEU (Papineni et al. 2002) by sacrebleu, cut into tokens as mteval-v13a does (Post 2018)."""

    name = "bleu"
    labels: ClassVar = {"bleu": "BLEU"}


@dataclass(frozen=True)
class Chrf(CorpusMetric):
    """chrF2 (Popovic 2015) by sacrebleu with its defaults: the F-score of character 6-grams, recall counted twice."""

    name = "chrf"
    labels: ClassVar = {"chrf": "chrF"}


@dataclass(frozen=True)
class Rouge(RatioMetric):
    """ROUGE-1, -2 and -L (Lin 2004) by rouge-score without stemming: the mean over texts of their F1.

    >>> Rouge().figures(Predictions("texts", ["the cat sat"], [("the cat sat down there today",)]))["rouge1"]
    0.6666666666666666
    """

    name = "rouge"
    compares = ("texts",)
    labels: ClassVar = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}

    def ratios(self, predictions: Predictions) -> Ratios:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(list(self.labels))
        each = [scorer.score(*pair) for pair in zip(_first(predictions), predictions.predicted, strict=True)]
        return {name: (np.array([scores[name].fmeasure for scores in each]), 1) for name in self.labels}


@dataclass(frozen=True)
class ExactMatch(RatioMetric):
    """The share of texts that are one of the references but for surrounding white space; of classes written as words,
    the accuracy.

    >>> ExactMatch().figures(Predictions("texts", ["a cat", "a dog ", "A cat"], [("a cat",), ("a dog",), ("a cat",)]))
    {'exact_match': 0.6666666666666666}
    """

    name = "exact_match"
    compares = ("texts",)

    def ratios(self, predictions: Predictions) -> Ratios:
        return {"exact_match": (_matches(predictions), 1)}


@dataclass(frozen=True)
class GroupMatch(RatioMetric):
    """The share of groups whose texts are all one of their references, such as MultiRC's questions."""

    name = "group_match"
    compares = ("texts",)

    def ratios(self, predictions: Predictions) -> Ratios:
        if not any(predictions.groups):
            raise InputError("metric 'group_match' needs groups of inputs; give TextToText whose prompt has a group")
        _, first, numbers = np.unique(np.asarray(predictions.groups), return_index=True, return_inverse=True)
        wrong = np.bincount(numbers, ~_matches(predictions), minlength=len(first))
        # A group counts at its first example.
        is_first = np.isin(np.arange(len(numbers)), first)
        return {"group_match": (is_first & (wrong[numbers] == 0), is_first)}


@dataclass(frozen=True)
class Referent(RatioMetric):
    """The share of correct decisions whether a pronoun refers to a candidate: see `CoreferenceTemplate`. The references
    of each are the candidate, and 'True' or 'False'.

    >>> references = [("cat", "True"), ("dog", "False")]
    >>> Referent().figures(Predictions("texts", ["the cat", "it"], references))
    {'referent': 1.0}
    """

    name = "referent"
    compares = ("texts",)

    def ratios(self, predictions: Predictions) -> Ratios:
        if not all(len(texts) == 2 and texts[1] in ("True", "False") for texts in predictions.references):
            raise InputError(
                "metric 'referent' needs candidates and their labels; give TextToText with CoreferenceTemplate"
            )
        same = [
            names_referent(text, candidate) == (label == "True")
            for text, (candidate, label) in zip(predictions.predicted, predictions.references, strict=True)
        ]
        return {"referent": (np.array(same), 1)}


def _first(predictions: Predictions) -> list[str]:
    return [texts[0] for texts in predictions.references]


def _matches(predictions: Predictions) -> np.ndarray:
    pairs = zip(predictions.predicted, predictions.references, strict=True)
    return np.array([text.strip() in map(str.strip, texts) for text, texts in pairs])
