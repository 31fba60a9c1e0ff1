"""`train CONFIG`."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from t5x_lite.cli.arguments import ExperimentOptions, load_config, parse, take_config
from t5x_lite.cli.own_data import with_data
from t5x_lite.training.loop import train
from t5x_lite.training.signals import Stopped

PROG = "t5x-lite train"
USAGE = f"""usage: {PROG} CONFIG [options]

Pretrains what CONFIG describes, from text to checkpoints; CONFIG is a Python file that binds `experiment`. If the
workdir holds checkpoints of the same experiment, training goes on from the last one. SIGTERM and Ctrl-C save and exit.

  --workdir FOLDER     checkpoints, records and pictures go there (default: runs/<name of CONFIG>)
  --text PATH ...      train on these files, globs or folders (.txt, .jsonl, .gz) instead of the config's source
  --pairs PATH ...     the same for objectives on pairs: .tsv (source TAB target) or .jsonl, and their .gz
  --held-out-pairs PATH ...  pairs to evaluate on, instead of a part of the others

and every field of the experiment, such as --steps 200 --objective.noise-density 0.3 --mesh.fsdp 4:
"{PROG} CONFIG --help" lists them with CONFIG's values."""


@dataclass(frozen=True)
class Train:
    """Pretrain what the config describes, with these fields of the experiment changed."""

    experiment: ExperimentOptions
    workdir: str
    """Checkpoints, records and pictures go there; if it holds checkpoints of this experiment, training goes on."""
    text: tuple[str, ...] = ()
    """Files, globs or folders (.txt, .jsonl, .gz) to train on instead of the config's source."""
    pairs: tuple[str, ...] = ()
    """The same for objectives on pairs: .tsv or .jsonl, and their .gz, read as the config reads its own."""
    held_out_pairs: tuple[str, ...] = ()
    """Pairs to evaluate on, instead of a part of the others."""


def run(arguments: list[str]) -> None:
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Train(load_config(config), f"runs/{Path(config).stem}")
    command = parse(Train, arguments, prog=f"{PROG} {config}", default=default)
    console = Console()
    experiment = with_data(
        command.experiment, text=command.text, pairs=command.pairs, held_out_pairs=command.held_out_pairs
    )
    try:
        train(experiment, Path(command.workdir), console)
    except Stopped:
        console.print("stopped before the first step; there was nothing to save", highlight=False)
