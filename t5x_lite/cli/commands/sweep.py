"""`sweep`: a run for each combination of some values of a config's fields."""

import itertools
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from etils import epath
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from t5x_lite.cli.arguments import format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.commands.train import Train
from t5x_lite.errors import InputError
from t5x_lite.evaluation.figures import format_figure
from t5x_lite.files import local_or_bucket, read_json
from t5x_lite.runs import loop
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.records import print_line
from t5x_lite.runs.workdir import open_workdir
from t5x_lite.training.experiment import Experiment

PROG = "t5x-lite sweep"
EXAMPLES = (
    "sweep configs/t5_tiny.py --over optimizer.schedule.warmup-steps=1000,10000 seed=0,1,2",
    "sweep configs/t5_tiny.py --over seed=0,1,2 --commands",
)
USAGE = f"""usage: {PROG} CONFIG --over FIELD=VALUE,VALUE ... [options]

Trains CONFIG once for each combination of the values, one run after the other, and prints their held-out losses, the
lowest first. A run that is complete is not repeated, and one that was stopped goes on.

  --over FIELD=VALUE,VALUE ...  fields of the experiment, as options of train spell them, and their values
  --workdir FOLDER     the folder of the runs' folders (default: runs/<name of CONFIG>_sweep)
  --commands           print the command of each run, and run nothing

and every option of train, which holds for all runs: see "t5x-lite train CONFIG --help".

{format_examples(EXAMPLES)}"""


@dataclass(frozen=True)
class _Planned:
    """One run of a sweep."""

    name: str
    arguments: list[str]
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


@subcommand
def sweep(arguments: list[str]) -> int:
    """sweep CONFIG --over F=A,B: a run for each combination of values, and a table of their held-out losses"""
    config, arguments = take_config(arguments, PROG, USAGE)
    over, arguments = _take(arguments, "--over")
    if not over:
        raise InputError(f"--over is missing; write {PROG} CONFIG --over seed=0,1,2")
    commands = "--commands" in arguments
    runs = _plan_runs(config, over, [argument for argument in arguments if argument != "--commands"])
    if commands:
        for run in runs:
            print(shlex.join([sys.executable, "-m", "t5x_lite", "train", config, *run.arguments]))
        return 0
    console, failed = Console(), {}
    for number, run in enumerate(runs, start=1):
        print_line(console, f"\n== run {number} of {len(runs)}: {run.name}")
        try:
            if run.is_complete():
                print_line(console, "complete already")
            elif not loop.train(run.experiment, run.workdir, console):
                return 0  # stopped by a signal; the same command goes on
        except (loop.NonFiniteError, InputError) as error:
            failed[run.name] = str(error)
            print_line(console, str(error))
    _print_table(console, runs, failed)
    return 1 if failed else 0


def _take(arguments: list[str], option: str) -> tuple[list[str], list[str]]:
    """(what stands behind an option, up to the next one; the other arguments)."""
    if option not in arguments:
        return [], arguments
    start = arguments.index(option) + 1
    end = next((n for n in range(start, len(arguments)) if arguments[n].startswith("--")), len(arguments))
    return arguments[start:end], [*arguments[: start - 1], *arguments[end:]]


def _plan_runs(config: str, over: list[str], arguments: list[str]) -> list[_Planned]:
    """Every run, with its fields checked before the first one starts."""
    choices: dict[str, list[str]] = {}
    for one in over:
        match = re.fullmatch(r"(?:--)?([\w.-]+)=(.+)", one)
        if not match:
            raise InputError(f"--over has {one!r}; write a field and its values, such as seed=0,1,2")
        if match[1] in choices:
            raise InputError(f"--over names {match[1]} twice; give all of its values at once")
        choices[match[1]] = match[2].split(",")
    workdir, arguments = _take(arguments, "--workdir")
    folder = (workdir or [f"runs/{Path(config).stem}_sweep"])[0]
    default = Train(load_config(config), folder)
    lasts = [field.rpartition(".")[2] for field in choices]
    short = lasts if len(set(lasts)) == len(lasts) else list(choices)
    runs = []
    for values in itertools.product(*choices.values()):
        name = "_".join(
            f"{field}={re.sub('[^A-Za-z0-9.+-]', '-', value)}" for field, value in zip(short, values, strict=True)
        )
        options = [part for field, value in zip(choices, values, strict=True) for part in (f"--{field}", value)]
        workdir = f"{folder.rstrip('/')}/{name}"
        of_run = [*arguments, *options, "--workdir", workdir]
        command = parse(Train, of_run, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
        runs.append(_Planned(name, of_run, command.apply(command.experiment), workdir))
    if len({run.workdir for run in runs}) < len(runs):
        raise InputError(f"--over={' '.join(over)} names a value twice; name each once")
    return runs


def _print_table(console: Console, runs: list[_Planned], failed: dict[str, str]) -> None:
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
