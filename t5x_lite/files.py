"""Writing on a disk or in a bucket: small files, growing files, folders that exist when they are complete."""

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etils import epath

from t5x_lite.errors import InputError

# Without it etils reaches buckets through TensorFlow, where that is installed.
os.environ.setdefault("EPATH_USE_TF", "0")

MOST_BYTES = 1 << 28
"""Of a file that is read as a whole: descriptions, vocabularies, tokenizers."""
_BUCKET_SECONDS = 30.0
_HOST = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())
_TEMPORARY = re.compile(r"\.tmp-(?P<target>.+)-(?P<host>\w+)-(?P<pid>\d+)-[0-9a-f]{8}")


def is_in_bucket(path: epath.PathLike) -> bool:
    """Whether a path names an object of a store such as gs:// or s3://, not a file of a disk."""
    return "://" in str(path)


def check_is_name(name: str, option: str, what: str) -> None:
    """Raises `InputError` for a path that no file can have: empty, with a NUL, or with half a surrogate pair."""
    try:
        is_name = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise InputError(f"{option}={name!r} is not the name of {what}; give one")


def local_or_bucket(name: epath.PathLike, option: str = "folder") -> Path | epath.Path:
    """The folder that a user names, in their home for ~, in a bucket for gs:// or s3://.

    Raises `InputError`, which names the option, for other kinds of buckets and for what is no name (TensorStore would
    end it at a NUL).
    """
    check_is_name(str(name), option, "a folder")
    try:
        return epath.Path(name) if is_in_bucket(name) else Path(name).expanduser()
    except (KeyError, RuntimeError):  # an unknown scheme; a home that is not known
        raise InputError(
            f"{option}={name} is of no kind that is known; name a folder, or one in gs:// or s3://"
        ) from None


def check_is_new(folder: Path, option: str) -> None:
    """Raises `InputError` for a file, and for a folder that is not empty; `option` is the name in the message."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{option}={folder} is a file; choose a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{option}={folder} is not empty; choose another folder, nothing is overwritten")


def check_output_path(path: Path, option: str, suffixes: tuple[str, ...] = (".png",)) -> None:
    """Raises `InputError` for a name that does not end in one of `suffixes`, or whose folder is missing."""
    if path.suffix not in suffixes:
        kinds = " or ".join({".png": "picture", ".html": "page", ".json": "JSON file"}[suffix] for suffix in suffixes)
        raise InputError(
            f"{option}={path} is not the name of a {kinds}; choose one that ends in {' or '.join(suffixes)}"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option}={path} lies in no folder; make the folder first, or choose another one")


def read_bytes(path: epath.PathLike, what: str = "") -> bytes:
    """The content of a regular file of at most `MOST_BYTES`.

    Raises `InputError`, which begins with `what`, where it cannot be read or is larger, and for a pipe or a device,
    which may have no end.
    """
    try:
        path = epath.Path(path) if is_in_bucket(path) else Path(path)
        if path.exists() and not path.is_file():
            problem = "is not a file"
        elif path.exists() and (size := epath.Path(path).stat().length) > MOST_BYTES:
            problem = f"has {size:,} bytes, more than any file of its kind"
        else:
            return path.read_bytes()
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    except KeyError as error:  # an unknown scheme
        problem = f"cannot be read ({error.args[0]} is not one that is known, such as gs:// or s3://)"
    raise InputError(f"{f'{what}: ' if what else ''}{path} {problem}; correct the path")


def read_json(path: epath.PathLike) -> dict[str, Any]:
    """The JSON object in a file, an empty one where there is no file; `InputError` when it holds something else."""
    if not os.path.lexists(path) and not epath.Path(path).exists():
        return {}
    read = read_bytes(path)
    try:
        content = json.loads(read.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); it may be truncated: copy it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} does not hold a JSON object; copy it again")
    return content


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a small file; a reader sees the old content or the new."""
    path = epath.Path(path)
    content = content.encode() if isinstance(content, str) else content
    if is_in_bucket(path):  # objects appear whole
        path.write_bytes(content)
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def file_sizes(folder: epath.PathLike) -> dict[str, int]:
    """The bytes of every file of a folder, on a disk or in a bucket, by its name with slashes; empty for no folder."""
    if is_in_bucket(folder):
        import fsspec

        files, path = fsspec.core.url_to_fs(str(folder))
        files.invalidate_cache()  # TensorStore writes there too
        found = files.find(path, detail=True)
        return {name[len(path) :].lstrip("/"): int(info["size"] or 0) for name, info in found.items()}
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}


class GrowingFile:
    """A file to append to. In a bucket, whose objects cannot grow, it is written anew, at most twice a minute.

    Args:
      path: of the file, which is replaced.
      content: of its beginning.
    """

    def __init__(self, path: epath.PathLike, content: bytes = b""):
        self._path = epath.Path(path)
        self._whole = bytearray(content) if is_in_bucket(path) else None
        self._written_at = time.monotonic()
        write_atomically(self._path, content)
        # Unbuffered: a run that is killed leaves all that it wrote.
        self._file = open(self._path, "ab", buffering=0) if self._whole is None else None  # noqa: SIM115

    def write(self, data: bytes, now: bool = False) -> None:
        """Appends; `now`: in a bucket too, at once."""
        if self._file is not None:
            if self._file.write(data) < len(data):  # as much as the disk had room for
                raise OSError(errno.ENOSPC, "No space left on device", str(self._path))
        else:
            self._whole += data
            if now or time.monotonic() - self._written_at > _BUCKET_SECONDS:
                self._upload()

    def flush(self) -> None:
        """Does nothing, for callers that expect a file."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        else:
            self._upload()

    def _upload(self) -> None:
        self._written_at = time.monotonic()
        write_atomically(self._path, bytes(self._whole))


def write_folder(
    target: epath.PathLike,
    write: Callable[[Path], None],
    is_complete: Callable[[Path], bool],
    is_begun: Callable[[Path], bool] = lambda folder: False,
) -> None:
    """Makes `target` by writing into a temporary sibling and renaming it; in a bucket, where nothing can be renamed, by
    writing there.

    When `write` raises or the process dies, `target` is not created; temporary folders of dead processes of this
    machine are removed by the next call. When another process finishes the same folder first, its result stays.

    Args:
      target: the folder to make; a folder there that is not complete is replaced.
      write: writes everything into a folder, which is empty or one that it had begun, its last file last.
      is_complete: whether a folder is not damaged.
      is_begun: whether `write` can go on from what an interrupted one left in its folder, which is kept for it then.
    """
    if is_in_bucket(target):
        write(epath.Path(target))
        return
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary, damaged = (
        target.parent / f".tmp-{target.name}-{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}" for _ in range(2)
    )
    for entry in target.parent.iterdir():
        match = _TEMPORARY.fullmatch(entry.name)
        if match and match["host"] == _HOST and not _is_alive(int(match["pid"])):
            if match["target"] == target.name and not temporary.exists() and is_begun(entry):
                with contextlib.suppress(OSError):  # another process was faster
                    os.replace(entry, temporary)
            elif not is_begun(entry):
                shutil.rmtree(entry, ignore_errors=True)
    temporary.mkdir(exist_ok=True)
    kept = False
    try:
        try:
            write(temporary)
        except BaseException:
            kept = is_begun(temporary)
            raise
        if target.exists() and not is_complete(target):
            # Renamed first: a reader sees the damaged folder whole or not at all.
            os.replace(target, damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        try:
            os.replace(temporary, target)
        except OSError:
            if not is_complete(target):
                raise
    finally:
        if not kept:
            shutil.rmtree(temporary, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, of another user
        return True
    return True
