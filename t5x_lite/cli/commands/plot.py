"""`plot`: learning curves of several runs in one picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from t5x_lite.cli.arguments import parse, subcommand
from t5x_lite.errors import InputError
from t5x_lite.evaluation.figures import loss_unit
from t5x_lite.files import check_output_path
from t5x_lite.pictures import model_title
from t5x_lite.runs.recorded import By, RecordedRun, open_run, short_names

KINDS = ("train", "held_out")


@dataclass(frozen=True)
class Plot:
    """Draw how a figure of some runs went while they trained: thin lines for the rows trained on, dots for held-out
    ones."""

    run: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[RUN ...]")]
    """The folders of one or more runs."""
    figure: str = "loss"
    """loss, accuracy, or whatever else metrics.jsonl has of all of them."""
    by: By = "step"
    """What the curves are drawn over: the steps, or the ids trained on."""
    out: str = "curves.png"
    """The picture, a PNG file."""


EXAMPLES = (
    "plot runs/t5_tiny",
    "plot runs/a runs/b --figure accuracy --by tokens --out accuracy.png",
)


@subcommand
def plot(arguments: list[str]) -> None:
    """plot RUN RUN ...: learning curves of several runs in one picture"""
    command = parse(Plot, arguments, prog="t5x-lite plot", examples=EXAMPLES)
    if not command.run:
        raise InputError("run is missing; write t5x-lite plot runs/a runs/b")
    from t5x_lite.pictures.drawing import Curve, draw_curves

    out = Path(command.out).expanduser()
    check_output_path(out, "out")
    runs = [open_run(folder, name) for folder, name in zip(command.run, short_names(command.run), strict=True)]
    check_comparable(runs, command.figure)
    label, first = command.figure.replace("_", " "), runs[0].experiment
    if command.figure == "loss" and first is not None:
        label = f"loss ({loss_unit(first)})"
    curves = [
        Curve(one.name, kind, points)
        for one in runs
        for kind in KINDS
        if (points := one.points(command.figure, kind, command.by))
    ]
    draw_curves(
        curves,
        xlabel={"step": "step", "tokens": "tokens trained on"}[command.by],
        ylabel=label,
        title=title_of(runs, command.figure),
    ).save(out)
    for one in runs:
        last = {kind: points[-1] for kind in KINDS if (points := one.points(command.figure, kind, "step"))}
        figures = (
            f"{kind.replace('_', '-')} {command.figure} {'not finite' if value is None else f'{value:.4f}'} "
            f"at step {step:,}"
            for kind, (step, value) in last.items()
        )
        print(f"{one.name}: {'; '.join(figures)}")
    print(out)


def title_of(runs: list[RecordedRun], figure: str) -> str:
    """The figure and the runs with their models, or how many runs of which models where they are more than three."""
    named = [model_title(one.name, one.experiment.model) if one.experiment else one.name for one in runs]
    if len(runs) <= 3:
        return f"{', '.join(named)}: {figure.replace('_', ' ')}"
    families = dict.fromkeys(model_title("", one.experiment.model) for one in runs if one.experiment)
    return f"{len(runs)} runs{' of ' if families else ''}{', '.join(families)}: {figure.replace('_', ' ')}"


def check_comparable(runs: list[RecordedRun], figure: str) -> None:
    """Raises `InputError` for a run without the figure, and for runs whose figures are of tokens and of examples."""
    for one in runs:
        names = {name for record in one.records if record["kind"] in KINDS for name in record} - {"step", "kind", "at"}
        if figure not in names:
            raise InputError(f"{one.name} has no figure {figure!r}; choose one of {', '.join(sorted(names))}")
    units = {one.experiment.objective.unit: one.name for one in runs if one.experiment is not None}
    if len(units) > 1:
        message = " and ".join(f"those of {name} are of {unit}s" for unit, name in units.items())
        raise InputError(f"the runs' figures are of two kinds: {message}; draw them apart")
