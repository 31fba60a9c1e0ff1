"""The figures of tasks over a model's answers, by the names that an experiment gives them."""

import operator
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.evaluation.answers import Answers
from t5x_lite.evaluation.bootstrap import Figures, intervals
from t5x_lite.evaluation.entities import entity_counts, entity_scores
from t5x_lite.evaluation.label_metrics import LabelMetric, label_scores
from t5x_lite.evaluation.metric_names import Metric
from t5x_lite.evaluation.squad import exact_match, f1, scores_1_1, scores_2_0
from t5x_lite.objectives import Classification, MultipleChoice, Objective, QuestionAnswering, Tagging

TaskMetric = Literal[
    "accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "entities", "strict_entities", "squad", "squad2"
]
"""Those of labels are in `label_metrics`; `entities` and `strict_entities` in `entities`, by IOB2; `squad` and
`squad2` are SQuAD 1.1's and 2.0's, in per cent."""

TaskMetrics = Sequence[TaskMetric | Metric]

_OF_LABELS = get_args(LabelMetric)
_OF_NUMBERS = ("pearson", "spearman")


def score_answers(answers: Answers, metrics: TaskMetrics) -> Figures:
    """All figures of the metrics; those with several have their name before each, such as `entities_f1`."""
    of_labels = [metric for metric in metrics if metric in _OF_LABELS and metric != "accuracy"]
    figures = label_scores(answers.predictions, answers.references, of_labels)
    if "accuracy" in metrics:
        right, asked = _accuracy(answers)
        figures = {"accuracy": float(right.sum() / max(asked.sum(), 1))} | figures
    for metric in metrics:
        if isinstance(metric, Metric):
            figures[metric.name] = metric.compute(answers.predictions, answers.references)
        elif metric not in _OF_LABELS:
            figures |= {f"{metric}_{name}": value for name, value in _of_many(answers, metric).items()}
    return figures


def score_intervals(answers: Answers, metrics: TaskMetrics, **options: int) -> dict[str, tuple[float, float]]:
    """The bootstrap's 95 % intervals of `score_answers`, over its examples (`options` are those of `intervals`); the
    best of all thresholds, and the threshold itself, have none."""
    of_labels = [metric for metric in metrics if metric in _OF_LABELS and metric != "accuracy"]
    own = [metric for metric in metrics if isinstance(metric, Metric)]
    predictions, references, shares = answers.predictions, answers.references, example_shares(answers, metrics)

    def figures_of(some: np.ndarray) -> Figures:
        figures = {
            name: float(part[some].sum() / max(whole[some].sum(), 1e-9)) for name, (part, whole) in shares.items()
        }
        drawn = ([predictions[i] for i in some], [references[i] for i in some]) if of_labels or own else ()
        if of_labels:
            figures |= label_scores(*drawn, of_labels)
        figures |= {metric.name: metric.compute(*drawn) for metric in own}
        return figures

    return intervals(figures_of, len(predictions), **options)


def example_shares(answers: Answers, metrics: TaskMetrics) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(part, whole) by figure: two numbers of each example; the sum of the parts divided by that of the wholes is the
    figure. Of F1 by class, correlations and thresholds there is none."""
    shares = {"accuracy": _accuracy(answers)} if "accuracy" in metrics else {}
    return shares | {
        f"{metric}_{name}": share
        for metric in metrics
        if metric not in _OF_LABELS and not isinstance(metric, Metric)
        for name, share in _shares(answers, metric).items()
    }


def _accuracy(answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """By example: how many labels are right, and how many are asked for: of tags one for each word."""
    pairs = [
        (said, right) if isinstance(right, list) else ([said], [right])
        for said, right in zip(answers.predictions, answers.references, strict=True)
    ]
    right = np.array([sum(map(operator.eq, said, labels)) for said, labels in pairs])
    return right, np.array([len(labels) for _, labels in pairs])


def _shares(answers: Answers, metric: TaskMetric) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Figures as sums over examples, one divided by the other."""
    if metric in ("entities", "strict_entities"):
        mode = "strict" if metric == "strict_entities" else "default"
        right, said, there = entity_counts(answers.predictions, answers.references, mode=mode).T
        of_entities = {"precision": (right, said), "recall": (right, there), "f1": (2 * right, said + there)}
        return of_entities | {"accuracy": _accuracy(answers)}
    one = np.ones(len(answers.names))
    if metric == "squad":
        each = [
            (exact_match(said, texts), f1(said, texts))
            for said, texts in zip(answers.predictions, answers.references, strict=True)
        ]
        exact, words = 100 * np.array(each).T
        return {"exact_match": (exact, one), "f1": (words, one)}
    each = [
        scores_2_0({"": said}, {"": texts}, {"": doubt}, threshold=0.0)
        for said, texts, doubt in zip(answers.predictions, answers.references, answers.no_answer, strict=True)
    ]
    return {name: (np.array([figures[name] for figures in each]), one) for name in ("exact", "f1")}


def default_metrics(answers: Answers, objective: Objective, num_classes: int) -> tuple[TaskMetric, ...]:
    """What a task is scored by where nothing else is asked."""
    match objective:
        case Classification() if num_classes == 1:
            return "pearson", "spearman"
        case Tagging() if any("-" in tag for tags in answers.references for tag in tags):
            return "entities", "strict_entities"
        case QuestionAnswering():
            return ("squad",) if all(answers.references) else ("squad2",)
    return ("accuracy",)


def check_metrics(metrics: TaskMetrics, objective: Objective, num_classes: int) -> None:
    """Raises `InputError` for a metric that does not go with what the objective asks."""
    match objective:
        case Classification() if num_classes == 1:
            known = _OF_NUMBERS
        case Classification() | MultipleChoice():
            known = tuple(metric for metric in _OF_LABELS if metric not in _OF_NUMBERS)
        case Tagging():
            known = ("accuracy", "entities", "strict_entities")
        case QuestionAnswering():
            known = ("squad", "squad2")
        case _:
            known = ()
    if other := [metric for metric in metrics if metric not in known]:
        remedy = f"choose among {', '.join(known)}" if known else "leave it out"
        raise InputError(
            f"evaluation.task_metrics has {other[0]!r}, which {type(objective).__name__} has no answers for; {remedy}"
        )


def _of_many(answers: Answers, metric: TaskMetric) -> Figures:
    match metric:
        case "entities":
            return entity_scores(answers.predictions, answers.references)
        case "strict_entities":
            return entity_scores(answers.predictions, answers.references, mode="strict")
    predictions = dict(zip(answers.names, answers.predictions, strict=True))
    references = dict(zip(answers.names, answers.references, strict=True))
    if metric == "squad":
        return scores_1_1(predictions, references)
    no_answer = dict(zip(answers.names, answers.no_answer, strict=True))
    return scores_2_0(predictions, references, no_answer, threshold=0.0)
