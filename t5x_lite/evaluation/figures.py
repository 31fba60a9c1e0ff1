"""Held-out losses and metrics as sentences and lines."""

from collections.abc import Mapping
from typing import Any

from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.metrics import Metric
from t5x_lite.metrics.base import Intervals
from t5x_lite.metrics.scores import Scores, score_intervals
from t5x_lite.training.experiment import Experiment

Figures = dict[str, float]
Metrics = Mapping[str, Metric]
"""By figure, where a metric gives it (`Scores.metrics`)."""


def format_figure(name: str, value: float, metric: Metric | None = None) -> str:
    """A figure as its metric shows it; without one losses, scales, counts and perplexities are numbers, others shares.

    >>> [format_figure(*figure) for figure in (("pair_loss", 0.693), ("pair_accuracy", 0.9), ("perplexity", 31.25))]
    ['pair loss 0.693', 'pair accuracy 90.0%', 'perplexity 31.2']
    >>> format_figure("logit_scale", 14.2857)
    'logit scale 14.286'
    """
    if metric:
        return metric.format(name, value)
    label = name.replace("_", " ")
    if name.endswith("perplexity"):
        return f"{label} {value:,.1f}" if value < 1e6 else f"{label} {value:.1e}"
    is_number = name.endswith(("loss", "scale", "cardinality_error", "utility"))
    return f"{label} {value:.3f}" if is_number else f"{label} {value:.1%}"


def format_signatures(metrics: Metrics) -> str:
    lines = ((metric, figure.rpartition("/")[2]) for figure, metric in metrics.items() if metric.signature)
    return "\n".join(f"{metric.label(figure)}: {metric.signature}" for metric, figure in lines)


def format_spans(figures: Figures, metrics: Metrics) -> str:
    """The figures of a mixture's parts, which begin with the part's name and a slash: a line for each part.

    >>> print(format_spans({"loss": 1.0, "cola/loss": 0.5, "cola/accuracy": 0.4, "stsb/loss": 1.5}, {}))
      cola: loss 0.500, accuracy 40.0%
      stsb: loss 1.500
    """
    parts: dict[str, list[str]] = {}
    for name, value in figures.items():
        part, slash, figure = name.partition("/")
        if slash:
            parts.setdefault(part, []).append(format_figure(figure, value, metrics.get(name)))
    return "\n".join(f"  {part}: {', '.join(figures_of_part)}" for part, figures_of_part in parts.items())


def held_out_figures(held_out: Evaluator | MixtureEvaluator, scores: Scores) -> dict[str, Any]:
    """All figures of an evaluation, the loss of the best model without context on the same targets (`unigram_loss` of
    tokens, `constant_loss` of examples), and the signatures of metrics."""
    signatures = {"signatures": scores.signatures} if scores.signatures else {}
    baseline = "unigram_loss" if held_out.program.objective.unit == "token" else "constant_loss"
    return scores.figures | {baseline: held_out.baseline_loss} | signatures


def held_out_intervals(of_parts: Mapping[str, Scores]) -> Intervals:
    """The bootstrap's 95 % interval of each figure of the metrics of an evaluator's parts, by its name in the mean."""
    intervals: Intervals = {}
    for part, scores in of_parts.items():
        metrics = {id(metric): metric for metric in scores.metrics.values()}  # one of them may have several figures
        ends = score_intervals(scores.predictions, tuple(metrics.values()))
        intervals |= {f"{part}/{figure}" if part else figure: pair for figure, pair in ends.items()}
    return intervals


_UNITS = ("token", "word", "example", "window")


def describe(figures: dict[str, Any], metrics: Metrics) -> str:
    """Held-out figures as a sentence, those of all objectives first.

    >>> figures = {"loss": 2, "unigram_loss": 5, "accuracy": 0.5, "perplexity": 7.4, "tokens": 90, "pair_loss": 0.7}
    >>> describe(figures, {}).partition("perplexity")[2]
    ' 7.4, 90 tokens; pair loss 0.700'
    """
    unit = next(unit for unit in _UNITS if f"{unit}s" in figures)
    baseline, guess = ("unigram_loss", "the text's unigram model") if unit == "token" else ("constant_loss", "a guess")
    nats = " nats" if "accuracy" in figures else ""  # else it is a squared error
    first = [f"held-out: loss {figures['loss']:.3f}{nats} {_one(unit)} ({guess}: {figures[baseline]:.3f})"]
    first += [format_figure(name, figures[name]) for name in ("accuracy", "perplexity") if name in figures]
    first.append(f"{figures[f'{unit}s']:,.0f} {unit}s")
    apart = {"loss", "unigram_loss", "constant_loss", "accuracy", "perplexity", "signatures", "intervals"}
    apart |= {f"{unit}s" for unit in _UNITS}
    others = [
        format_figure(name, value, metrics.get(name))
        for name, value in figures.items()
        if name not in apart and "/" not in name
    ]
    lines = ["; ".join(", ".join(some) for some in (first, others) if some), format_spans(figures, metrics)]
    for name, ends in figures.get("intervals", {}).items():
        low, high = (format_figure(name, end, metrics[name]) for end in ends)
        lines.append(f"95 % interval: {low} to {high.rpartition(' ')[2]}")
    return "\n".join(filter(None, [*lines, format_signatures(metrics)]))


def _one(unit: str) -> str:
    return f"{'an' if unit == 'example' else 'a'} {unit}"


def loss_unit(experiment: Experiment) -> str:
    in_nats = experiment.objective.in_nats(experiment.model)
    return f"nats {_one(experiment.objective.unit)}" if in_nats else "squared error"
