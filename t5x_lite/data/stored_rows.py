"""Sequences of rows: stored in files that are read at random, on a disk or in a bucket, or those of several corpora.

A file of rows is a shard as Zarr has them (codec `sharding_indexed`, one row a chunk), which TensorStore writes whole
and reads row by row: it asks a bucket for the bytes of a row alone, many rows at once, and again where a request fails.
"""

import abc
import contextlib
import functools
import os
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from etils import epath

from t5x_lite.data.layouts.base import Row, RowSpec
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket
from t5x_lite.images.decoding import decode_image

if TYPE_CHECKING:
    import grain
    import tensorstore

SPLITS = ("train", "held_out")
_FILE_BYTES = 64 << 20
"""Of a file of rows, which its writer holds in memory."""
_CACHE_BYTES = 8 << 30
"""Most memory for the positions of rows in files, 16 bytes a row, of those that were read."""
_REQUESTS = 256
"""Of a bucket at once, each of which is one row and mostly waiting."""
_CHECKSUM = struct.Struct("<Q")
_SIZE = struct.Struct("<I")
_DECODED_TOGETHER = 8
"""Rows with images that one thread decodes: small ones take less time than a thread takes to begin."""
_INDEX_BYTES, _END_BYTES = 16, 4
"""Of a row in the index of its file, and of the checksum after that."""
_THREADS = 65  # of TensorStore, and ArrayRecord's in TFDS


class RowSequence(Sequence[Row]):
    """Base of sequences of rows that read many at once, which is faster than one by one: `__getitems__`."""

    @abc.abstractmethod
    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        """Rows by their numbers, from 0."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.__getitems__([int(index) % len(self)])[0]


def read_rows(rows: Sequence[Row], indices: list[int]) -> list[Row]:
    """Many rows of any sequence, in one read where it can."""
    many = getattr(rows, "__getitems__", None)
    return many(indices) if many else [rows[index] for index in indices]


def stack(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Rows as a batch: each column with a leading dimension."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


class RowFile(NamedTuple):
    """A file of rows, by its name in the folder of the store."""

    name: str
    rows: int
    num_bytes: int


class RowFormat:
    """Rows to bytes and back: the columns one after the other, and their checksum.

    Args:
      spec: the columns.
      num_ids: ids of the vocabulary; up to 65,536 are stored in 16 bits.
    """

    def __init__(self, spec: RowSpec, num_ids: int) -> None:
        self.spec = spec
        small = num_ids <= 1 << 16
        dtypes = {name: np.uint16 if column.is_ids and small else column.dtype for name, column in spec.items()}
        self._dtypes = {name: np.dtype(dtype).newbyteorder("<") for name, dtype in dtypes.items()}

    def encode(self, row: Row) -> bytes:
        """ValueError for a row whose columns are not those of the spec."""
        if row.keys() != self.spec.keys():
            raise ValueError(f"a row has columns {sorted(row)}, the layout's spec {sorted(self.spec)}")
        parts = []
        for name, column in self.spec.items():
            value = row[name]
            if column.encoding == "image":
                if not isinstance(value, bytes):
                    raise ValueError(f"column {name!r} holds a {type(value).__name__}, not the bytes of an image file")
                parts += [_SIZE.pack(len(value)), value]
            else:
                if (value := np.asarray(value, self._dtypes[name])).shape != tuple(column.shape):
                    raise ValueError(f"column {name!r} has shape {value.shape} in a row, {column.shape} in the spec")
                parts.append(value.tobytes())
        content = b"".join(parts)
        return content + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))

    def decode(self, stored: bytes) -> Row:
        """ValueError for bytes that `encode` did not write."""
        end = len(stored) - _CHECKSUM.size
        content = memoryview(stored)[: max(end, 0)]
        if end < 0 or _CHECKSUM.unpack_from(stored, end)[0] != xxhash.xxh3_64_intdigest(content):
            raise ValueError("a row is not what was written, by its checksum")
        row, start = {}, 0
        for name, column in self.spec.items():
            if column.encoding == "image":
                (size,) = _SIZE.unpack_from(content, start)
                start += _SIZE.size
                row[name] = decode_image(bytes(content[start : start + size]), column.shape)
                start += size
            else:
                array = np.frombuffer(content, self._dtypes[name], column.size, start).reshape(column.shape)
                row[name] = array.astype(column.dtype)
                start += array.nbytes
        return row

    def decode_many(self, stored: Sequence[bytes]) -> list[Row]:
        """Rows in their order; with images on all cores, since Pillow decodes outside of Python's lock."""
        if all(column.encoding == "array" for column in self.spec.values()) or len(stored) < 2:
            return [self.decode(one) for one in stored]
        starts = range(0, len(stored), _DECODED_TOGETHER)
        parts = _decoders().map(
            lambda start: [self.decode(one) for one in stored[start : start + _DECODED_TOGETHER]], starts
        )
        return [row for part in parts for row in part]


