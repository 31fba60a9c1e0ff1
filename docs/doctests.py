"""Examples in docstrings as code blocks: a Griffe extension of mkdocs.yml. By itself Markdown reads `>>>` as quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)(?! *$).+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts fences around each example, from its first `>>>` to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fence(obj.docstring.value)


def fence(docstring: str) -> str:
    """A docstring with fences around its examples.

    >>> print(fence("A sum.\\n\\n>>> 1 + 1\\n2"))
    A sum.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return _EXAMPLE.sub(lambda match: f"{match['indent']}```pycon\n{match[0]}\n{match['indent']}```", docstring)
