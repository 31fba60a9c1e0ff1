"""Command lines to dataclasses, through tyro, with one-sentence errors."""

import contextlib
import io
import os
import re
import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from t5x_lite.errors import InputError
from t5x_lite.training.experiment import Experiment

T = TypeVar("T")

# --model.gated False, as in the config, rather than --model.no-gated
ExperimentOptions = Annotated[Experiment, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
"""An experiment as a field of a command, each of whose fields is an option."""


def parse(cls: type[T], arguments: list[str], *, prog: str, default: Any = tyro.MISSING_NONPROP) -> T:
    """The dataclass that the arguments spell. Raises `InputError` with tyro's complaint as one sentence."""
    complaint, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "1000"  # tyro breaks its lines at the terminal's width; a sentence is put together below
    try:
        if "-h" in arguments or "--help" in arguments:
            os.environ["COLUMNS"] = columns or str(min(_terminal_width(), 120))
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                cls,
                args=arguments,
                prog=prog,
                default=default,
                config=(tyro.conf.AvoidSubcommands,),
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise InputError(_sentence(complaint.getvalue(), prog)) from None
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 100


def _sentence(box: str, prog: str) -> str:
    """What tyro says in a box of lines, as one line: the complaint, and the option that was perhaps meant."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ╭╮╰╯─").strip() for line in box.splitlines()]
    rules = [index for index, line in enumerate(box.splitlines()) if "───" in line]
    first = " ".join(filter(None, lines[rules[0] + 1 : rules[1]])) if len(rules) > 1 else " ".join(filter(None, lines))
    first = re.sub(r"^Error parsing [\w.-]*: (?=\w+=)", "", first)
    if "Perhaps you meant:" in lines:
        meant = lines[lines.index("Perhaps you meant:") + 1].split(" ")[0]
        first = f"{first}; perhaps you meant {meant}"
    return f"{first} (see {prog} --help)"


def load_config(path: str) -> Experiment:
    """The `experiment` that a config file binds. Raises `InputError` for a file that is missing or does not."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"config {path} is no file; name a Python file such as configs/t5_tiny.py")
    sys.path.insert(0, str(file.parent.absolute()))  # a config may import the one beside it that it varies
    try:
        names = runpy.run_path(str(file))
    except InputError:
        raise
    except Exception as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = getattr(error, "lineno", None) or (inside[-1].lineno if inside else None)
        where = f" at line {line}" if line else ""
        raise InputError(f"config {path} fails{where} ({type(error).__name__}: {error}); correct it") from error
    finally:
        sys.path.pop(0)
    experiment = names.get("experiment")
    if not isinstance(experiment, Experiment):
        found = "no name `experiment`" if experiment is None else f"`experiment` to a {type(experiment).__name__}"
        raise InputError(f"config {path} binds {found}; it must bind experiment = Experiment(...)")
    return experiment


def take_config(arguments: list[str], prog: str, usage: str) -> tuple[str, list[str]]:
    """The config's path, which comes first, and the other arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        raise SystemExit(0 if arguments else 2)
    if arguments[0].startswith("-"):
        raise InputError(f"{arguments[0]} stands where the config belongs; write {prog} CONFIG {arguments[0]} ...")
    return arguments[0], arguments[1:]
