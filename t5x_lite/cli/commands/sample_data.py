"""`sample_data`: small files to try the commands on."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from t5x_lite.cli.arguments import parse, subcommand
from t5x_lite.data.samples import FILES
from t5x_lite.data.samples import sample_data as write_files


@dataclass(frozen=True)
class SampleData:
    """Writes the small files that the examples read: a novel's first chapters, sentences with their authors, German and
    English. All are in the public domain; files that are there already stay as they are."""

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[FOLDER]")] = "sample_data"
    """Where they go; it is made where it is missing."""


EXAMPLES = ("sample_data", "sample_data somewhere/else")


@subcommand
def sample_data(arguments: list[str]) -> None:
    """sample_data [FOLDER]: small public-domain files, which the examples read"""
    command = parse(SampleData, arguments, prog="t5x-lite sample_data", examples=EXAMPLES)
    folder = write_files(command.folder)
    print(f"{folder}: {', '.join(FILES)}")
