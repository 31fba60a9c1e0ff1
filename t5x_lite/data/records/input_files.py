"""Files of text, compressed or not: which of them a path names, their lines, records and hash."""

import dataclasses
import glob
import gzip
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, ClassVar

from t5x_lite.data.records.base import Record, Records, Source
from t5x_lite.data.records.remote_files import RemoteFile, list_remote
from t5x_lite.errors import InputError
from t5x_lite.files import MOST_BYTES, check_is_name, is_in_bucket

InputFile = Path | RemoteFile

JSON_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_WHOLE_HASH = 64 << 20
_PART_HASH = 16 << 20
_MOST_RATIO = 500
"""Of text to its bytes in gzip, which reaches 1,000 for one byte again and again."""
_SHARD_BYTES = 64 << 20


class FileRecords(Records):
    """Base of records in files, which the field `paths` names, on disks or by URLs; by default JSON lines."""

    paths: tuple[str, ...]
    endings: ClassVar[tuple[str, ...]] = ()
    """The endings that a folder is searched for; empty for all files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_paths(self.paths)

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            for number, fields in self.records_in(path):
                yield Record(f"{path}:{number}", fields)

    def records_in(self, path: InputFile) -> Iterator[tuple[int, dict[str, Any]]]:
        """(line number from 1, fields) of each record in a file."""
        for number, line in lines(path):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                remedy = "write one JSON object a line, or name the file .txt"
                raise InputError(f"{path}:{number} is not JSON ({error}); {remedy}") from None
            if not isinstance(record, dict):
                raise InputError(f"{path}:{number} is a {type(record).__name__}; write one JSON object a line")
            yield number, record

    def files(self) -> list[InputFile]:
        """The files to read, sorted, each once, without empty ones; `InputError` for a path that gives none."""
        files = {file.resolve() for path in self.paths for file in expand(path, self.endings)}
        local = sorted(file for file in files if isinstance(file, Path))
        remote = sorted(file for file in files if not isinstance(file, Path))
        return [file for file in (*local, *remote) if file.stat().st_size]

    def shards(self) -> list[Source]:
        """Its files one by one, small neighbours together: 64 MiB or more of them, as they are stored."""
        groups, num_bytes = [[]], 0
        for file in self.files():
            if num_bytes >= _SHARD_BYTES:
                groups.append([])
                num_bytes = 0
            groups[-1].append(str(file))
            num_bytes += file.stat().st_size
        return [dataclasses.replace(self, paths=tuple(group)) for group in groups] if len(groups) > 1 else [self]

    def fingerprint(self) -> str:
        """Hash of the options, and of each file's name, size and content: over 64 MB its first, middle and last 16, and
        of a file elsewhere what its store says of the content, so that nothing is read."""
        options = [getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "paths"]
        digest = hashlib.blake2b(f"{type(self).__name__} {options}".encode(), digest_size=16)
        for path in self.files():
            size = path.stat().st_size
            digest.update(f"\0{path.name} {size}\0".encode())
            if isinstance(path, RemoteFile):
                digest.update(path.version.encode())
                continue
            with open_bytes(path, decompress=False) as file:
                last = size - _PART_HASH
                parts = [(0, size)] if size <= _WHOLE_HASH else [(start, _PART_HASH) for start in (0, last // 2, last)]
                for start, length in parts:
                    file.seek(start)
                    digest.update(file.read(length))
        return digest.hexdigest()


def check_paths(paths: tuple[str, ...], field: str = "paths") -> None:
    """Raises `InputError` for what is not a tuple of paths."""
    if isinstance(paths, str) or not paths:
        raise InputError(f"{field}={paths!r} names no text; give a tuple of files, globs or folders")
    for path in paths:
        check_is_name(path, field, "a file, glob or folder")


def expand(path: str, endings: tuple[str, ...], field: str = "paths") -> list[InputFile]:
    """The files of a path, sorted: itself, the matches of a glob, or those below a folder that have one of the endings,
    if any are named, and no hidden name. `InputError` when there is none, or all are empty."""
    if is_remote := is_in_bucket(path):
        expanded, seen_from = path, ""
        files = list_remote(path, endings)
    else:
        expanded, seen_from = os.path.expanduser(path), f" (seen from {Path.cwd()})"
        entries = [expanded] if os.path.exists(expanded) else glob.glob(expanded, recursive=True)
        files = [file for entry in map(Path, entries) for file in _files_below(entry, endings)]
    if not files and (is_remote or not entries):
        problem = "glob matches no file" if glob.has_magic(expanded) else "file or folder does not exist"
        raise InputError(f"{field}={path!r}: the {problem}{seen_from}; correct the path")
    if not files:
        ending = f" that ends in {', '.join(endings)}" if endings else ""
        raise InputError(f"{field}={path!r} holds no file{ending}; name the files themselves")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{field}={path!r} is empty (0 bytes); give files with text")
    return sorted(files)


def _files_below(entry: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    if not entry.is_dir():
        yield entry
        return
    for folder, subfolders, names in os.walk(entry):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        visible = [name for name in names if not name.startswith(".")]
        yield from (Path(folder, name) for name in visible if name.lower().endswith(endings or ""))


@contextmanager
def open_bytes(path: InputFile, *, decompress: bool = True) -> Iterator[IO[bytes]]:
    """A file for reading, decompressed where its name ends in .gz; errors in reading become `InputError`."""
    is_gzip = decompress and path.name.lower().endswith(".gz")
    try:
        with path.open("rb") as stored, gzip.GzipFile(fileobj=stored) if is_gzip else nullcontext(stored) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is broken as gzip ({error}); compress or copy it again") from None
    except (PermissionError, IsADirectoryError, FileNotFoundError) as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); change its permissions or paths") from None


def lines(path: InputFile) -> Iterator[tuple[int, str]]:
    """Number from 1 and text of every line, blank ones too, without its end."""
    with open_bytes(path) as file:
        for number, line in enumerate(byte_lines(file, path), start=1):
            yield number, _decoded(line, path, f"line {number}", is_first=number == 1).rstrip("\r\n")


def byte_lines(file: IO[bytes], path: InputFile) -> Iterator[bytes]:
    """The lines of a file that `open_bytes` opened, with their ends.

    Raises `InputError` for one of more than `MOST_BYTES`, and for what gzip made out of next to nothing.
    """
    size, total = path.stat().st_size, 0
    while line := file.readline(MOST_BYTES + 1):
        total += len(line)
        if len(line) > MOST_BYTES:
            raise InputError(f"{path} has a line of more than {MOST_BYTES >> 20} MiB; break it into shorter ones")
        if total > max(MOST_BYTES, _MOST_RATIO * size):
            raise InputError(f"{path} has {size:,} bytes and {total:,} or more of text; such gzip files are not read")
        yield line


def blocks(path: InputFile) -> Iterator[list[tuple[int, str]]]:
    """The lines between blank ones, each with its number."""
    for has_text, block in itertools.groupby(lines(path), key=lambda line: bool(line[1].strip())):
        if has_text:
            yield list(block)


def whole_text(path: InputFile) -> str:
    with open_bytes(path) as file:
        return _decoded(b"".join(byte_lines(file, path)), path, "byte offset {start}", is_first=True)


def _decoded(content: bytes, path: InputFile, location: str, *, is_first: bool) -> str:
    try:
        return content.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if is_first and content[:2] in (b"\xff\xfe", b"\xfe\xff") else "LATIN1"
        raise InputError(
            f"{path} is not UTF-8 at {location.format(start=error.start)} (byte 0x{content[error.start]:02x}); "
            f"convert it, e.g. iconv -f {encoding} -t UTF-8"
        ) from None
