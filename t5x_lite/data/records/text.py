"""Where text comes from: a stream of documents with an identity. Here: the base and the corpus every Python carries."""

import abc
import ast
import codecs
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
from typing import Literal, get_args

from t5x_lite.data.records import input_files
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

    def location(self, number: int) -> str:
        """Where the document with this number, from 1, stands, for a message."""
        return f"document {number}"

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


DocumentUnit = Literal["paragraph", "line", "file"]

_ENDINGS = (".txt", ".txt.gz", *input_files.JSON_ENDINGS)


@dataclass(frozen=True)
class TextFiles(Source):
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

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)
        if self.document not in get_args(DocumentUnit):
            raise InputError(
                f"document={self.document!r} is unknown; choose one of {', '.join(get_args(DocumentUnit))}"
            )

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, _ENDINGS)

    def documents(self) -> Iterator[str]:
        empty = True
        for path in self.files():
            for text in filter(None, map(str.strip, self._documents_of(path))):
                empty = False
                yield text
        if empty:
            raise InputError(f"paths={self.paths} hold no text but blanks; give files with text")

    def fingerprint(self) -> str:
        return input_files.hash_files(f"TextFiles {self.document} {self.field}", self.files())

    def _documents_of(self, path: Path) -> Iterator[str]:
        if path.name.lower().endswith(input_files.JSON_ENDINGS):
            return (
                input_files.text_of(record, self.field, f"{path}:{number}")
                for number, record in input_files.json_records(path)
            )
        if self.document == "file":
            return iter([input_files.whole_text(path)])
        if self.document == "line" or not _has_paragraphs(path):
            return (line for _, line in input_files.lines(path))
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


def _paragraphs(path: Path) -> Iterator[str]:
    block: list[str] = []
    for _, line in input_files.lines(path):
        if line := line.strip():
            block.append(line)
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
