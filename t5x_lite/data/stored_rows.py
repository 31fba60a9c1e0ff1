"""Sequences of rows: on disk as a TFDS dataset of ArrayRecord shards, or those of several corpora together."""

import abc
import contextlib
import functools
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_lite.data.layouts.base import Row, RowSpec, decode_image
from t5x_lite.data.records.tfds import import_tfds
from t5x_lite.errors import InputError

if TYPE_CHECKING:
    import grain

SPLITS = ("train", "held_out")
_SHARD_BYTES = 256 << 20
_READ_BYTES = 1 << 15  # in one read of a file
_POOL_THREADS = 65  # of ArrayRecord, 64 that read and one more, which nothing changes


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


@functools.cache
def _check_threads() -> None:
    """Raises `InputError` where the system refuses the threads of ArrayRecord's pool, or of TFDS before it.

    The pool is made with the first reader. When a thread is refused then, those before it read memory that is freed
    already, which ends the process, or are waited for without end.
    """
    ended, started, before = threading.Event(), [], _num_threads()
    try:
        for _ in range(_POOL_THREADS):
            thread = threading.Thread(target=ended.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise InputError(
            f"the system starts {len(started)} threads more and reading rows takes {_POOL_THREADS}; raise the limit of "
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


class Rows(RowSequence):
    """One split of a store as a sequence of rows, safe to read from threads. Its files are opened at the first read of
    each, and closed by `close`, which no thread may be reading at."""

    def __init__(self, folder: Path, split: str, length: int, spec: RowSpec) -> None:
        self._folder, self._split, self._length, self.spec = folder, split, length, spec
        self._lock = threading.Lock()
        self._readers: dict[int, Any] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        indices = np.fromiter(indices, np.int64)
        # All shards but the last are full.
        numbers, positions = np.divmod(indices, self._info.splits[self._split].file_instructions[0].take)
        encoded: list[bytes] = [b""] * len(indices)
        try:
            for number in np.unique(numbers):
                here = np.flatnonzero(numbers == number)
                records = self._reader(int(number)).read(positions[here].tolist())
                for position, record in zip(here, records, strict=True):
                    encoded[position] = record
        except (RuntimeError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"the token store {self._folder} is damaged ({reason}); remove that folder, and it is made anew"
            ) from None
        return [
            {
                name: decode_image(record[name], column)
                if column.encoding == "image"
                else np.asarray(record[name]).astype(column.dtype, copy=False)
                for name, column in self.spec.items()
            }
            for record in map(self._info.features.deserialize_example_np, encoded)
        ]

    def close(self) -> None:
        """Closes the files; a later read raises ValueError."""
        with self._lock:
            self._is_closed = True
            while self._readers:
                with contextlib.suppress(RuntimeError):  # what a read has raised already
                    self._readers.popitem()[1].close()

    @functools.cached_property
    def _info(self) -> Any:
        _check_threads()
        return import_tfds().builder_from_directory(str(self._folder)).info

    def _reader(self, number: int) -> Any:
        """That of a shard. TFDS's data source would leave it to be closed by the garbage collector, and starts a thread
        for every read."""
        from array_record.python.array_record_module import ArrayRecordReader

        with self._lock:
            if self._is_closed:
                raise ValueError(f"the rows of {self._folder} are closed")
            if number not in self._readers:
                path = self._info.splits[self._split].file_instructions[number].filename
                # Without reading ahead, as random access does not want it.
                reader = ArrayRecordReader(path, "readahead_buffer_size:0", file_reader_buffer_size=_READ_BYTES)
                self._readers[number] = reader
            return self._readers[number]


class RowWriter(contextlib.AbstractContextManager):
    """Writes rows of the splits into `folder`, to be used as a context; up to 65,536 `num_ids` are stored in 16 bits.

    TFDS's `GeneratorBasedBuilder` would gather a gigabyte of rows in memory and then spill them through TensorFlow's
    file system; its `SequentialWriter` streams to the shards and needs no TensorFlow.
    """

    def __init__(self, folder: Path, spec: RowSpec, num_ids: int) -> None:
        tfds = import_tfds()
        self._spec = spec
        self._dtypes = {
            name: np.dtype(np.uint16 if column.is_ids and num_ids <= 1 << 16 else column.dtype)
            for name, column in spec.items()
        }
        features = {
            name: tfds.features.Tensor(shape=(), dtype=np.object_)
            if column.encoding == "image"
            else tfds.features.Tensor(
                shape=column.shape, dtype=self._dtypes[name], encoding=tfds.features.Encoding.BYTES
            )
            for name, column in spec.items()
        }
        identity = tfds.core.DatasetIdentity(
            name="rows", version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name=""
        )
        info = tfds.core.DatasetInfo(
            builder=identity, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )
        row_bytes = sum(column.size * self._dtypes[name].itemsize for name, column in spec.items())
        per_shard = max(1, _SHARD_BYTES // row_bytes)
        self._writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard, file_format="array_record")
        self._writer.initialize_splits(list(SPLITS))

    def __exit__(self, kind: type | None, *error: Any) -> None:
        """Closes the files of every split, whatever happens to those of another; an error before goes first."""
        with contextlib.ExitStack() as stack:
            if kind is not None:
                stack.enter_context(contextlib.suppress(Exception))
            for split in SPLITS:
                stack.callback(self._writer.close_splits, [split])

    def add(self, rows: dict[str, list[Row]]) -> None:
        """Appends rows to each split; ValueError for one whose columns are not those of the spec."""
        self._writer.add_examples({name: list(map(self._encoded, part)) for name, part in rows.items()})

    def _encoded(self, row: Row) -> dict[str, Any]:
        if row.keys() != self._spec.keys():
            raise ValueError(f"a row has columns {sorted(row)}, the layout's spec {sorted(self._spec)}")
        encoded = {}
        for name, column in self._spec.items():
            value = row[name]
            if column.encoding == "image":
                if not isinstance(value, bytes):
                    raise ValueError(f"column {name!r} holds a {type(value).__name__}, not the bytes of an image file")
            elif (value := np.asarray(value, self._dtypes[name])).shape != tuple(column.shape):
                raise ValueError(f"column {name!r} has shape {value.shape} in a row, {column.shape} in the spec")
            encoded[name] = value
        return encoded


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
