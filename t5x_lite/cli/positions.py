"""`positions RUN`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.pictures.output_files import check_output_path
from t5x_lite.pretrained import load


@dataclass(frozen=True)
class ShowPositions:
    """What a model knows of positions, as a picture: the vectors of all of them and how alike they are, or T5's bias of
    each head by distance."""

    run: tyro.conf.Positional[str]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""
    out: str = "positions.png"
    """The picture, a PNG file."""


def run(arguments: list[str]) -> None:
    command = parse(ShowPositions, arguments, prog="t5x-lite positions")
    out = Path(command.out).expanduser()
    check_output_path(out, "out")
    load(command.run).plot_positions().save(out)
    print(out)
