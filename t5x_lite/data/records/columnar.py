"""Tables in Parquet and Arrow, and datasets of the Hugging Face hub."""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from t5x_lite.data.records.base import Record, Records, Source, digest
from t5x_lite.data.records.input_files import FileRecords, InputFile, open_bytes
from t5x_lite.errors import InputError
from t5x_lite.validation import NonNegative, Positive

if TYPE_CHECKING:
    import pyarrow

COLUMNAR_ENDINGS = (".parquet", ".arrow", ".feather")
_ROWS = 1024


def columnar_records(path: InputFile, columns: list[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, fields) of each row of a table, as plain Python values; `columns` are all or those to read."""
    import pyarrow

    try:
        with open_bytes(path, decompress=False) as file:
            number = 0
            for batch in _batches(path, file, columns):
                for number, fields in enumerate(batch.to_pylist(), start=number + 1):  # noqa: B020 (counts on)
                    yield number, fields
    except (pyarrow.ArrowException, OSError) as error:  # OSError where a file ends too early
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is broken as {path.name.rpartition('.')[2]} ({reason}); copy it again") from None


def class_names_in(path: InputFile, column: str) -> tuple[str, ...]:
    """The names of the classes in a column of a Parquet file, as the package `datasets` writes them; else none."""
    import pyarrow
    from pyarrow import parquet

    if not path.name.lower().endswith(".parquet"):
        return ()
    try:
        with open_bytes(path, decompress=False) as file:
            written = (parquet.read_schema(file).metadata or {}).get(b"huggingface", b"{}")
        feature = json.loads(written)["info"]["features"][column]
        return tuple(map(str, feature["names"])) if feature["_type"] == "ClassLabel" else ()
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        return ()


def _batches(path: InputFile, file: Any, columns: list[str] | None) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow
    from pyarrow import ipc, parquet

    if path.name.lower().endswith(".parquet"):
        table = parquet.ParquetFile(file)
        # Without the column, for which the error names those that there are.
        known = columns if columns and set(columns) <= set(table.schema_arrow.names) else None
        yield from table.iter_batches(_ROWS, columns=known, use_threads=False)
        return
    try:
        table = ipc.open_file(file)
        yield from (table.get_batch(number) for number in range(table.num_record_batches))
    except pyarrow.ArrowInvalid:  # what `datasets` writes
        file.seek(0)
        yield from ipc.open_stream(file)


@dataclass(frozen=True)
class ParquetFiles(FileRecords):
    """Files, globs and folders of Parquet, `.parquet`, and Arrow, `.arrow` and `.feather`; a row is a record."""

    paths: tuple[str, ...]
    field: str = dataclasses.field(default="text", kw_only=True)
    """The column of running text."""

    endings = COLUMNAR_ENDINGS

    def records_in(self, path: InputFile) -> Iterator[tuple[int, dict[str, Any]]]:
        return columnar_records(path)


@dataclass(frozen=True)
class HuggingFaceDataset(Records):
    """A split of a dataset of the Hugging Face hub, or of a folder that is laid out like one, read as it streams.

    Needs the package `datasets`. Fields are its features as plain Python values, classes by their names (None where a
    test set hides them); images and sounds stay encoded. 'a/b' is b of the feature a.
    """

    name: str
    """Such as 'allenai/c4', or a folder."""
    config: str = ""
    """Which of its configurations, such as 'en'."""
    split: str = "train"
    revision: str = ""
    """A commit or branch of the dataset's repository; empty for the newest."""
    part: NonNegative = 0
    """The part to read, from 0."""
    parts: Positive = 1
    """The dataset's files are divided into so many parts."""
    field: str = dataclasses.field(default="text", kw_only=True)
    """The feature with the running text."""

    def __iter__(self) -> Iterator[Record]:
        import datasets

        rows = self._stream()
        classes = {name: of for name, of in (rows.features or {}).items() if isinstance(of, datasets.ClassLabel)}
        location = f"of split={self.split!r} of name={self.name!r}"
        location += f", part {self.part} of {self.parts}" if self.parts > 1 else ""
        iterator = iter(rows.decode(False) if rows.features else rows)
        for number in itertools.count():
            with self._readable(datasets):
                fields = next(iterator, None)
            if fields is None:
                return
            for name, labels in classes.items():
                value = fields[name]
                fields[name] = None if value is None or value < 0 else labels.int2str(value)
            yield Record(f"example {number} {location}", fields)

    def shards(self) -> list[Source]:
        if self.parts > 1 or (count := self._stream().num_shards) == 1:
            return [self]
        return [dataclasses.replace(self, part=part, parts=count) for part in range(count)]

    def label_names(self, field: str) -> tuple[str, ...]:
        """The names of the classes of a feature by number; none where it has no classes."""
        return tuple(getattr((self._stream().features or {}).get(field), "names", None) or ())

    def fingerprint(self) -> str:
        import datasets

        options = {"revision": self.revision} if self.revision else {}
        with self._readable(datasets):
            builder = datasets.load_dataset_builder(self.name, self.config or None, **options)
        files = (builder.config.data_files or {}).get(self.split)
        # The commit of a repository, or the times of files.
        version = files.origin_metadata if files is not None else builder.hash
        return digest(type(self).__name__, dataclasses.astuple(self), version)

    def _stream(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise InputError(
                f"name={self.name!r} needs the package datasets; run 'pip install datasets', or name its files in "
                f"TextFiles(('hf://datasets/{self.name}/...',))"
            ) from None
        options = {"revision": self.revision} if self.revision else {}
        with self._readable(datasets):
            rows = datasets.load_dataset(self.name, self.config or None, split=self.split, streaming=True, **options)
            return rows.shard(num_shards=self.parts, index=self.part) if self.parts > 1 else rows

    @contextlib.contextmanager
    def _readable(self, datasets: Any) -> Iterator[None]:
        datasets.disable_progress_bars()
        try:
            yield
        except Exception as error:  # a hub, its files and their formats have many ways to fail
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise InputError(
                f"name={self.name!r} (config={self.config!r}, split={self.split!r}) cannot be read ({reason}); correct "
                "the name, or see that this host reaches the hub"
            ) from None
