"""Figures for people: held-out losses and metrics as sentences and lines."""

from collections.abc import Mapping
from typing import Any

from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.metrics import Metric
from t5x_lite.metrics.scores import Scores
from t5x_lite.training.experiment import Experiment

Figures = dict[str, float]
Metrics = Mapping[str, Metric]
"""The metric of each figure that is of one (`Scores.metrics`)."""


def format_figure(name: str, value: float, metric: Metric | None = None) -> str:
    """A figure for people, as its metric shows it; without one losses and perplexities as they are, others as shares.

    >>> [format_figure(*figure) for figure in (("pair_loss", 0.693), ("pair_accuracy", 0.9), ("perplexity", 31.25))]
    ['pair loss 0.693', 'pair accuracy 90.0%', 'perplexity 31.2']
    """
    if metric:
        return metric.format(name, value)
    label = name.replace("_", " ")
    if name.endswith("perplexity"):
        return f"{label} {value:,.1f}" if value < 1e6 else f"{label} {value:.1e}"
    return f"{label} {value:.3f}" if name.endswith("loss") else f"{label} {value:.1%}"


def format_signatures(metrics: Metrics) -> str:
    """The signatures of metrics, a line each."""
    lines = ((metric, figure.rpartition("/")[2]) for figure, metric in metrics.items() if metric.signature)
    return "\n".join(f"{metric.label(figure)}: {metric.signature}" for metric, figure in lines)


def format_spans(figures: Figures, metrics: Metrics) -> str:
    """The figures of the parts of a mixture, which have the part's name and a slash in front: a line for each part.

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
    """All figures of an evaluation, what the best model without context would lose on the same targets (`unigram_loss`
    of tokens, `constant_loss` of examples), and the signatures of metrics."""
    signatures = {"signatures": scores.signatures} if scores.signatures else {}
    baseline = "unigram_loss" if held_out.program.objective.unit == "token" else "constant_loss"
    return scores.figures | {baseline: held_out.baseline_loss} | signatures


_UNITS = ("token", "word", "example", "window")
_COMMON_FIGURES = ("loss", "unigram_loss", "constant_loss", "accuracy", "perplexity", *(f"{unit}s" for unit in _UNITS))


def describe(figures: dict[str, Any], metrics: Metrics) -> str:
    """Held-out figures as a sentence; those that only some objectives have stand behind the others.

    >>> figures = {"loss": 2, "unigram_loss": 5, "accuracy": 0.5, "perplexity": 7.4, "tokens": 90, "pair_loss": 0.7}
    >>> describe(figures, {}).partition("perplexity")[2]
    ' 7.4, 90 tokens; pair loss 0.700'
    """
    apart = (*_COMMON_FIGURES, "signatures", "intervals")
    others = {name: value for name, value in figures.items() if name not in apart and "/" not in name}
    parts, signatures = format_spans(figures, metrics), format_signatures(metrics)
    intervals = figures.get("intervals", {})
    unit = next(unit for unit in _UNITS if f"{unit}s" in figures)
    baseline, guess = ("unigram_loss", "the text's unigram model") if unit == "token" else ("constant_loss", "a guess")
    nats = " nats" if "accuracy" in figures else ""  # else it is a squared error
    measured = [f"held-out: loss {figures['loss']:.3f}{nats} {_one(unit)} "]
    measured[0] += f"({guess}: {figures[baseline]:.3f})"
    measured += [format_figure(name, figures[name]) for name in ("accuracy", "perplexity") if name in figures]
    shown = [format_figure(name, value, metrics.get(name)) for name, value in others.items()]
    return (
        f"{', '.join(measured)}, {figures[f'{unit}s']:,.0f} {unit}s"
        f"{'; ' if others else ''}{', '.join(shown)}"
        + (f"\n{parts}" if parts else "")
        + "".join(f"\n95 % interval: {_interval(name, *ends, metrics[name])}" for name, ends in intervals.items())
        + (f"\n{signatures}" if signatures else "")
    )


def _interval(name: str, low: float, high: float, metric: Metric) -> str:
    first, last = (format_figure(name, end, metric) for end in (low, high))
    return f"{first} to {last.rpartition(' ')[2]}"


def _one(unit: str) -> str:
    return f"{'an' if unit == 'example' else 'a'} {unit}"


def loss_unit(experiment: Experiment) -> str:
    """What the loss of an experiment is counted in."""
    in_nats = experiment.objective.in_nats(experiment.model)
    return f"nats {_one(experiment.objective.unit)}" if in_nats else "squared error"
