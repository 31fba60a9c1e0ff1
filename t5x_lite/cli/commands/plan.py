"""`plan`: memory, collectives and speed of a config on a TPU slice."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from t5x_lite.cli.arguments import ExperimentOptions, format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.plan_tables import draw_plan, plan_json, print_plan, ranking
from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path
from t5x_lite.parallel.chips import CHIPS, GIB
from t5x_lite.planning.plan import make_plan
from t5x_lite.planning.search import nearest_fit, search, settings
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.records import print_line
from t5x_lite.validation import Positive

PROG = "t5x-lite plan"
EXAMPLES = (
    "plan configs/t5_11b.py --topology v5p:4x4x4",
    "plan configs/t5_base.py --topology v5e:4x4 --search --plot plan.png",
)
USAGE = f"""usage: {PROG} CONFIG --topology KIND:SHAPE [options]

Compiles the train step of CONFIG for a slice of a TPU pod, on the machine at hand, and prints where each chip's memory
goes, what the chips send each other, and how fast a step can be at most. No TPU, no account and no network is needed,
but the TPU compiler (pip install 't5x_lite[tpu]'). A minute or two for the largest models.

  --topology NAME      {", ".join(CHIPS)} and a shape: v5p:4x4x4, v5e:16x16
  --search             try other meshes, remat policies and parts of the batch, and rank those that fit
  --tries N            settings that --search compiles (default: 8)
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
    search: bool = False
    """Try other meshes, remat policies and parts of the batch, and rank those that fit."""
    tries: Positive = 8
    """Settings that a search compiles."""
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
    topology, picture = Topology.parse(command.topology), Path(command.plot).expanduser()
    if command.plot:
        check_output_path(picture, "plot")
    name, report = Path(config).stem, partial(print_line, Console(stderr=True))
    if command.search:
        plans = search(command.experiment, topology, report, command.tries)
        best = plans[0] if plans and plans[0].fits else None
        shown: Any = [plan_json(plan) for plan in plans]
    else:
        best = make_plan(command.experiment, topology)
        plans, shown = [best], plan_json(best)
    nearest = None
    if best is not None and not best.fits:
        report(f"does not fit: {best.missing / GIB:.1f} GiB are missing; looking for the nearest setting that does")
        nearest = nearest_fit(best, report)
    if command.json:
        print(json.dumps(shown if nearest is None else shown | {"nearest": plan_json(nearest)}))
    else:
        console = Console()
        if command.search:
            console.print(ranking(plans), "")
        if best is not None:
            print_plan(console, name, best)
    if command.plot and best is not None:
        draw_plan(name, best).save(picture)
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
        option = "" if nearest.topology == topology else f"--topology {nearest.topology} "
        raise InputError(f"{missing}; it fits with {option}{settings(nearest.experiment, nearest.topology)}")
