"""How well labels and numbers are predicted, by scikit-learn and SciPy."""

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

from t5x_lite.errors import InputError

LabelMetric = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"]
Labels = Sequence[int] | Sequence[float]


def label_scores(
    predictions: Labels, references: Labels, metrics: Sequence[LabelMetric], *, classes: int | None = None
) -> dict[str, float]:
    """Each metric over the same rows: shares of 1, correlations from -1 to 1.

    `f1` is that of class 1 (GLUE's MRPC and QQP: Wang et al. 2019), `macro_f1` the mean of the F1 of every class
    (SuperGLUE's CB), `matthews` the correlation of classes (CoLA), `pearson` and `spearman` those of numbers (STS-B).
    What is undefined is 0: the correlation with a constant, the F1 of a class that is neither there nor predicted.
    `macro_f1` is over the classes from 0 to `classes` - 1, or over those that are there or predicted.

    Raises `InputError` for no rows, unequal numbers of them, or a metric that is not known.
    """
    if len(predictions) != len(references) or not len(references):
        raise InputError(
            f"{len(predictions)} predictions do not go with {len(references)} labels; give one for each, one or more"
        )
    return {metric: _score(metric, predictions, references, classes) for metric in metrics}


def _score(metric: LabelMetric, predictions: Labels, references: Labels, classes: int | None) -> float:
    from scipy import stats
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined figures, which are 0
        match metric:
            case "accuracy":
                value = metrics.accuracy_score(references, predictions)
            case "f1":
                value = metrics.f1_score(references, predictions, average="binary", pos_label=1, zero_division=0)
            case "macro_f1":
                labels = None if classes is None else range(classes)
                value = metrics.f1_score(references, predictions, labels=labels, average="macro", zero_division=0)
            case "matthews":
                value = metrics.matthews_corrcoef(references, predictions)
            case "pearson":
                value = stats.pearsonr(references, predictions).statistic if len(references) > 1 else 0.0
            case "spearman":
                value = stats.spearmanr(references, predictions).statistic if len(references) > 1 else 0.0
            case _:
                raise InputError(f"metric {metric!r} is not known; choose {', '.join(get_args(LabelMetric))}")
    return float(value) if value == value else 0.0
