"""Running text: the corpus that every Python carries, and files."""

import ast
import codecs
import functools
import hashlib
import inspect
import itertools
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record, Records
from t5x_lite.data.records.input_files import FileRecords
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


DocumentUnit = Literal["paragraph", "line", "file"]


@dataclass(frozen=True)
class TextFiles(FileRecords):
    """Files, globs and folders of `.txt`, `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8.

    Folders are searched recursively for those endings, hidden names left out; a file that is named itself may have any
    ending and is plain text then. Files are read in sorted order, each once.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'books/**/*.txt', or folders."""
    document: DocumentUnit = "paragraph"
    """What one document of a plain text file is. 'paragraph': a block between blank lines, or each line of a file that
    has no blank line between its lines. A line of JSON is always one document."""
    field: str = "text"
    """Key of the text in a line of JSON; 'a/b' is b in the object a."""

    endings: ClassVar[tuple[str, ...]] = (".txt", ".txt.gz", *input_files.JSON_ENDINGS)

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            if path.name.lower().endswith(input_files.JSON_ENDINGS):
                yield from (Record(f"{path}:{number}", found) for number, found in input_files.json_records(path))
            else:
                for number, text in self._plain_texts(path):
                    yield Record(f"{path}:{number}", {self.field: text})

    def documents(self) -> Iterator[str]:
        empty = True
        for text in super().documents():
            empty = False
            yield text
        if empty:
            raise InputError(f"paths={self.paths} hold no text but blanks; give files with text")

    def _plain_texts(self, path: Path) -> Iterator[tuple[int, str]]:
        """(number of its first line, text) of each document in a plain text file."""
        if self.document == "file":
            return iter([(1, input_files.whole_text(path))])
        if self.document == "line" or not _has_paragraphs(path):
            return input_files.lines(path)
        return _paragraphs(path)


def _has_paragraphs(path: Path) -> bool:
    """Whether a blank line stands between two lines with text; reads no further than that."""
    seen_text = seen_blank = False
    with input_files.readable(path), input_files.open_bytes(path) as file:
        for line in file:
            if line.removeprefix(codecs.BOM_UTF8).strip():
                if seen_blank:
                    return True
                seen_text = True
            else:
                seen_blank = seen_text
    return False


def _paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    first = 1
    for number, line in itertools.chain(input_files.lines(path), [(0, "")]):
        if line := line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            yield first, "\n".join(block)
            block = []
