"""Text in 80 columns: lines that break at words, and tables of texts."""

import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLUMNS = 80


def wrap_lines(text: str, columns: int = COLUMNS) -> str:
    """The text with long lines broken at words, and what follows a label such as `input:` indented below it.

    >>> print(wrap_lines("model:  a list of it", 16))
    model:  a list
            of it
    """
    console, wrapped = _console(columns), []
    for line in text.split("\n"):
        label = re.match(r"[a-z]+:\s+", line)
        indent = label.end() if label else 0
        parts = Text(line[indent:]).wrap(console, columns - indent) if line[indent:] else [Text()]
        for number, part in enumerate(parts):
            wrapped.append(((" " * indent if number else line[:indent]) + part.plain).rstrip())
    return "\n".join(wrapped)


def format_columns(header: Sequence[str], rows: Iterable[Sequence[str]], columns: int = COLUMNS) -> str:
    """A table of texts, wrapped within their columns where the lines would be longer than `columns`.

    >>> print(format_columns(("blank", "truth"), [("<extra_id_0>", "a list of it")], 22))
    blank         truth
    <extra_id_0>  a list
                  of it
    """
    # The first column has names, which stay whole.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, title in enumerate(header):
        table.add_column(Text(title), no_wrap=not number, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = _console(columns)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _console(columns: int) -> Console:
    """A console that is no terminal, whatever the environment says of the real one."""
    return Console(
        width=columns, file=io.StringIO(), color_system=None, force_terminal=False, force_jupyter=False, _environ={}
    )