@functools.cache
def _decoders() -> ThreadPoolExecutor:
    """The threads that decode images, one a core; those of all datasets are the same."""
    affinity = getattr(os, "sched_getaffinity", None)
    return ThreadPoolExecutor(len(affinity(0)) if affinity else os.cpu_count() or 1, "decode images")


@functools.cache
def check_threads() -> None:
    """Raises `InputError` where the system refuses the threads that read rows.

    TensorStore and ArrayRecord start theirs with the first reader. When one is refused then, the process ends, or waits
    without end.
    """
    ended, started, before = threading.Event(), [], _num_threads()
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=ended.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise InputError(
            f"the system starts {len(started)} threads more and reading rows takes {_THREADS}; raise the limit of "
            "processes (ulimit -u, or that of the container), or end other programs"
        ) from None
    finally:
        ended.set()
        for thread in started:
            thread.join()
    # Python joins a thread a moment before the system counts it no more.
    deadline = time.monotonic() + 1
    while _num_threads() > before and time.monotonic() < deadline:
        time.sleep(0.001)


def _num_threads() -> int:
    """Threads of this process, by Linux; elsewhere 0."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 0


@functools.cache
def _context() -> "tensorstore.Context":
    import tensorstore

    requests = {f"{store}_request_concurrency": {"limit": _REQUESTS} for store in ("gcs", "s3")}
    return tensorstore.Context({"cache_pool": {"total_bytes_limit": _CACHE_BYTES}} | requests)


def _open_file(path: epath.PathLike, rows: int) -> "tensorstore.KvStore":
    """A file of so many rows, for reading and writing: rows by their numbers, four bytes each."""
    import tensorstore

    check_threads()
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    spec = {"driver": "zarr3_sharding_indexed", "base": _location(path), "grid_shape": [rows], "index_codecs": codecs}
    return tensorstore.KvStore.open(spec, context=_context()).result()


def _location(path: epath.PathLike) -> dict[str, Any]:
    """A file as TensorStore names it."""
    if not is_in_bucket(path):
        return {"driver": "file", "path": os.path.abspath(path)}
    scheme, _, rest = str(path).partition("://")
    bucket, _, name = rest.partition("/")
    if scheme in ("gs", "gcs"):
        return {"driver": "gcs", "bucket": bucket, "path": name}
    if scheme != "s3":
        raise InputError(f"{path} is in a store that rows cannot be kept in; choose a folder, or one in gs:// or s3://")
    # TensorStore reads neither from where s3fs and the AWS command line have them.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    # It complains of files that are missing where the environment has the credentials.
    credentials = {"type": "environment"} if "AWS_ACCESS_KEY_ID" in os.environ else None
    options = {"endpoint": endpoint, "aws_region": region or (endpoint and "us-east-1"), "aws_credentials": credentials}
    return {"driver": "s3", "bucket": bucket, "path": name} | {key: value for key, value in options.items() if value}


def _key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _stored(read: Any) -> bytes:
    result = read.result()
    if result.state != "value":
        raise ValueError("a row is missing")
    return result.value


class Rows(RowSequence):
    """One split of a store as a sequence of rows, safe to read from threads. Its files are opened at the first read of
    each."""

    def __init__(self, folder: epath.PathLike, files: Sequence[RowFile], row_format: RowFormat) -> None:
        self._folder, self._files, self._format = epath.Path(folder), files, row_format
        self.spec = row_format.spec
        self._ends = np.cumsum([file.rows for file in files], dtype=np.int64)
        self._lock = threading.Lock()
        self._opened: dict[int, Any] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        indices = np.fromiter(indices, np.int64)
        numbers = np.searchsorted(self._ends, indices, side="right")
        starts = self._ends - [file.rows for file in self._files]
        opened = {number: self._file(number) for number in np.unique(numbers).tolist()}
        # With a bound in the past what is known of a file, which never changes, is not asked for again.
        reads = [
            opened[number].read(_key(position), staleness_bound=0.0)
            for number, position in zip(numbers.tolist(), (indices - starts[numbers]).tolist(), strict=True)
        ]
        try:
            return self._format.decode_many([_stored(read) for read in reads])
        except InputError:
            raise
        except (ValueError, RuntimeError, OSError, struct.error) as error:
            raise self._unreadable(error) from None

    def _file(self, number: int) -> Any:
        with self._lock:
            if self._is_closed:
                raise ValueError(f"the rows of {self._folder} are closed")
            if number not in self._opened:
                file = self._files[number]
                try:
                    self._opened[number] = _open_file(self._folder / file.name, file.rows)
                except InputError:
                    raise
                except (ValueError, RuntimeError, OSError) as error:
                    raise self._unreadable(error) from None
            return self._opened[number]

    def _unreadable(self, error: Exception) -> InputError:
        reason = " ".join(str(error).split())[:300]
        if is_in_bucket(self._folder):
            problem = f"the rows in {self._folder} cannot be read ({reason})"
            return InputError(f"{problem}; see that this host may read there, or prepare them anew")
        return InputError(
            f"the token store {self._folder} is damaged ({reason}); remove that folder, and it is made anew"
        )

    def close(self) -> None:
        """Closes the files; a later read raises ValueError."""
        with self._lock:
            self._is_closed = True
            self._opened.clear()


class RowWriter(contextlib.AbstractContextManager):
    """Writes the rows of a corpus, or of a part of it, into files of about 64 MiB; a context, which completes the last.

    Args:
      folder: where the files go, on a disk or in a bucket.
      row_format: of the rows.
      number: of the part, which the names of the files hold.
    """

    def __init__(self, folder: epath.PathLike, row_format: RowFormat, number: int = 0) -> None:
        self._folder, self._format, self._number = epath.Path(folder), row_format, number
        self._waiting: dict[str, list[bytes]] = {split: [] for split in SPLITS}
        self._waiting_bytes = dict.fromkeys(SPLITS, 0)
        self.files: dict[str, list[RowFile]] = {split: [] for split in SPLITS}
        """The complete files of each split."""

    def add(self, rows: dict[str, list[Row]]) -> None:
        """Appends rows to each split; ValueError for one whose columns are not those of the spec."""
        for split, more in rows.items():
            for row in map(self._format.encode, more):
                size = len(row) - _CHECKSUM.size
                if self._waiting[split] and self._waiting_bytes[split] + size > _FILE_BYTES:
                    self._write(split)
                self._waiting[split].append(row)
                self._waiting_bytes[split] += size

    def __exit__(self, kind: type | None, *error: Any) -> None:
        if kind is None:
            for split in SPLITS:
                if self._waiting[split]:
                    self._write(split)

    def _write(self, split: str) -> None:
        import tensorstore

        rows, self._waiting[split], self._waiting_bytes[split] = self._waiting[split], [], 0
        path = self._folder / f"{split}-{self._number:05d}-{len(self.files[split]):03d}.rows"
        # All rows at once: TensorStore reads nothing of a file that is there already, and replaces it when this one is
        # complete.
        with tensorstore.Transaction() as transaction:
            file = _open_file(path, len(rows)).with_transaction(transaction)
            for number, row in enumerate(rows):
                file[_key(number)] = row
        self.files[split].append(
            RowFile(path.name, len(rows), sum(map(len, rows)) + _INDEX_BYTES * len(rows) + _END_BYTES)
        )


class MixedRows(RowSequence):
    """Rows of several corpora, one after the other, and how often a row of each is drawn, in any unit."""

    def __init__(self, parts: Sequence[Sequence[Row]], rates: Sequence[float]) -> None:
        self._parts, self._rates = parts, rates
        self._starts = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        indices = np.array(list(indices), np.int64)
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        rows: list[Any] = [None] * len(indices)
        for owner in np.unique(owners):
            positions = np.flatnonzero(owners == owner)
            numbers = (indices[positions] - self._starts[owner]).tolist()
            for position, row in zip(positions, read_rows(self._parts[owner], numbers), strict=True):
                rows[position] = row
        return rows

    def order(self, seed: int, *, shuffle: bool) -> "grain.MapDataset":
        """The numbers of the rows as they are drawn, without end.

        Corpora take turns at their rates, to within a hundredth of them; the position in each follows from the position
        in the whole. Every pass through a corpus is another permutation of its rows.
        """
        import grain

        turns = []
        for number, (start, end) in enumerate(zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True)):
            rows = grain.MapDataset.range(start, end)
            if shuffle:
                rows = rows.shuffle(seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
            turns.append(rows.repeat())
        return grain.MapDataset.mix(turns, list(self._rates))


class RowsInTurns(MixedRows):
    """The same rows, the first of each corpus first, then the second, and so on, so far as a corpus has them."""

    def __init__(self, parts: Sequence[Sequence[Row]]) -> None:
        super().__init__(parts, [1.0] * len(parts))
        self._in_turns = np.argsort(np.concatenate([np.arange(len(part)) for part in parts]), kind="stable")

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        return super().__getitems__(self._in_turns[list(indices)])
