"""Docstrings as Markdown: a Griffe extension of mkdocs.yml.

Examples become code blocks, since Markdown reads `>>>` as a quotation. The first paragraph becomes one line, since the
tables of contents of the API take the first line alone. `<s>` and its like are tokens, not tags of HTML.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)(?! *$).+)*", re.MULTILINE)
_CODE_OR_TAG = re.compile(r"```.*?```|`[^`]*`|(?<=\n\n)(?: {4}[^\n]*\n?)+|<(?=[\w/|])", re.DOTALL)


class Docstrings(griffe.Extension):
    """Rewrites every docstring."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        if obj.docstring:
            obj.docstring.value = escape_tags(fence(join_summary(obj.docstring.value))) + fields_of_tuple(obj)


def fields_of_tuple(obj: griffe.Object) -> str:
    """What a `NamedTuple` is called with, which has no signature in the source; of other objects nothing."""
    if not obj.is_class or "NamedTuple" not in map(str, obj.bases):
        return ""
    fields = [f"{name}: {field.annotation}" for name, field in obj.members.items() if field.is_attribute]
    return f"\n\n```python\n{obj.name}({', '.join(fields)})\n```"


def join_summary(docstring: str) -> str:
    """A docstring whose first paragraph is one line."""
    first, blank, rest = docstring.partition("\n\n")
    return " ".join(line.strip() for line in first.splitlines()) + blank + rest


def fence(docstring: str) -> str:
    """A docstring with fences around its examples, each from its first `>>>` to the next empty line."""
    return _EXAMPLE.sub(lambda match: f"{match['indent']}```pycon\n{match[0]}\n{match['indent']}```", docstring)


def escape_tags(docstring: str) -> str:
    """A docstring in which `<` begins no tag; blocks and spans of code stay as they are."""
    return _CODE_OR_TAG.sub(lambda match: "&lt;" if match[0] == "<" else match[0], docstring)
