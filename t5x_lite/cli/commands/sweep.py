"""`sweep`: a run for each combination of some values of a config's fields."""

import itertools
import re
from pathlib import Path

from t5x_lite.cli.arguments import format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.commands.train import Train
from t5x_lite.cli.grid import PlannedRun, run_grid, take_option
from t5x_lite.errors import InputError

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
  --part I/N           run every N-th combination alone, the I-th being the first: N hosts share a sweep
  --commands           print the command of each run, and run nothing

and every option of train, which holds for all runs: see "t5x-lite train CONFIG --help".

{format_examples(EXAMPLES)}"""


@subcommand
def sweep(arguments: list[str]) -> int:
    """sweep CONFIG --over F=A,B: a run for each combination of values, and a table of their held-out losses"""
    config, arguments = take_config(arguments, PROG, USAGE)
    over, arguments = take_option(arguments, "--over")
    if not over:
        raise InputError(f"--over is missing; write {PROG} CONFIG --over seed=0,1,2")
    status, _ = run_grid(config, arguments, lambda rest: _plan_runs(config, over, rest))
    return status


def _plan_runs(config: str, over: list[str], arguments: list[str]) -> list[PlannedRun]:
    """Every run, with its fields checked before the first one starts."""
    choices: dict[str, list[str]] = {}
    for one in over:
        match = re.fullmatch(r"(?:--)?([\w.-]+)=(.+)", one)
        if not match:
            raise InputError(f"--over has {one!r}; write a field and its values, such as seed=0,1,2")
        if match[1] in choices:
            raise InputError(f"--over names {match[1]} twice; give all of its values at once")
        choices[match[1]] = match[2].split(",")
    workdir, arguments = take_option(arguments, "--workdir")
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
        runs.append(PlannedRun(name, of_run, command.apply(command.experiment), workdir))
    if len({run.workdir for run in runs}) < len(runs):
        raise InputError(f"--over={' '.join(over)} names a value twice; name each once")
    return runs
