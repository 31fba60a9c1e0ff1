"""Files of text on disk, compressed or not: which of them a path names, their lines, records and hash."""

import dataclasses
import glob
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar

from t5x_lite.data.records.base import Records
from t5x_lite.errors import InputError

JSON_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_WHOLE_HASH = 64 << 20
_PART_HASH = 16 << 20


class FileRecords(Records):
    """Base of records in files, which the field `paths` names."""

    paths: tuple[str, ...]
    endings: ClassVar[tuple[str, ...]] = ()
    """Those of the files that a folder is searched for; none are any."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_paths(self.paths)

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return files_of(self.paths, self.endings)

    def fingerprint(self) -> str:
        options = [getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "paths"]
        return hash_files(f"{type(self).__name__} {options}", self.files())


def check_paths(paths: tuple[str, ...], field: str = "paths") -> None:
    """Raises `InputError` for what is not a tuple of paths."""
    if isinstance(paths, str) or not paths:
        raise InputError(f"{field}={paths!r} names no text; give a tuple of files, globs or folders")


def files_of(paths: Iterable[str], endings: tuple[str, ...]) -> list[Path]:
    """The files that are not empty of some paths, sorted, each once; `InputError` for a path that gives none."""
    found = {file.resolve() for path in paths for file in expand(path, endings)}
    return sorted(file for file in found if file.stat().st_size)


def expand(path: str, endings: tuple[str, ...], field: str = "paths") -> list[Path]:
    """The files of a path, sorted: itself, those that a glob matches, those in a folder and below that have one of the
    endings (any, where none are named) and no hidden name. `InputError` when there is none, or all are empty."""
    expanded = os.path.expanduser(path)
    found = [Path(expanded)] if os.path.exists(expanded) else [Path(p) for p in glob.glob(expanded, recursive=True)]
    if not found:
        kind = "glob matches no file" if glob.has_magic(expanded) else "file or folder does not exist"
        raise InputError(f"{field}={path!r}: the {kind} (seen from {Path.cwd()}); correct the path")
    files = [file for entry in found for file in (_files_below(entry, endings) if entry.is_dir() else [entry])]
    if files and not any(file.stat().st_size for file in files):
        raise InputError(f"{field}={path!r} is empty (0 bytes); give files with text")
    if not files:
        ending = f" that ends in {', '.join(endings)}" if endings else ""
        raise InputError(f"{field}={path!r} holds no file{ending}; name the files themselves")
    return sorted(files)


def _files_below(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    files = []
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        files.extend(Path(parent, n) for n in names if n.lower().endswith(endings or "") and not n.startswith("."))
    return files


def hash_files(options: str, files: Iterable[Path]) -> str:
    """Hash of some options, and of name, size and content of every file; of a file over 64 MB its first, middle and
    last 16 MB."""
    digest = hashlib.blake2b(options.encode(), digest_size=16)
    for path in files:
        with readable(path), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"\0{path.name} {size}\0".encode())
            parts = [(0, size)] if size <= _WHOLE_HASH else [(start, _PART_HASH) for start in _part_starts(size)]
            for start, length in parts:
                file.seek(start)
                digest.update(file.read(length))
    return digest.hexdigest()


def _part_starts(size: int) -> tuple[int, int, int]:
    return 0, (size - _PART_HASH) // 2, size - _PART_HASH


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever hinders the reading of a file becomes an `InputError`."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is broken as gzip ({error}); compress or copy it again") from None
    except (PermissionError, IsADirectoryError, FileNotFoundError) as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); change its permissions or paths") from None


def open_bytes(path: Path) -> IO[bytes]:
    """A file for reading, unpacked where its name ends in .gz."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number from 1 and text of every line without its end, blank ones too."""
    with readable(path), open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise _not_utf8(path, f"line {number}", error) from None
            yield number, text.rstrip("\r\n")


def whole_text(path: Path) -> str:
    """A file in one piece."""
    with readable(path), open_bytes(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, f"byte offset {error.start}", error) from None


def _not_utf8(path: Path, location: str, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{path} is not UTF-8 at {location} (byte 0x{error.object[error.start]:02x}); "
        f"convert it, e.g. iconv -f LATIN1 -t UTF-8"
    )


def json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number from 1 of every line that is not blank, and its JSON object."""
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(
                f"{path}:{number} is not JSON ({error}); write one JSON object a line, or name the file .txt"
            ) from None
        if not isinstance(record, dict):
            raise InputError(f"{path}:{number} is a {type(record).__name__}; write one JSON object a line")
        yield number, record
