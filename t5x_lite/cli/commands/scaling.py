"""`scaling`: a grid of runs in several sizes, and the laws of their losses."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Column, Table

from t5x_lite.cli.arguments import format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.commands.train import Train
from t5x_lite.cli.grid import PlannedRun, run_grid, take_option
from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path, write_atomically
from t5x_lite.runs.records import print_line
from t5x_lite.scaling.laws import Measurements, Vector
from t5x_lite.scaling.measure import Count
from t5x_lite.scaling.study import Study
from t5x_lite.validation import NonNegative

PROG = "t5x-lite scaling"
FIT_EXAMPLES = (
    "scaling fit runs/gpt_tiny_scaling/* --flops 1e15 1e16",
    "scaling fit measurements.csv --drop-highest 5 --out laws.png",
)
RUN_EXAMPLES = (
    "scaling run configs/gpt_tiny.py --sizes 32x1 64x2 128x4 --tokens 250k 500k 1M",
    "scaling run configs/gpt_tiny.py --sizes 32x1 64x2 128x4 --flops 1T 4T --commands",
)
USAGE = f"""usage: {PROG} run CONFIG --sizes WIDTHxDEPTH ... --tokens NUMBER ... [options]
       {PROG} fit RUN ... [options]

run trains CONFIG in each size for each number of tokens (or of floating-point operations), each run with the whole of
its schedule. A run that is complete is not repeated, and one that was stopped goes on.

  --sizes WIDTHxDEPTH ...  embed_dim and the layers of each stack; heads stay as wide, mlp_dim in proportion
  --tokens NUMBER ...  to train each size on, such as 500k 1M 2M
  --flops NUMBER ...   or the operations to spend on each size, such as 1T 4T 16T (10^12): profiles of equal compute
  --workdir FOLDER     the folder of the runs' folders (default: runs/<name of CONFIG>_scaling)
  --part I/N           run every N-th of them alone, the I-th being the first: N hosts share a grid
  --commands           print the command of each run, and run nothing

and every option of train, which holds for all runs: see "t5x-lite train CONFIG --help".

fit reads the held-out losses of such runs, or a table of another's: see "{PROG} fit --help".

