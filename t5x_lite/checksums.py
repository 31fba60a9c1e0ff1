"""Checksums of the files in a folder: written when the files are complete, compared when they are read.

A folder has one file of them for each process that wrote some of its files, `checksums.<process>.json`: size and
64 bits of XXH3 by name, which a processor computes faster than it copies the file. For most files it is the only
protection: a flipped bit in an array would be read as another number.
"""

import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xxhash
from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically

Folder = Path | epath.Path
_NAME = re.compile(r"checksums\.\d+\.json")
_BEING_WRITTEN = re.compile(_NAME.pattern + r"\.\d+\.\d+\.tmp")  # as `write_atomically` names them
_BLOCK = 1 << 20  # fits into a processor's cache
_THREADS = 16


def write_checksums(folder: Folder, names: Iterable[str] | None = None, process: int = 0) -> None:
    """Writes the checksums of complete files, given by their names with slashes; None: of all in the folder."""
    names = sorted(file_names(folder) if names is None else names)
    content = json.dumps({"files": dict(zip(names, _checksums(folder, names), strict=True))}, indent=0)
    write_atomically(folder / f"checksums.{process}.json", content + "\n")


def file_names(folder: Folder) -> list[str]:
    """All files of a folder by their names with slashes, but for those of checksums, also while they are written."""
    names = []
    for child in sorted(folder.iterdir(), key=lambda child: child.name):
        if child.is_dir():
            names += [f"{child.name}/{name}" for name in file_names(child)]
        elif not _NAME.fullmatch(child.name) and not _BEING_WRITTEN.fullmatch(child.name):
            names.append(child.name)
    return names


def is_checked(folder: Folder) -> bool:
    """Whether a folder has a checksum of every file; a process that is killed at the very end writes none."""
    return set(file_names(folder)) <= set(_read(folder))


def find_damage(
    folder: Folder,
    wanted: Callable[[str], bool] = lambda name: True,
    *,
    share: tuple[int, int] = (0, 1),
    sizes_alone: bool = False,
) -> str:
    """How the files of a folder differ from what was written, as the end of a sentence; empty where they do not.

    Args:
      wanted: the names of the files to compare.
      share: (number, of how many) parts of them, where each of several processes reads one.
      sizes_alone: compares sizes, without reading the files.
    """
    try:
        written = {name: sums for name, sums in _read(folder).items() if wanted(name)}
    except InputError as error:
        return str(error)
    if missing := sorted(set(written) - set(file_names(folder))):
        return f"{missing[0]} is missing"
    number, count = share
    names = sorted(written)[number::count]
    for name in names:
        if (size := epath.Path(folder / name).stat().length) != written[name][0]:
            return f"{name} has {size:,} bytes and not {written[name][0]:,}"
    sums = [] if sizes_alone else _checksums(folder, names)
    different = [name for name, found in zip(names, sums, strict=False) if found != written[name]]
    return f"{different[0]} is not what was written, by its checksum" if different else ""


def _read(folder: Folder) -> dict[str, list[Any]]:
    written: dict[str, list[Any]] = {}
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            try:
                written |= {name: list(sums) for name, sums in json.loads(path.read_bytes())["files"].items()}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(f"{path.name} is not what was written") from None
    return written


def _checksums(folder: Folder, names: list[str]) -> list[list[Any]]:
    """(size, XXH3 in hexadecimal digits) of each file."""

    def checksum(name: str) -> list[Any]:
        size, value = 0, xxhash.xxh3_64()
        with (folder / name).open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                value.update(block)
        return [size, value.hexdigest()]

    try:
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(checksum, names))
    except RuntimeError:  # the system starts no more threads
        return list(map(checksum, names))
