"""Running text: the corpus that every Python carries, and files."""

import ast
import codecs
import functools
import hashlib
import itertools
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import EmptyCorpusError, Record, Records
from t5x_lite.data.records.input_files import FileRecords, InputFile
from t5x_lite.errors import InputError

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_SHORTEST_DOCSTRING = 80


@dataclass(frozen=True)
class PythonDocs(Records):
    """The English prose of the running Python: language reference topics and docstrings of the standard library.

    About 5,000 documents and 2 million characters. The modules are parsed, never imported. The first call parses (about
    two seconds), later ones read from memory.
    """

    def __iter__(self) -> Iterator[Record]:
        for number, text in enumerate(_python_documents(), start=1):
            yield Record(f"document {number} of the standard library", {"text": text})

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
    texts += [text for path in _library_files() for text in _docstrings(path)]
    texts = [text for text in texts if len(text) >= _SHORTEST_DOCSTRING]
    if not texts:
        raise InputError(
            "source=PythonDocs() has no text, since this Python has no library sources in "
            f"{sysconfig.get_path('stdlib')}; use TextFiles(paths=...)"
        )
    return tuple(texts)


def _library_files() -> list[Path]:
    files = []
    for folder, subfolders, names in os.walk(sysconfig.get_path("stdlib")):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS and not name.startswith("config-")]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
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
        if text := ast.get_docstring(node):
            yield text.strip()


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    # ast.walk would visit every expression too, which takes as long as the parsing.
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _definitions(node.body)
        elif isinstance(node, ast.If | ast.Try):
            handlers = [statement for handler in getattr(node, "handlers", ()) for statement in handler.body]
            yield from _definitions([*node.body, *handlers, *node.orelse])


@dataclass(frozen=True)
class TextFiles(FileRecords):
    """Files, globs and folders of `.txt`, `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8.

    Folders are searched recursively for those endings, hidden names left out; a file that is named itself may have any
    ending and is plain text then. Files are read in sorted order, each once.
    """

    paths: tuple[str, ...]
    document: Literal["paragraph", "line", "file"] = "paragraph"
    """What one document of a plain text file is. 'paragraph': a block between blank lines, or each line of a file that
    has no blank line between its lines. A line of JSON is always one document."""
    field: str = "text"
    """The key of the text in a line of JSON; 'a/b' is b in the object a."""

    endings = (".txt", ".txt.gz", *input_files.JSON_ENDINGS)

    def records_in(self, path: InputFile) -> Iterator[tuple[int, dict[str, Any]]]:
        if path.name.lower().endswith(input_files.JSON_ENDINGS):
            return super().records_in(path)
        if self.document == "file":
            texts = iter([(1, input_files.whole_text(path))])
        elif self.document == "line" or not _has_paragraphs(path):
            texts = input_files.lines(path)
        else:
            blocks = input_files.blocks(path)
            texts = ((block[0][0], "\n".join(text.strip() for _, text in block)) for block in blocks)
        return ((number, {self.field: text}) for number, text in texts)

    def documents(self) -> Iterator[str]:
        is_empty = True
        for text in super().documents():
            is_empty = False
            yield text
        if is_empty:
            raise EmptyCorpusError(f"paths={self.paths} hold no text but blanks; give files with text")


def _has_paragraphs(path: InputFile) -> bool:
    """Whether there is a blank line between two lines with text; reads no further than that."""
    with input_files.open_bytes(path) as file:
        runs = itertools.groupby(
            bool(line.removeprefix(codecs.BOM_UTF8).strip()) for line in input_files.byte_lines(file, path)
        )
        return sum(itertools.islice((1 for has_text, _ in runs if has_text), 2)) == 2
