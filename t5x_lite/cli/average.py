"""`average RUN`."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from t5x_lite.cli.arguments import parse
from t5x_lite.errors import InputError
from t5x_lite.runs.checkpoints import is_checkpoint
from t5x_lite.runs.open_model import average_checkpoints, last_checkpoints

LAST = 5


@dataclass(frozen=True)
class Average:
    """The mean of the parameters of several checkpoints, as a checkpoint that load, evaluate, generate and convert
    open. Of a run that keeps a moving average, it is the mean of that."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """A run, of which the last checkpoints are taken; or several runs or checkpoints, of which all together are."""
    last: int | None = None
    """Checkpoints of each run; 5 if not given."""
    output: str = ""
    """The new folder; if not given, averaged/last-N in the folder of the one run."""


def run(arguments: list[str]) -> None:
    command = parse(Average, arguments, prog="t5x-lite average")
    sources = [Path(name).expanduser() for name in command.runs]
    if not sources:
        raise InputError("the run is missing; write t5x-lite average RUN --last 5")
    if command.last is not None and command.last < 1:
        raise InputError(f"last={command.last} is too small; choose 1 or more")
    if missing := [source for source in sources if not source.is_dir()]:
        raise InputError(f"{missing[0]} is no folder; name a run's folder, or folders of checkpoints")
    single = [source for source in sources if is_checkpoint(source)]
    if command.last is not None and len(single) == len(sources):
        raise InputError(f"last={command.last} counts the checkpoints of a run, and {single[0]} is one; leave it out")
    last = command.last or LAST
    folders = [
        folder for source in sources for folder in ([source] if source in single else last_checkpoints(source, last))
    ]
    output = Path(command.output).expanduser() if command.output else _place(sources, single, last)
    console = Console(stderr=True)
    average_checkpoints(
        folders, output, lambda folder: console.print(f"reading {folder}", highlight=False, soft_wrap=True)
    )
    print(f"{output}: the mean of {len(folders)} checkpoints ({', '.join(folder.name for folder in folders)})")


def _place(sources: list[Path], single: list[Path], last: int) -> Path:
    if len(sources) > 1 or single:
        raise InputError("output='' leaves open where the mean of named checkpoints goes; give --output FOLDER")
    return sources[0] / "averaged" / f"last-{last}"
