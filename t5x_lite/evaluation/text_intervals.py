"""How far the figures of written texts may be off by the choice of the inputs: 95 % intervals by the bootstrap."""

import json
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from t5x_lite.evaluation import text_metrics
from t5x_lite.evaluation.answer_metrics import Written, tag_answers
from t5x_lite.evaluation.answers import Answers
from t5x_lite.evaluation.bootstrap import intervals
from t5x_lite.evaluation.metric_names import Metric, TextMetric
from t5x_lite.evaluation.scores import score_intervals

Ends = dict[str, tuple[float, float]]
_RESAMPLES = 1000


def text_intervals(answers: Written, metrics: Sequence[TextMetric | Metric]) -> Ends:
    """The interval of each figure of `text_metrics.score`.

    Inputs of one group are drawn together: that one of them is easy says something of the others. BLEU's and chrF's are
    sacrebleu's own (Koehn 2004), whose middle is the mean of the resampled figures.
    """
    ends: Ends = {}
    for metric in metrics:
        match metric:
            case "bleu" | "chrf":
                ends |= _of_corpus(answers, metric)
            case "rouge":
                ends |= _of_means(text_metrics.rouge_of_each(answers.written, [texts[0] for texts in answers.right]))
            case "squad":
                ends |= score_intervals(
                    Answers(list(answers.written), list(answers.right), [""] * len(answers.right)), ("squad",)
                )
            case "tags":
                ends["tag_accuracy"] = score_intervals(tag_answers(answers), ("accuracy",))["accuracy"]
            case "entities" | "strict_entities":
                ends |= score_intervals(tag_answers(answers, of_entities=True), (metric,))
    if others := [metric for metric in metrics if metric not in _ONCE]:
        ends |= _of_draws(answers, others)
    return ends


_ONCE = ("bleu", "chrf", "rouge", "squad", "tags", "entities", "strict_entities")
"""Metrics that each input is scored by once and for all; the others are quick enough to be found for every draw."""


def _of_corpus(answers: Written, metric: TextMetric) -> Ends:
    references = [texts[0] for texts in answers.right]
    scorer = text_metrics.corpus_metric(metric)
    drawn = scorer.corpus_score(list(answers.written), [references], n_bootstrap=_RESAMPLES)
    said = json.loads(drawn.format(width=6, signature=str(scorer.get_signature()), is_json=True))
    # Where every draw scores nothing, sacrebleu is silent.
    middle, half = said.get("confidence_mean", 0.0), said.get("confidence_var", 0.0)
    return {metric: (middle - half, middle + half)}


def _of_means(each: dict[str, np.ndarray]) -> Ends:
    """Of figures that are means over the inputs."""
    count = len(next(iter(each.values())))
    return intervals(lambda some: {name: float(values[some].mean()) for name, values in each.items()}, count)


def _of_draws(answers: Written, metrics: Sequence[TextMetric | Metric]) -> Ends:
    """By all the figures of each draw."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number in range(len(answers.right)):
        groups[answers.groups[number] if any(answers.groups) else str(number)].append(number)
    members = [np.array(numbers) for numbers in groups.values()]

    def figures_over(some: np.ndarray) -> dict[str, float]:
        drawn = [members[unit] for unit in some]
        numbers = np.concatenate(drawn).tolist()
        return text_metrics.score(
            [answers.written[number] for number in numbers],
            [answers.right[number] for number in numbers],
            metrics,
            words=answers.words,
            # A group that is drawn twice is two.
            groups=[str(place) for place, unit in enumerate(drawn) for _ in unit],
        ).figures

    return intervals(figures_over, len(members), resamples=_RESAMPLES)