{format_examples((RUN_EXAMPLES[0], *FIT_EXAMPLES))}"""


@dataclass(frozen=True)
class FitLaws:
    """Fit the laws of the loss by parameters N, training tokens D and compute C: L(N), L(D), L(C) and L(N, D) of Kaplan
    et al. 2020, and approaches 1 to 3 of Hoffmann et al. 2022, each with intervals by the bootstrap over runs."""

    run: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[RUN ...]")]
    """The folders of runs, or one table (.csv, .tsv, .jsonl) with columns parameters, tokens or flops, and loss."""
    flops: tuple[str, ...] = ()
    """Amounts of compute to spend, such as 1e18 or 2P: which size, how many tokens, what loss."""
    count: Count = "total"
    """What N counts: total, all parameters; non_embedding, those outside the tables of the vocabulary and positions."""
    drop_highest: NonNegative = 0
    """Runs to leave out, those of the highest losses: outliers such as runs that saw too few tokens to learn."""
    draws: NonNegative = 100
    """Of the bootstrap; 0: no intervals."""
    confidence: float = 0.95
    """Of the intervals."""
    delta: float = 1e-3
    """Residuals of log L beyond which the Huber loss is linear."""
    seed: NonNegative = 0
    """Of the draws."""
    out: str = "scaling.png"
    """The picture of the laws, their extrapolation and residuals: a PNG file."""
    json: str = ""
    """A file for the constants and intervals."""


@subcommand
def scaling(arguments: list[str]) -> int:
    """scaling run CONFIG | fit RUN ...: train several sizes; which size, tokens and loss for this much compute"""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    command, arguments = arguments[0], arguments[1:]
    if command == "run":
        return train_grid(arguments)
    if command == "fit":
        fit(arguments)
        return 0
    raise InputError(f"scaling {command} is not known; choose run or fit")


def train_grid(arguments: list[str]) -> int:
    """Trains the runs of a grid, one after the other."""
    config, arguments = take_config(arguments, f"{PROG} run", USAGE)
    sizes, arguments = take_option(arguments, "--sizes")
    tokens, arguments = take_option(arguments, "--tokens")
    flops, arguments = take_option(arguments, "--flops")
    if not sizes or bool(tokens) == bool(flops):
        missing = "--sizes is missing" if not sizes else "one of --tokens and --flops is needed, and not both"
        raise InputError(f"{missing}; write {PROG} run CONFIG --sizes 64x2 128x4 --tokens 1M 2M")
    status, done = run_grid(config, arguments, lambda rest: _plan_runs(config, sizes, tokens, flops, rest))
    if done:
        print(f"their laws: {PROG} fit {' '.join(shlex.quote(run.workdir) for run in done)}")
    return status


def _plan_runs(
    config: str, sizes: list[str], tokens: list[str], flops: list[str], arguments: list[str]
) -> list[PlannedRun]:
    from t5x_lite.scaling.grid import Size, overrides, parse_amount, scaled

    given, arguments = take_option(arguments, "--workdir")
    folder = (given or [f"runs/{Path(config).stem}_scaling"])[0].rstrip("/")
    default = Train(load_config(config), folder)
    options = {"prog": f"{PROG} run {config}", "default": default, "examples": RUN_EXAMPLES}
    command = parse(Train, arguments, **options)
    base, runs = command.experiment, {}
    for unit, amounts in (("tokens", tokens), ("flops", flops)):
        for amount in amounts:
            number = parse_amount(unit, amount)
            for size in map(Size.parse, sizes):
                name = f"{size}_{amount}"
                experiment = scaled(base, size, **{unit: number})
                workdir = f"{folder}/{name}"
                of_run = [*arguments, *overrides(base, experiment), "--workdir", workdir]
                planned = parse(Train, of_run, **options)
                if planned.experiment != experiment:
                    raise InputError(f"--sizes={size} cannot be written as options of train; train a config of its own")
                runs[name] = PlannedRun(name, of_run, planned.apply(experiment), workdir)
    if len(runs) < len(sizes) * len(tokens or flops):
        raise InputError("--sizes, --tokens or --flops name one twice; name each once")
    return list(runs.values())


def fit(arguments: list[str]) -> None:
    """Fits the laws, prints and draws them."""
    command = parse(FitLaws, arguments, prog=f"{PROG} fit", examples=FIT_EXAMPLES)
    if not command.run:
        raise InputError(f"run is missing; write {PROG} fit runs/gpt_tiny_scaling/*")
    for name, low, high in (("confidence", 0.0, 1.0), ("delta", 0.0, 10.0)):
        if not low < getattr(command, name) < high:
            raise InputError(
                f"{name}={getattr(command, name)} is not between {low:g} and {high:g}; choose e.g. the default"
            )
    out = Path(command.out).expanduser()
    check_output_path(out, "out")
    figures = Path(command.json).expanduser() if command.json else None
    if figures is not None:
        check_output_path(figures, "json", (".json",))
    from t5x_lite.scaling import fit_study, read_measurements
    from t5x_lite.scaling.drawing import draw_study
    from t5x_lite.scaling.grid import parse_amount

    budgets = [parse_amount("flops", text) for text in command.flops]
    measurements = read_measurements(command.run, command.count)
    if command.drop_highest:
        measurements = _without_highest(measurements, command.drop_highest)
    if (count := len(measurements.ends())) < 3:
        raise InputError(f"{count} runs have no law; give the folders of three sizes or more, or a table of them")
    options = {name: getattr(command, name) for name in ("draws", "confidence", "delta", "seed")}
    study = fit_study(measurements, **options)
    if not study.laws:
        raise InputError(study.problems[0])
    console = Console()
    _print_study(console if console.is_terminal else Console(width=120), study, budgets)
    if figures is not None:
        write_atomically(figures, json.dumps(study.to_json(), indent=1, allow_nan=False).encode())
    draw_study(study, budgets).save(out)
    print(out)


def _without_highest(measurements: Measurements, number: int) -> Measurements:
    ends = measurements.ends()
    if number >= len(ends):
        raise InputError(f"drop_highest={number} leaves none of {len(ends)} runs; choose fewer")
    dropped = {ends.run[index] for index in ends.loss.argsort(kind="stable")[::-1][:number]}
    return measurements.take([run not in dropped for run in measurements.run])


def _print_study(console: Console, study: Study, budgets: list[float]) -> None:
    ends = study.measurements.ends()
    spans = (
        f"{unit} {format_amount(values.min())} to {format_amount(values.max())}"
        for unit, values in (("N", ends.parameters), ("D", ends.tokens), ("C", ends.flops), ("L", ends.loss))
    )
    print_line(console, f"{len(ends)} runs: {', '.join(spans)}")
    cost = study.cost
    power = "" if abs(cost.exponent - 1) < 1e-6 else f"^{cost.exponent:.3f}"
    print_line(console, f"compute: C = {cost.factor:.3g} N{power} D")
    for fit in study.laws:
        print_line(console, f"\n{fit.law.formula}, {len(fit.residuals)} measurements, {_error(fit.residuals)}")
        for name, value in fit.law.constants.items():
            print_line(console, f"  {name} = {value:.6g}{_interval(fit.intervals[name])}")
    if study.exponents():
        table = Table("approach", *(Column(name, justify="right") for name in ("N as C^a", "D as C^b")), box=None)
        for name, (values, intervals) in study.exponents().items():
            table.add_row(name, *(f"{v:.3f}{_interval(intervals[n])}" for n, v in zip("ab", values, strict=True)))
        console.print()
        console.print(table)
    for budget in budgets:
        table = Table(
            "approach", *(Column(name, justify="right") for name in ("parameters", "tokens", "loss")), box=None
        )
        for name, (optimum, interval) in study.optima(budget).items():
            cells = (
                f"{written(getattr(optimum, figure))}{_interval(interval(figure), written)}"
                for figure, written in (
                    ("parameters", format_amount),
                    ("tokens", format_amount),
                    ("loss", "{:.3f}".format),
                )
            )
            table.add_row(name, *cells)
        print_line(console, f"\n{format_amount(budget)} floating-point operations are spent best on")
        console.print(table)
    if (half := study.extrapolation) is not None:
        errors = 100 * half.errors
        print_line(
            console,
            f"\nL(N, D) of the {len(half.fitted)} runs of less compute predicts the {len(half.predicted)} others with "
            f"a mean error of {abs(errors).mean():.2f}%, at worst {errors[abs(errors).argmax()]:+.2f}%",
        )
    for problem in dict.fromkeys(study.problems):
        print_line(console, f"\n{problem}")


def _error(residuals: Vector) -> str:
    return f"mean error {100 * abs(residuals).mean():.2f}%"


def _interval(bounds: tuple[float, float], written: Callable[[float], str] = "{:.4g}".format) -> str:
    low, high = bounds
    return "" if low != low else f" [{written(low)}, {written(high)}]"


def format_amount(value: float) -> str:
    """A number with three digits and a letter for its power of a thousand.

    >>> format_amount(1_234_567), format_amount(5e15), format_amount(3.14159), format_amount(7e21)
    ('1.23M', '5P', '3.14', '7e+21')
    """
    for letter, power in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)):
        if value >= 1e21:
            break
        if value >= power:
            return f"{float(f'{value / power:.3g}'):g}{letter}"
    return f"{value:.3g}"
