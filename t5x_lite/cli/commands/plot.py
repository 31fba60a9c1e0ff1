"""`plot`: learning curves of several runs in one picture."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from t5x_lite.cli.arguments import parse, subcommand
from t5x_lite.errors import InputError
from t5x_lite.evaluation.figures import loss_unit
from t5x_lite.files import check_output_path, local_or_bucket, read_bytes
from t5x_lite.pictures import model_title
from t5x_lite.runs.records import read_records
from t5x_lite.training.experiment import Experiment

By = Literal["step", "tokens"]
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


@dataclass(frozen=True)
class Run:
    """The records in a run's folder, and what it trained."""

    name: str
    records: list[dict[str, Any]]
    experiment: Experiment | None

    def points(self, figure: str, kind: str, by: By) -> list[tuple[float, float | None]]:
        """(steps or ids, the figure) of all records of a kind that have the figure."""
        scale = 1
        if by == "tokens":
            if self.experiment is None:
                raise InputError(f"{self.name} has no experiment.json to say how many tokens a step has; use --by step")
            unit, scale = self.experiment.objective.layout.throughput(self.experiment.batch_size)
            if unit != "tokens":
                raise InputError(f"{self.name} trains on {unit} without tokens; use --by step")
        return [(one["step"] * scale, one[figure]) for one in self.records if one["kind"] == kind and figure in one]


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


def open_run(folder: str, name: str) -> Run:
    """Reads a run's folder; `InputError` where it has no records."""
    path = local_or_bucket(folder)
    records, described = read_records(path / "metrics.jsonl"), path / "experiment.json"
    if not records:
        raise InputError(f"{folder} has no metrics.jsonl with records in it; name the folder of a run that has trained")
    experiment = None
    with suppress(InputError):  # classes of its own that are not imported: the figures are there all the same
        experiment = Experiment.from_json(read_bytes(described)) if described.exists() else None
    return Run(name, records, experiment)


def title_of(runs: list[Run], figure: str) -> str:
    """The figure and the runs with their models, or how many runs of which models where they are more than three."""
    named = [model_title(one.name, one.experiment.model) if one.experiment else one.name for one in runs]
    if len(runs) <= 3:
        return f"{', '.join(named)}: {figure.replace('_', ' ')}"
    families = dict.fromkeys(model_title("", one.experiment.model) for one in runs if one.experiment)
    return f"{len(runs)} runs{' of ' if families else ''}{', '.join(families)}: {figure.replace('_', ' ')}"


def short_names(folders: tuple[str, ...]) -> list[str]:
    """The folders without their common beginning; a single one's name.

    >>> short_names(("runs/a/x", "runs/b/x")), short_names(("runs/a/",))
    (['a/x', 'b/x'], ['a'])
    """
    parts = [Path(folder).parts for folder in folders]
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))
    return [str(Path(*part[min(common, len(part) - 1) :])) for part in parts]


def check_comparable(runs: list[Run], figure: str) -> None:
    """Raises `InputError` for a run without the figure, and for runs whose figures are of tokens and of examples."""
    for one in runs:
        names = {name for record in one.records if record["kind"] in KINDS for name in record} - {"step", "kind", "at"}
        if figure not in names:
            raise InputError(f"{one.name} has no figure {figure!r}; choose one of {', '.join(sorted(names))}")
    units = {one.experiment.objective.unit: one.name for one in runs if one.experiment is not None}
    if len(units) > 1:
        message = " and ".join(f"those of {name} are of {unit}s" for unit, name in units.items())
        raise InputError(f"the runs' figures are of two kinds: {message}; draw them apart")
