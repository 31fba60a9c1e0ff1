"""Folders that are either complete or not there."""

import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path

_HOST = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())
_TEMPORARY = re.compile(r"\.tmp-.+-(?P<host>\w+)-(?P<pid>\d+)-[0-9a-f]{8}")


def write_folder(target: Path, write: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> None:
    """Make `target` by writing into a temporary sibling and renaming it.

    When `write` raises or the process dies, nothing stands at `target`; what dead processes of this machine left is
    removed by the next call. When another process finishes the same folder first, its result stays.

    Args:
      target: the folder to make; a folder there that is not complete is replaced.
      write: writes everything into the empty folder it is given.
      is_complete: tells a good folder from a damaged one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(target.parent)
    temporary = _temporary_name(target)
    temporary.mkdir()
    try:
        write(temporary)
        if target.exists() and not is_complete(target):
            # Renamed first: a reader sees the damaged folder whole or not at all.
            damaged = _temporary_name(target)
            os.replace(target, damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        try:
            os.replace(temporary, target)
        except OSError:
            if not is_complete(target):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_name(target: Path) -> Path:
    return target.parent / f".tmp-{target.name}-{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _remove_stale(parent: Path) -> None:
    for entry in parent.iterdir():
        match = _TEMPORARY.fullmatch(entry.name)
        if match and match["host"] == _HOST and not _is_alive(int(match["pid"])):
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and somebody else's
        return True
    return True
