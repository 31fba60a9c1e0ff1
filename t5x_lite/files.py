"""What a run writes, on a disk or in a bucket: small files, and files that grow."""

import os
import time
from pathlib import Path

from etils import epath

from t5x_lite.errors import InputError

# Without it etils reaches buckets through TensorFlow, where that is installed; it asks when the first one is touched.
os.environ.setdefault("EPATH_USE_TF", "0")

_BUCKET_SECONDS = 30.0


def is_in_bucket(path: epath.PathLike) -> bool:
    """Whether a path names an object of a store such as gs:// or s3://, and no file of a disk."""
    return "://" in str(path)


def local_or_bucket(name: epath.PathLike) -> Path | epath.Path:
    """The folder that a user names: ~ is their home, and gs:// or s3:// a bucket."""
    return epath.Path(name) if is_in_bucket(name) else Path(name).expanduser()


def check_is_new(folder: Path, option: str) -> None:
    """Raises `InputError` for a file, and for a folder that is not empty; `option` is what the user calls it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{option}={folder} is a file; choose a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{option}={folder} is not empty; choose another folder, nothing is overwritten")


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a small file that is either the old one or the new one, whatever happens."""
    path = epath.Path(path)
    content = content.encode() if isinstance(content, str) else content
    if is_in_bucket(path):  # objects appear whole
        path.write_bytes(content)
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


class GrowingFile:
    """A file to append to. In a bucket, whose objects cannot grow, it is written anew, at most twice a minute.

    Args:
      path: of the file.
      content: what it begins with; what was there before is replaced.
    """

    def __init__(self, path: epath.PathLike, content: bytes = b""):
        self._path = epath.Path(path)
        self._whole = bytearray(content) if is_in_bucket(path) else None
        self._written_at = time.monotonic()
        write_atomically(self._path, content)
        # Unbuffered: a run that is killed leaves all that it wrote.
        self._file = open(self._path, "ab", buffering=0) if self._whole is None else None  # noqa: SIM115

    def write(self, data: bytes) -> None:
        """Appends."""
        if self._file is not None:
            self._file.write(data)
        else:
            self._whole += data
            if time.monotonic() - self._written_at > _BUCKET_SECONDS:
                self._upload()

    def flush(self) -> None:
        """For those that expect a file: what is due was written already."""

    def close(self) -> None:
        """Writes what is not written yet."""
        if self._file is not None:
            self._file.close()
        else:
            self._upload()

    def _upload(self) -> None:
        self._written_at = time.monotonic()
        write_atomically(self._path, bytes(self._whole))
