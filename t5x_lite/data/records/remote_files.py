"""Files in buckets (gs://, s3://), on the Hugging Face hub (hf://) and on the web, listed and read through fsspec.

Nothing is copied to a disk: a file is read block after block, the next one while this one is used, and a block again
where the connection or the store fails.
"""

import collections
import concurrent.futures
import io
import os
import time
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from t5x_lite.errors import InputError

_BLOCK_BYTES = 8 << 20
_ATTEMPTS = 6
_FIRST_WAIT = 0.5  # seconds, doubled after each failure
_BLOCKS_AHEAD = 2
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "http": "aiohttp", "https": "aiohttp", "az": "adlfs"}
_MISSING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""What does not get better by asking again."""


class _Size(NamedTuple):
    st_size: int


@dataclass(frozen=True, order=True)
class RemoteFile:
    """A file elsewhere, with what readers use of `pathlib.Path`: `name`, `open`, `stat().st_size`; in print its URL."""

    url: str
    size: int
    """Bytes, as they are stored."""
    version: str = ""
    """What its store has for the content: a hash, an ETag, or the time of the last change."""

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def stat(self) -> _Size:
        return _Size(self.size)

    def resolve(self) -> "RemoteFile":
        return self

    def open(self, mode: str = "rb") -> IO[bytes]:
        """For reading from its beginning on; an error in reading is an `InputError`."""
        return io.BufferedReader(_RemoteReader(self), _BLOCK_BYTES)


def list_remote(url: str, endings: tuple[str, ...] = ()) -> list[RemoteFile]:
    """The files of a URL, sorted: itself, the matches of a glob, or those below a folder that have one of the endings,
    if any are named, and no hidden name; empty where there is none.

    Raises `InputError` where its store cannot be reached, or needs a package that is missing.
    """
    files, path = _file_system(url)
    scheme = url.partition("://")[0]

    def attempt() -> dict[str, dict[str, Any]]:
        if any(character in path for character in "*?["):
            found = files.glob(path, detail=True)
            return {name: info for name, info in found.items() if info["type"] == "file"}
        # Of a store's folders only what lies in them exists, and one request lists it.
        found = files.find(path, detail=True)
        if list(found) in ([], [path]):
            return found or _one_file(files, path)
        below = len(path.rstrip("/")) + 1
        visible = {name: info for name, info in found.items() if "/." not in f"/{name[below:]}"}
        return {name: info for name, info in visible.items() if name.lower().endswith(endings or "")}

    listed = _persistently(attempt, url)
    to_url = (lambda name: name) if scheme in ("http", "https") else (lambda name: f"{scheme}://{name}")
    return sorted(RemoteFile(to_url(name), int(info["size"] or 0), _version(info)) for name, info in listed.items())


def read_remote(url: str) -> bytes:
    """The content of a small file. Raises FileNotFoundError or PermissionError, and `InputError` where its store cannot
    be reached."""
    files, path = _file_system(url)

    def attempt() -> bytes | OSError:
        try:
            return files.cat_file(path)
        except _MISSING as error:
            return error

    if isinstance(content := _persistently(attempt, url), OSError):
        raise content
    return content


def path_in_store(url: str) -> str:
    """The path of a URL as its file system has it."""
    return _file_system(url)[1]


def _one_file(files: Any, path: str) -> dict[str, dict[str, Any]]:
    try:
        info = files.info(path)
    except FileNotFoundError:
        return {}
    return {path: info} if info["type"] == "file" else {}


def _version(info: dict[str, Any]) -> str:
    """By the first of these that a store gives; those of the content come before those of the object."""
    for name in ("md5Hash", "crc32c", "lfs", "ETag", "etag", "blob_id", "LastModified", "mtime", "last_modified"):
        if value := info.get(name):
            return f"{name}={getattr(value, 'sha256', None) or value}"
    return ""


def _file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path there."""
    import fsspec

    scheme = url.partition("://")[0]
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError:
        package = _PACKAGES.get(scheme, f"fsspec knows for {scheme}://")
        raise InputError(f"{url} needs the package {package}; run 'pip install {package}'") from None
    except ValueError as error:  # an unknown scheme
        raise InputError(
            f"{url} is of no kind that can be read ({error}); name files, or URLs in gs://, s3://, hf:// or https://"
        ) from None


def _persistently(attempt: Any, url: str) -> Any:
    """What `attempt` returns, called again after waiting where it fails; `InputError` at last."""
    for number in range(_ATTEMPTS):
        try:
            return attempt()
        except InputError:
            raise
        except Exception as error:  # each kind of store has its own ways to fail
            if number == _ATTEMPTS - 1 or isinstance(error, _MISSING):
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise InputError(
                    f"{url} cannot be read ({reason}); see that it is there, and that this host may read it"
                ) from None
            time.sleep(_FIRST_WAIT * 2**number)


@dataclass(eq=False)
class _RemoteReader(io.RawIOBase):
    """The bytes of a file, read ahead of who takes them by a thread of its own."""

    file: RemoteFile
    _start: int = 0
    _ahead: collections.deque = field(default_factory=collections.deque)

    def __post_init__(self) -> None:
        self._files, self._path = _file_system(self.file.url)
        self._threads = concurrent.futures.ThreadPoolExecutor(_BLOCKS_AHEAD, "read ahead")
        self._process, self._position, self._block, self._used = os.getpid(), 0, b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.file.size}[whence]
        for read in self._ahead:
            read.cancel()
        self._ahead.clear()
        self._start, self._block, self._used = self._position, b"", 0
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._used == len(self._block):
            while self._start < self.file.size and len(self._ahead) < _BLOCKS_AHEAD:
                end = min(self._start + _BLOCK_BYTES, self.file.size)
                self._ahead.append(self._threads.submit(self._read, self._start, end))
                self._start = end
            self._block, self._used = self._ahead.popleft().result() if self._ahead else b"", 0
        part = self._block[self._used : self._used + len(buffer)]
        buffer[: len(part)] = part
        self._used += len(part)
        self._position += len(part)
        return len(part)

    def _read(self, start: int, end: int) -> bytes:
        def attempt() -> bytes:
            block = self._files.cat_file(self._path, start=start, end=end)
            if len(block) != end - start:
                raise OSError(f"{len(block):,} bytes came and not the {end - start:,} from byte {start:,} on")
            return block

        return _persistently(attempt, self.file.url)

    def close(self) -> None:
        if not self.closed:
            for read in self._ahead:
                read.cancel()
            self._threads.shutdown(wait=True)
        super().close()
