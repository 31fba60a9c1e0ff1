"""Metrics by their names, and the scores of predictions."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from t5x_lite import metrics as package
from t5x_lite.errors import InputError
from t5x_lite.metrics import Metric
from t5x_lite.metrics.base import Figures, Intervals
from t5x_lite.objectives.base import Predictions


def _named_metrics() -> dict[str, Metric]:
    """Those of all files in `metrics`, in their order."""

    def below(cls: type[Metric]) -> Iterator[type[Metric]]:
        for child in cls.__subclasses__():
            yield child
            yield from below(child)

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    classes = [cls for cls in below(Metric) if cls.__module__.startswith(package.__name__)]
    return {cls.name: cls() for cls in classes if hasattr(cls, "name")}  # bases have none


METRICS: Mapping[str, Metric] = _named_metrics()
"""The metrics of the package by their names; any other `Metric` is given as a value."""

Metrics = Annotated[
    tuple[str | Metric, ...],
    # Without it tyro hides the option: a command line can give names alone.
    PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{{{','.join(METRICS)}}} ...]",
        instance_from_str=tuple,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [metric.name for metric in metrics_of(value)],
        choices=tuple(METRICS),
    ),
]
"""Metrics by name or as values, a field of a config."""


@dataclass(frozen=True)
class PartMetrics:
    """The metrics of one part of a mixture."""

    part: str
    """Its name in the mixture."""
    metrics: Metrics
    """Instead of those of all parts; empty decodes nothing of it."""


@dataclass(frozen=True)
class Scores:
    """The figures of an evaluation."""

    figures: Figures
    """All figures by name: those of metrics, and of a run the loss and what the objective measures beside it."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """The metric of each figure that is of one."""
    predictions: Predictions | None = None
    """What the metrics compared."""

    @property
    def signatures(self) -> dict[str, str]:
        """By figure, where its metric has a signature."""
        return {figure: metric.signature for figure, metric in self.metrics.items() if metric.signature}


def metrics_of(names: Sequence[str | Metric], option: str = "") -> tuple[Metric, ...]:
    """The metrics; raises `InputError` for a name that none has, `option` being the field that gave it."""
    for name in names:
        if not isinstance(name, Metric) and name not in METRICS:
            problem = f"{option} has {name!r}, which" if option else f"metric {name!r}"
            raise InputError(f"{problem} is not known; choose {', '.join(METRICS)}")
    return tuple(name if isinstance(name, Metric) else METRICS[name] for name in names)


def check_metrics(names: Sequence[str | Metric], predicts: str | None, objective: str, option: str) -> None:
    """Raises `InputError` for a metric that does not go with what an objective predicts.

    Args:
      names: the metrics, or their names.
      predicts: the type of the objective's predictions; None where it makes none.
      objective, option: for the message, the objective's name and the field that has the metrics.
    """

    def goes(metric: Metric) -> bool:
        if predicts is None or not metric.compares:
            return predicts is not None
        return predicts in metric.compares or (predicts == "texts" and metric.reads_texts)

    for metric in metrics_of(names, option):
        if not goes(metric):
            known = [name for name, one in METRICS.items() if goes(one)]
            remedy = f"choose among {', '.join(known)}" if known else "leave it out"
            raise InputError(f"{option} has {metric.name!r}, which {objective} has no answers for; {remedy}")


def score(predictions: Predictions, names: Sequence[str | Metric]) -> Scores:
    """All metrics over the same predictions; raises `InputError` for no predictions, another number of references, a
    metric that is not known or lacks what it needs."""
    count = len(predictions.predicted)
    if count != len(predictions.references) or not count:
        others = len(predictions.references)
        raise InputError(f"{count} predictions do not go with {others} references; give one for each, and one or more")
    figures, of_figures = {}, {}
    for metric in metrics_of(names):
        computed = metric.figures(_compared(metric, predictions))
        figures |= computed
        of_figures |= dict.fromkeys(computed, metric)
    return Scores(figures, of_figures, predictions)


def score_intervals(
    predictions: Predictions, names: Sequence[str | Metric], *, resamples: int = 1000, seed: int = 0
) -> Intervals:
    """The 95 % interval of each figure of `score` that has one: how far it may be off by the choice of the examples."""
    ends: Intervals = {}
    for metric in metrics_of(names):
        ends |= metric.intervals(_compared(metric, predictions), resamples=resamples, seed=seed)
    return ends


def _compared(metric: Metric, predictions: Predictions) -> Predictions:
    is_read = predictions.type == "texts" and metric.compares and "texts" not in metric.compares
    return metric.read(predictions) if is_read else predictions
