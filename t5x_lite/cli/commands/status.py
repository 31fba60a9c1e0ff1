"""`status`: how far a run is, how fast it goes, and where its time went."""

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from t5x_lite.cli.parsing import parse, subcommand
from t5x_lite.files import local_or_bucket
from t5x_lite.runs.status import read_status

EXAMPLES = ("status runs/a", "status gs://my-bucket/t5 --json")


@dataclass(frozen=True)
class StatusCommand:
    """Show how far a run is, how fast it goes, whether it runs, and where its time went.

    Reads the run's folder alone, from any machine that sees it, also while the run goes on elsewhere.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The run's folder, on a disk or in a bucket."""
    json: bool = False
    """One line of JSON."""


@subcommand
def status(arguments: list[str]) -> None:
    """status RUN: steps, loss, speed, checkpoints, time left and goodput of a run, from any machine"""
    command = parse(StatusCommand, arguments, prog="t5x-lite status", examples=EXAMPLES)
    found = read_status(local_or_bucket(command.run, "RUN"))
    print(json.dumps(found.to_json()) if command.json else found.describe())
