"""Figures for people: held-out losses and metrics as sentences and lines."""

from typing import Any

from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.evaluation.metric_names import figures_in_per_cent
from t5x_lite.evaluation.text_metrics import Scores
from t5x_lite.training.experiment import Experiment

Figures = dict[str, float]


def format_figure(name: str, value: float) -> str:
    """A figure for people: losses, perplexities, correlations and what sacrebleu and SQuAD's scripts give as they are,
    all others as shares.

    >>> [format_figure(*figure) for figure in (("pair_loss", 0.693), ("pair_accuracy", 0.9), ("bleu", 31.25))]
    ['pair loss 0.693', 'pair accuracy 90.0%', 'BLEU 31.2']
    """
    shown = _name(name)
    if name.endswith("_total"):
        return f"{shown} {value:,.0f}"
    if name.startswith("squad") and not name.endswith("thresh"):
        return f"{shown} {value:.1f}"
    if name in ("matthews", "pearson", "spearman") or name.endswith("thresh"):
        return f"{shown} {value:.3f}"
    if name in ("bleu", "chrf") or name in figures_in_per_cent() or name.endswith("perplexity"):
        return f"{shown} {value:,.1f}" if value < 1e6 else f"{shown} {value:.1e}"
    return f"{shown} {value:.3f}" if name.endswith("loss") else f"{shown} {value:.1%}"


def format_signatures(signatures: dict[str, str]) -> str:
    """sacrebleu's signatures by the name of the figure, a line each."""
    return "\n".join(f"{_name(figure.rpartition('/')[2])}: {text}" for figure, text in signatures.items())


def format_spans(figures: Figures) -> str:
    """The figures of the parts of a mixture, which have the part's name and a slash in front: a line for each part.

    >>> print(format_spans({"loss": 1.0, "cola/loss": 0.5, "cola/matthews": 0.4, "stsb/loss": 1.5}))
      cola: loss 0.500, Matthews 0.400
      stsb: loss 1.500
    """
    parts: dict[str, list[str]] = {}
    for name, value in figures.items():
        part, slash, figure = name.partition("/")
        if slash:
            parts.setdefault(part, []).append(format_figure(figure, value))
    return "\n".join(f"  {part}: {', '.join(figures_of_part)}" for part, figures_of_part in parts.items())


def _name(figure: str) -> str:
    own = {"bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
    own |= {"f1": "F1", "macro_f1": "macro F1", "entities_f1": "entities F1", "matthews": "Matthews"}
    own |= {"pearson": "Pearson", "spearman": "Spearman", "squad_f1": "SQuAD F1", "squad_exact_match": "SQuAD match"}
    return own.get(figure, figure.replace("_", " "))


def held_out_figures(held_out: Evaluator | MixtureEvaluator, params: Any) -> dict[str, Any]:
    """All figures, what the best model without context would lose on the same targets (`unigram_loss` of tokens,
    `constant_loss` of examples), and sacrebleu's signatures."""
    return figures_of(held_out, held_out.evaluate(params))


def figures_of(held_out: Evaluator | MixtureEvaluator, scores: Scores) -> dict[str, Any]:
    """The same, of an evaluation that has been."""
    signatures = {"signatures": scores.signatures} if scores.signatures else {}
    baseline = "unigram_loss" if held_out.program.objective.unit == "token" else "constant_loss"
    return scores.figures | {baseline: held_out.baseline_loss} | signatures


_UNITS = ("token", "word", "example", "window")
_COMMON_FIGURES = ("loss", "unigram_loss", "constant_loss", "accuracy", "perplexity", *(f"{unit}s" for unit in _UNITS))


def describe(figures: dict[str, Any]) -> str:
    """Held-out figures as a sentence; those that only some objectives have stand behind the others.

    >>> figures = {"loss": 2, "unigram_loss": 5, "accuracy": 0.5, "perplexity": 7.4, "tokens": 90, "pair_loss": 0.7}
    >>> describe(figures).partition("perplexity")[2]
    ' 7.4, 90 tokens; pair loss 0.700'
    """
    apart = (*_COMMON_FIGURES, "signatures", "intervals")
    others = {name: value for name, value in figures.items() if name not in apart and "/" not in name}
    parts = format_spans(figures)
    intervals = figures.get("intervals", {})
    signatures = format_signatures(figures.get("signatures", {}))
    unit = next(unit for unit in _UNITS if f"{unit}s" in figures)
    baseline, guess = ("unigram_loss", "the text's unigram model") if unit == "token" else ("constant_loss", "a guess")
    nats = " nats" if "accuracy" in figures else ""  # else it is a squared error
    measured = [f"held-out: loss {figures['loss']:.3f}{nats} {_one(unit)} "]
    measured[0] += f"({guess}: {figures[baseline]:.3f})"
    measured += [format_figure(name, figures[name]) for name in ("accuracy", "perplexity") if name in figures]
    return (
        f"{', '.join(measured)}, {figures[f'{unit}s']:,.0f} {unit}s"
        f"{'; ' if others else ''}{', '.join(format_figure(name, value) for name, value in others.items())}"
        + (f"\n{parts}" if parts else "")
        + "".join(f"\n95 % interval: {_interval(name, *ends)}" for name, ends in intervals.items())
        + (f"\n{signatures}" if signatures else "")
    )


def _interval(name: str, low: float, high: float) -> str:
    return f"{format_figure(name, low)} to {format_figure(name, high).rpartition(' ')[2]}"


def _one(unit: str) -> str:
    return f"{'an' if unit == 'example' else 'a'} {unit}"


def loss_unit(experiment: Experiment) -> str:
    """What the loss of an experiment is counted in."""
    in_nats = experiment.objective.in_nats(experiment.model)
    return f"nats {_one(experiment.objective.unit)}" if in_nats else "squared error"
