"""Where text comes from: a stream of documents with an identity. Here: the base and the corpus every Python carries."""

import abc
import ast
import functools
import hashlib
import inspect
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from t5x_lite.errors import InputError

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_SHORTEST_DOCSTRING = 80


@dataclass(frozen=True)
class Source(abc.ABC):
    """A corpus: documents in a fixed order, and a fingerprint that changes when they do."""

    @abc.abstractmethod
    def documents(self) -> Iterator[str]:
        """Document after document, stripped, none empty; `InputError` when the text cannot be read."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Hexadecimal hash of what `documents` yields, found without reading all of it where that is long."""

    @property
    def has_answers(self) -> bool:
        """False for examples of a task whose labels are not known: they can be predicted, and that is all."""
        return True

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its labels by number, none where labels are numbers; None in text without labels."""
        return None


@dataclass(frozen=True)
class PythonDocs(Source):
    """The English prose of the running Python: language reference topics and docstrings of the standard library.

    About 5,000 documents and 2 million characters. The modules are parsed, never imported. The first call parses (about
    two seconds), later ones read from memory.
    """

    def documents(self) -> Iterator[str]:
        return iter(_python_documents())

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(f"PythonDocs {platform.python_version()}".encode(), digest_size=16)
        for path in _library_files():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()


@functools.cache
def _python_documents() -> tuple[str, ...]:
    """Topics by name, then docstrings by file and line."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # Debian's minimal Python leaves it out
        topics = {}
    texts = [topics[name].strip() for name in sorted(topics)]
    for path in _library_files():
        texts.extend(_docstrings(path))
    texts = [text for text in texts if len(text) >= _SHORTEST_DOCSTRING]
    if not texts:
        raise InputError(
            f"source=PythonDocs() found no text, for this Python has no library sources in {_library()}; "
            "use TextFiles(paths=...)"
        )
    return tuple(texts)


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _library_files() -> list[Path]:
    files = []
    for folder, subfolders, names in os.walk(_library()):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS and not name.startswith("config-")]
        files.extend(Path(folder, name) for name in names if name.endswith(".py"))
    return sorted(files)


def _docstrings(path: Path) -> Iterator[str]:
    """Docstrings of the module, its classes and functions, in the order of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old modules are not our user's concern
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return
    for node in [tree, *_definitions(tree.body)]:
        text = ast.get_docstring(node, clean=False)
        if text:
            yield inspect.cleandoc(text).strip()


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    # ast.walk would visit every expression too, which takes as long as the parsing.
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _definitions(node.body)
        elif isinstance(node, ast.If | ast.Try):
            handlers = [statement for handler in getattr(node, "handlers", ()) for statement in handler.body]
            yield from _definitions([*node.body, *handlers, *node.orelse])
