"""Several runs of one config: planned, printed as commands or trained one after the other, and compared."""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etils import epath
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from t5x_lite.errors import InputError
from t5x_lite.evaluation.figures import format_figure
from t5x_lite.files import local_or_bucket, read_json
from t5x_lite.runs import loop
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.records import print_line
from t5x_lite.runs.workdir import open_workdir
from t5x_lite.training.experiment import Experiment


@dataclass(frozen=True)
class PlannedRun:
    """One run of several."""

    name: str
    arguments: list[str]
    """Of `train`, behind the config."""
    experiment: Experiment
    workdir: str

    def is_complete(self) -> bool:
        """Whether it came to its end before; `InputError` where the folder holds another run."""
        folder = epath.Path(local_or_bucket(self.workdir))
        if not (folder / "held_out.json").exists():
            return False
        with open_workdir(folder, self.experiment):
            steps = steps_of_run(folder)
        return bool(steps) and int(steps[-1].name) >= self.experiment.steps


def take_option(arguments: list[str], option: str) -> tuple[list[str], list[str]]:
    """(what stands behind an option, up to the next one; the other arguments)."""
    if option not in arguments:
        return [], arguments
    start = arguments.index(option) + 1
    end = next((n for n in range(start, len(arguments)) if arguments[n].startswith("--")), len(arguments))
    return arguments[start:end], [*arguments[: start - 1], *arguments[end:]]


def take_part(runs: Sequence[PlannedRun], part: Sequence[str]) -> list[PlannedRun]:
    """Every n-th run where `part` is one text i/n, the i-th being the first: hosts share a grid without knowing of
    each other."""
    if not part:
        return list(runs)
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", part[0])
    if not match or len(part) > 1 or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--part={' '.join(part)} is not I/N with I from 1 to N; write 1/2 and 2/2 on two hosts")
    return list(runs[int(match[1]) - 1 :: int(match[2])])


def run_grid(
    config: str, arguments: list[str], plan: Callable[[list[str]], list[PlannedRun]]
) -> tuple[int, list[PlannedRun]]:
    """Trains what `plan` makes of the arguments, or prints its commands, heeding `--part`; (exit status, what is done).

    Nothing is done where a signal stopped a run: the same command goes on.
    """
    part, arguments = take_option(arguments, "--part")
    runs = take_part(plan([argument for argument in arguments if argument != "--commands"]), part)
    if "--commands" in arguments:
        print_commands(config, runs)
        return 0, []
    console = Console()
    failed = train_all(console, runs)
    if failed is None:
        return 0, []
    print_losses(console, runs, failed)
    return 1 if failed else 0, [run for run in runs if run.name not in failed]


def print_commands(config: str, runs: Sequence[PlannedRun]) -> None:
    """The command of each run, for a launcher."""
    for run in runs:
        print(shlex.join([sys.executable, "-m", "t5x_lite", "train", config, *run.arguments]))


def train_all(console: Console, runs: Sequence[PlannedRun]) -> dict[str, str] | None:
    """Trains each run that is not complete; returns what each failed by, or None where a signal stopped one."""
    failed = {}
    for number, run in enumerate(runs, start=1):
        print_line(console, f"\n== run {number} of {len(runs)}: {run.name}")
        try:
            if run.is_complete():
                print_line(console, "complete already")
            elif not loop.train(run.experiment, run.workdir, console):
                return None
        except (loop.NonFiniteError, InputError) as error:
            failed[run.name] = str(error)
            print_line(console, str(error))
    return failed


def print_losses(console: Console, runs: Sequence[PlannedRun], failed: dict[str, str]) -> None:
    """The runs by their held-out loss, and how to draw their curves."""
    figures = {run.name: read_json(local_or_bucket(run.workdir) / "held_out.json") for run in runs}
    shown = [
        name for name in next((one for one in figures.values() if one), {}) if name in ("loss", "accuracy", "bleu")
    ]
    table = Table(Column("run", overflow="fold"), *(Column(name, justify="right") for name in shown), box=None)
    done = [run for run in runs if run.name not in failed]
    for run in sorted(done, key=lambda run: figures[run.name].get("loss", float("inf"))):
        of_run = figures[run.name]
        cells = (format_figure(name, of_run[name]).removeprefix(f"{name} ") if name in of_run else "" for name in shown)
        table.add_row(escape(run.name), *cells)
    for name in failed:
        table.add_row(escape(name), "failed")
    console.print()
    console.print(table)
    folders = " ".join(shlex.quote(run.workdir) for run in done)
    if done:
        print_line(console, f"\ntheir curves: t5x-lite plot {folders}")
