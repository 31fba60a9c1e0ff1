"""Documents from plain text and JSON lines on disk, compressed or not."""

import codecs
import glob
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, get_args

from t5x_lite.data.sources import Source
from t5x_lite.errors import InputError

DocumentUnit = Literal["paragraph", "line", "file"]

_JSON_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_ENDINGS = (".txt", ".txt.gz", *_JSON_ENDINGS)
_WHOLE_HASH = 64 << 20
_PART_HASH = 16 << 20


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
    """Key of the text in a line of JSON."""

    def __post_init__(self) -> None:
        if isinstance(self.paths, str) or not self.paths:
            raise InputError(f"paths={self.paths!r} names no text; give a tuple of files, globs or folders")
        if self.document not in get_args(DocumentUnit):
            raise InputError(
                f"document={self.document!r} is unknown; choose one of {', '.join(get_args(DocumentUnit))}"
            )

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        found = {file.resolve() for path in self.paths for file in _files_of(path)}
        return sorted(found)

    def documents(self) -> Iterator[str]:
        empty = True
        for path in self.files():
            for text in self._documents_of(path):
                empty = False
                yield text
        if empty:
            raise InputError(f"paths={self.paths} hold no text but blanks; give files with text")

    def fingerprint(self) -> str:
        """Hash of name, size and content of every file; of a file over 64 MB its first, middle and last 16 MB."""
        digest = hashlib.blake2b(f"TextFiles {self.document} {self.field}".encode(), digest_size=16)
        for path in self.files():
            size = path.stat().st_size
            digest.update(f"\0{path.name} {size}\0".encode())
            whole = size <= _WHOLE_HASH
            parts = [(0, size)] if whole else [(start, _PART_HASH) for start in _part_starts(size)]
            with _readable(path), path.open("rb") as file:
                for start, length in parts:
                    file.seek(start)
                    digest.update(file.read(length))
        return digest.hexdigest()

    def _documents_of(self, path: Path) -> Iterator[str]:
        if path.name.lower().endswith(_JSON_ENDINGS):
            return self._json_records(path)
        if self.document == "file":
            return _whole_file(path)
        if self.document == "line" or not _has_paragraphs(path):
            return (line for _, line in _lines(path) if line)
        return _paragraphs(path)

    def _json_records(self, path: Path) -> Iterator[str]:
        for number, line in _lines(path):
            if not line:
                continue
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise InputError(
                    f"{path}:{number} is not JSON ({error}); write one JSON object a line, or name the file .txt"
                ) from None
            text = record.get(self.field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                present = sorted(record) if isinstance(record, dict) else f"no fields but a {type(record).__name__}"
                raise InputError(f"field={self.field!r} is no text in {path}:{number}, which has {present}; set field")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"{path}:{number} escapes half a surrogate pair, which is no character; remove the record"
                ) from None
            if text := text.strip():
                yield text


def _part_starts(size: int) -> tuple[int, int, int]:
    return 0, (size - _PART_HASH) // 2, size - _PART_HASH


def _files_of(path: str) -> list[Path]:
    """One entry of `paths` as files."""
    expanded = os.path.expanduser(path)
    found = [Path(expanded)] if os.path.exists(expanded) else [Path(p) for p in glob.glob(expanded, recursive=True)]
    if not found:
        kind = "glob matches no file" if glob.has_magic(expanded) else "file or folder does not exist"
        raise InputError(f"paths={path!r}: the {kind} (seen from {Path.cwd()}); correct the path")
    files = [file for entry in found for file in (_files_below(entry) if entry.is_dir() else [entry])]
    filled = [file for file in files if file.stat().st_size]
    if files and not filled:
        raise InputError(f"paths={path!r} is empty (0 bytes); give files with text")
    if not filled:
        raise InputError(f"paths={path!r} holds no file that ends in {', '.join(_ENDINGS)}; name the files themselves")
    return filled


def _files_below(folder: Path) -> list[Path]:
    files = []
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        files.extend(Path(parent, n) for n in names if n.lower().endswith(_ENDINGS) and not n.startswith("."))
    return files


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is broken as gzip ({error}); compress or copy it again") from None
    except (PermissionError, IsADirectoryError, FileNotFoundError) as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); change its permissions or paths") from None


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number from 1 and stripped text of every line, blank ones too."""
    with _readable(path), _open(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise _not_utf8(path, f"line {number}", error) from None
            yield number, text


def _whole_file(path: Path) -> Iterator[str]:
    with _readable(path), _open(path) as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise _not_utf8(path, f"byte offset {error.start}", error) from None
    if text:
        yield text


def _not_utf8(path: Path, place: str, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{path} is not UTF-8 at {place} (byte 0x{error.object[error.start]:02x}); "
        f"convert it, e.g. iconv -f LATIN1 -t UTF-8"
    )


def _has_paragraphs(path: Path) -> bool:
    """Whether a blank line stands between two lines with text; reads no further than that."""
    seen_text = seen_blank = False
    with _readable(path), _open(path) as file:
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
    for _, line in _lines(path):
        if line:
            block.append(line)
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
