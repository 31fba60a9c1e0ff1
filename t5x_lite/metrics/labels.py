"""How well labels, numbers and tags are predicted, by scikit-learn and SciPy.

What is undefined is 0: the correlation with a constant, the F1 of a class that does not occur.
"""

import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from t5x_lite.data.tasks.templates import NO_CLASS
from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Figures, Metric, RatioMetric, Ratios
from t5x_lite.objectives.base import Predictions


@dataclass(frozen=True)
class Accuracy(RatioMetric):
    """The share of labels that are correct; of tags each word has one."""

    name = "accuracy"
    compares = ("classes", "tags")
    reads_texts = False  # the records of a model that writes text have the accuracy of its tokens by this name
    figure = "accuracy"

    def ratios(self, predictions: Predictions) -> Ratios:
        return {self.figure: correct_labels(predictions)}


@dataclass(frozen=True)
class Top5Accuracy(RatioMetric):
    """The share of examples whose class is among the five likeliest (Russakovsky et al. 2015, section 4.1); 1 where
    there are no more classes."""

    name = "top_5_accuracy"
    compares = ("classes",)
    reads_texts = False
    labels: ClassVar = {"top_5_accuracy": "top-5 accuracy"}

    def ratios(self, predictions: Predictions) -> Ratios:
        if predictions.ranked is None:
            raise InputError("metric 'top_5_accuracy' needs the likeliest classes of each example; take accuracy")
        pairs = zip(predictions.ranked, predictions.references, strict=True)
        return {self.name: (np.array([reference in ranked[:5] for ranked, reference in pairs]), 1)}


def correct_labels(predictions: Predictions) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "N"]]:
    """(how many labels are correct, how many there are) by example."""
    pairs = [
        (labels, references) if isinstance(references, list) else ([labels], [references])
        for labels, references in zip(predictions.predicted, predictions.references, strict=True)
    ]
    correct = np.array([sum(map(operator.eq, *pair)) for pair in pairs])
    return correct, np.array([len(references) for _, references in pairs])


@dataclass(frozen=True)
class TagAccuracy(Accuracy):
    """The share of words with the correct tag."""

    name = "tags"
    compares = ("tags",)
    reads_texts = True
    figure = "tag_accuracy"


@dataclass(frozen=True)
class F1(RatioMetric):
    """The F1 of class 1 (GLUE's MRPC and QQP: Wang et al. 2019)."""

    name = "f1"
    compares = ("classes",)
    labels: ClassVar = {"f1": "F1"}

    def ratios(self, predictions: Predictions) -> Ratios:
        predicted, references = np.asarray(predictions.predicted), np.asarray(predictions.references)
        if (count := len(predictions.words) or int(max(predicted.max(), references.max())) + 1) > 2:
            raise InputError(f"metric 'f1' is that of two classes, the task has {count}; take macro_f1")
        # A text that is the word of no class counts as the other class: it is wrong either way.
        predicted = np.where(predicted == NO_CLASS, 1 - references, predicted)
        return {"f1": (2 * predicted * references, predicted + references)}


@dataclass(frozen=True)
class MacroF1(Metric):
    """The mean of the F1 of every class (SuperGLUE's CB).

    Where texts are read the classes are those that have words: `NO_CLASS` is wrong, and not in the mean. Otherwise they
    are those that occur.
    """

    name = "macro_f1"
    compares = ("classes",)
    labels: ClassVar = {"macro_f1": "macro F1"}

    def compute(self, predictions: Predictions) -> Figures:
        return self.resampled(predictions)(np.arange(len(predictions.references)))

    def resampled(self, predictions: Predictions) -> Callable[[Int[np.ndarray, "M"]], Figures]:
        # scikit-learn takes milliseconds for each of a thousand draws.
        both = np.concatenate([np.asarray(predictions.references), np.asarray(predictions.predicted)])
        classes, numbers = np.unique(both, return_inverse=True)
        references, predicted = numbers.reshape(2, -1)
        pairs = references * len(classes) + predicted

        def figures(drawn: Int[np.ndarray, "M"]) -> Figures:
            table = np.bincount(pairs[drawn], minlength=len(classes) ** 2).reshape(len(classes), -1)
            either = table.sum(axis=0) + table.sum(axis=1)
            counted = (either > 0) & (classes != NO_CLASS) if predictions.words else either > 0
            total = (2 * table.diagonal()[counted] / either[counted]).sum()
            return {self.name: float(total / (len(predictions.words) or counted.sum()))}

        return figures


@dataclass(frozen=True)
class Matthews(Metric):
    """Matthews' correlation of classes (GLUE's CoLA)."""

    name = "matthews"
    compares = ("classes",)
    scale = "number"
    labels: ClassVar = {"matthews": "Matthews"}

    def compute(self, predictions: Predictions) -> float:
        from sklearn.metrics import matthews_corrcoef

        return _correlation(matthews_corrcoef, predictions)


@dataclass(frozen=True)
class Pearson(Metric):
    """Pearson's correlation of numbers (GLUE's STS-B)."""

    name = "pearson"
    compares = ("numbers",)
    scale = "number"
    labels: ClassVar = {"pearson": "Pearson"}

    def compute(self, predictions: Predictions) -> float:
        from scipy.stats import pearsonr

        return _correlation(lambda *sides: pearsonr(*sides).statistic, predictions)


@dataclass(frozen=True)
class Spearman(Pearson):
    """Spearman's correlation of the ranks of numbers (GLUE's STS-B)."""

    name = "spearman"
    labels: ClassVar = {"spearman": "Spearman"}

    def compute(self, predictions: Predictions) -> float:
        from scipy.stats import spearmanr

        return _correlation(lambda *sides: spearmanr(*sides).statistic, predictions)


def _correlation(function: Callable[..., float], predictions: Predictions) -> float:
    """`function(references, predicted)`, 0 where it is undefined, without a warning."""
    if len(predictions.references) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(function(predictions.references, predictions.predicted))
    return 0.0 if math.isnan(value) else value
