"""`plan`: memory, collectives and speed of a config on a TPU slice."""

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from t5x_lite.cli.arguments import ExperimentOptions, format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.plan_tables import costs_json, describe, draw_plan, plan_json, print_costs, print_plan, ranking
from t5x_lite.cli.processes import in_thread
from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path
from t5x_lite.parallel.chips import CHIPS, GIB
from t5x_lite.planning.plan import Plan, make_plan
from t5x_lite.planning.prices import find_price
from t5x_lite.planning.search import nearest_fit, rank, search, settings
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.records import print_line
from t5x_lite.training.experiment import Experiment
from t5x_lite.validation import Positive

PROG = "t5x-lite plan"
EXAMPLES = (
    "plan configs/t5_11b.py --topology v5p:4x4x4",
    "plan configs/t5_11b.py --topology v5p:4x4x4 --slices 2 --price 1.68",
    "plan configs/t5_base.py --topology v5e:4x4 --search --plot plan.png",
)
USAGE = f"""usage: {PROG} CONFIG --topology KIND:SHAPE [options]

Compiles the train step of CONFIG for a slice of a TPU pod, on the machine at hand, and prints where each chip's memory
goes, what the chips send each other, how fast a step can be at most and is expected to be, and the days and dollars of
the whole run. No TPU, no account and no network is needed, but the TPU compiler (pip install 't5x_lite[tpu]'). A minute
or two for the largest models; a search takes that for each setting, and shows what it has found and the time that is
left. Ctrl-C ends it with the ranking so far.

  --topology NAME      {", ".join(CHIPS)} and a shape: v5p:4x4x4, v5e:16x16
  --slices N           how many of them, joined by the data centre's network (default: 1)
  --search             try other meshes, remat policies and parts of the batch, and rank those that fit
  --tries N            settings that --search compiles (default: 8)
  --price WHAT         dollars of a chip for an hour, such as 1.2, or a region, such as europe-west4, for its list price
                       (default: the list price in the US)
  --json               one line of JSON instead of tables
  --plot FILE.png      draw memory and times into a picture too

and every field of the experiment, such as --mesh.fsdp 64 --remat full --accumulation 4:
"{PROG} CONFIG --help" lists them with CONFIG's values. Status 2 where the step does not fit.

{format_examples(EXAMPLES)}"""


@dataclass(frozen=True)
class PlanCommand:
    """Plan what the config describes on a TPU slice, with these fields of the experiment changed."""

    experiment: ExperimentOptions
    topology: str = ""
    """The slice: v4, v5e, v5p, v6e or tpu7x and its shape, such as v5p:4x4x4."""
    slices: Positive = 1
    """Slices of the run, joined by the data centre's network."""
    search: bool = False
    """Try other meshes, remat policies and parts of the batch, and rank those that fit."""
    tries: Positive = 8
    """Settings that a search compiles."""
    price: str = ""
    """US dollars of a chip for an hour, or a region of Google Cloud for its list price; empty means that in the US."""
    json: bool = False
    """One line of JSON instead of tables."""
    plot: str = ""
    """A PNG file to draw memory and times into; of a search, those of the best setting."""


@subcommand
def plan(arguments: list[str]) -> None:
    """plan CONFIG --topology T: memory, collectives and speed on a TPU pod, before anyone pays for it"""
    # The TPU compiler gets its devices by name; this process runs nothing on them.
    jax.config.update("jax_platforms", "cpu")
    config, arguments = take_config(arguments, PROG, USAGE)
    default = PlanCommand(load_config(config))
    command = parse(PlanCommand, arguments, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
    if not command.topology:
        raise InputError(f"--topology is missing; name a slice with one of {', '.join(CHIPS)}, such as v5p:4x4x4")
    topology, picture = Topology.parse(command.topology, command.slices), Path(command.plot).expanduser()
    if command.plot:
        check_output_path(picture, "plot")
    price = find_price(command.price, topology.chip.name)
    name, console = Path(config).stem, Console(stderr=True)
    report, interrupted = partial(print_line, console), False
    if command.search:
        plans, interrupted = _search(command, topology, console)
        best = plans[0] if plans and plans[0].fits else None
        shown: Any = [plan_json(plan) | costs_json(plan, price) for plan in plans]
    else:
        with console.status(f"compiling {name} for {topology}") as status:
            show = lambda elapsed: status.update(f"compiling {name} for {topology}, {elapsed:.0f} s")  # noqa: E731
            best = in_thread(partial(make_plan, command.experiment, topology), show)
        plans, shown = [best], plan_json(best) | costs_json(best, price)
    nearest = None
    if best is not None and not best.fits:
        report(f"does not fit: {best.missing / GIB:.1f} GiB are missing; looking for the nearest setting that does")
        nearest = nearest_fit(best, report)
    if command.json:
        print(json.dumps(shown if nearest is None else shown | {"nearest": plan_json(nearest)}))
    else:
        console = Console()
        if command.search and plans:
            console.print(ranking(plans), "")
        if best is not None:
            print_plan(console, name, best)
            if best.fits:
                print_costs(console, best, price)
    if command.plot and best is not None:
        draw_plan(name, best).save(picture)
    if interrupted:
        raise KeyboardInterrupt
    if best is None:
        raise InputError(
            f"none of the {len(plans)} settings of {config} that were tried on {topology} fits; "
            "choose a larger slice or a smaller batch, or raise --tries"
        )
    if not best.fits:
        hbm = topology.chip.hbm_bytes / GIB
        missing = f"{config} does not fit {topology}: {best.missing / GIB:.1f} GiB more than a chip's {hbm:.0f} GiB"
        if nearest is None:
            remedy = "choose a larger slice or a smaller batch"
            raise InputError(f"{missing}, and none of the nearest other settings fits; {remedy}")
        option = "" if nearest.topology == topology else f"--topology {nearest.topology.name} "
        raise InputError(f"{missing}; it fits with {option}{settings(nearest.experiment, nearest.topology)}")


def _search(command: PlanCommand, topology: Topology, console: Console) -> tuple[list[Plan], bool]:
    """The plans of a search, ranked, and whether Ctrl-C ended it; it shows each as it is found, and the time left."""
    plans: list[Plan] = []
    seconds: list[float] = []
    started = time.monotonic()

    def left(elapsed: float = 0.0) -> str:
        if not plans:
            return "the first tells how long the others take"
        mean = sum(seconds) / len(seconds)
        return f"about {_duration(mean * (command.tries - len(plans) - 1) + max(mean - elapsed, 0.0))} left"

    def make(experiment: Experiment, topology: Topology) -> Plan:
        number = f"{len(plans) + 1} of {command.tries}"
        show = lambda elapsed: status.update(f"compiling {number}, {elapsed:.0f} s; {left(elapsed)}")  # noqa: E731
        return in_thread(partial(make_plan, experiment, topology), show)

    with console.status("ranking meshes, remat policies and parts of the batch") as status:
        try:
            for plan in search(command.experiment, topology, partial(print_line, console), command.tries, make):
                plans.append(plan)
                seconds.append(time.monotonic() - started - sum(seconds))
                first = ", the fastest so far" if plan.fits and rank(plans)[0] is plan else ""
                remains = f"; {left()}" if len(plans) < command.tries else ""
                print_line(console, f"    {describe(plan)}{first}{remains}")
        except KeyboardInterrupt:
            print_line(console, f"interrupted after {len(plans)} of {command.tries} settings")
            return rank(plans), True
    return rank(plans), False


def _duration(seconds: float) -> str:
    """
    >>> _duration(41.6), _duration(600), _duration(9_000)
    ('42 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
