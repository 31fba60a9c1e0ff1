"""Command lines to dataclasses, through tyro, with one-sentence errors; imports nothing that takes long."""

import contextlib
import difflib
import io
import os
import re
import shutil
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import tyro

from t5x_lite.errors import InputError
from t5x_lite.validation import check_fields

T = TypeVar("T")


def subcommand(function: Callable[[list[str]], int | None]) -> Callable[[list[str]], int | None]:
    """Registers a function in `cli/commands` as the command of its name.

    Its docstring is one line, `NAME ARGUMENTS: what it does`. `t5x-lite --help` reads it from the source, without
    importing the libraries of the command.
    """
    return function


def parse(
    cls: type[T],
    arguments: list[str],
    *,
    prog: str,
    default: Any = tyro.MISSING_NONPROP,
    examples: tuple[str, ...] = (),
) -> T:
    """The dataclass that the arguments describe; its help ends with `examples`, command lines without `t5x-lite`.

    Raises `InputError` with tyro's complaint as one sentence, and for a field outside its range.
    """
    complaint, columns = io.StringIO(), os.environ.get("COLUMNS")
    of_help = columns or str(min(shutil.get_terminal_size((100, 0)).columns, 120))
    # tyro breaks its lines at this width; `_sentence` joins those of a complaint.
    os.environ["COLUMNS"] = of_help if {"-h", "--help"} & {*arguments} else "1000"
    options = {"prog": prog, "default": default, "config": (tyro.conf.AvoidSubcommands,)}
    try:
        with contextlib.redirect_stderr(complaint):
            description = _description(cls, examples, int(of_help))
            command = tyro.cli(cls, args=arguments, description=description, **options)
    except SystemExit as end:
        if end.code in (0, None):
            raise
        sentence = _sentence(complaint.getvalue())
        if unknown := re.match(r"Unrecognized options?\b.*?(?<!\S)(--\w[\w.-]*)", sentence):
            meant = _nearest_option(unknown[1], lambda: tyro.cli(cls, args=["--help"], prog=prog, default=default))
            sentence += f"; perhaps you meant {meant}" if meant else ""
        raise InputError(f"{sentence} (see {prog} --help)") from None
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    check_fields(command)
    return command


def _description(cls: type, examples: tuple[str, ...], columns: int) -> str:
    """What a command does, in lines of a width, and examples of it."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in (cls.__doc__ or "").split("\n\n")]
    # tyro joins lines unless they are indented, and leaves them to the terminal to break.
    parts = [textwrap.fill(one, columns, subsequent_indent="  ", break_on_hyphens=False) for one in paragraphs]
    return "\n\n".join([*parts, format_examples(examples)] if examples else parts)


def format_examples(examples: tuple[str, ...]) -> str:
    """Command lines as the help shows them.

    >>> print(format_examples(("plot runs/a runs/b",)))
    examples:
      t5x-lite plot runs/a runs/b
    """
    return "\n".join(["examples:", *(f"  t5x-lite {example}" for example in examples)])


def _sentence(box: str) -> str:
    """The complaint in tyro's box as one line."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ╭╮╰╯─").strip() for line in box.splitlines()]
    rules = [index for index, line in enumerate(box.splitlines()) if "───" in line]
    first = " ".join(filter(None, lines[rules[0] + 1 : rules[1]])) if len(rules) > 1 else " ".join(filter(None, lines))
    return re.sub(r"^Error parsing [\w.-]*: (?=\w+=)", "", first)


_STEPS = ("epochs", "num-epochs", "num-train-epochs", "max-steps", "num-steps", "train-steps", "num-train-steps")
_ELSEWHERE = {
    **dict.fromkeys(("learning-rate", "lr", "peak-learning-rate"), ("peak", "rate", "factor")),
    **dict.fromkeys(_STEPS, ("steps",)),
    **dict.fromkeys(("train-batch-size", "per-device-train-batch-size", "global-batch-size"), ("batch-size",)),
    **dict.fromkeys(("gradient-accumulation-steps", "grad-accum"), ("accumulation",)),
    **dict.fromkeys(("output-dir", "model-dir", "out-dir", "run-dir"), ("workdir",)),
    **dict.fromkeys(("max-length", "seq-length", "max-seq-length", "sequence-length"), ("input-length",)),
    "max-new-tokens": ("max-length",),
    "train-file": ("text",),
}
"""By an option's name in other programs the last parts of ours."""


def _nearest_option(option: str, print_help: Callable[[], Any]) -> str:
    """The option of a command that one which it does not have stands for, if there is one like it."""
    text = io.StringIO()
    os.environ["COLUMNS"] = "1000"
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        print_help()
    last_parts: dict[str, str] = {}
    for known in re.findall(r"(?<!\S)--([\w.-]+)", re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())):
        last = known.rpartition(".")[2]
        if last not in last_parts or len(known) < len(last_parts[last]):
            last_parts[last] = known
    wanted = option.lstrip("-").replace("_", "-").rpartition(".")[2]
    for name in (wanted, *_ELSEWHERE.get(wanted, ())):
        if name in last_parts:
            return f"--{last_parts[name]}"
    near = difflib.get_close_matches(wanted, last_parts, 1)
    return f"--{last_parts[near[0]]}" if near else ""
