"""Rows on disk: a TFDS dataset of ArrayRecord shards, written in order, read at random."""

import abc
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_lite.data.layouts.base import Column, Row, RowSpec, decode_image
from t5x_lite.data.records.tfds import import_tfds

SPLITS = ("train", "held_out")
_SHARD_BYTES = 256 << 20


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
    """Many rows of any sequence, at once where it can."""
    many = getattr(rows, "__getitems__", None)
    return many(indices) if many else [rows[index] for index in indices]


class Rows(RowSequence):
    """One split as a sequence of rows, each a mapping from the spec's columns to arrays; opened at the first read, safe
    to read from threads."""

    def __init__(self, folder: Path, split: str, length: int, spec: RowSpec) -> None:
        self._folder, self._split, self._length, self.spec = folder, split, length, spec

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: Iterable[int]) -> list[Row]:
        records = self._records.__getitems__([int(index) for index in indices])
        return [{name: _decoded(record[name], column) for name, column in self.spec.items()} for record in records]

    @functools.cached_property
    def _records(self) -> Any:
        return import_tfds().builder_from_directory(str(self._folder)).as_data_source(self._split)


class RowWriter:
    """Writes rows of the splits, to be used as a context.

    TFDS's `GeneratorBasedBuilder` would gather a gigabyte of rows in memory and then spill them through TensorFlow's
    file system; its `SequentialWriter` streams to the shards and needs no TensorFlow.

    Args:
      folder: where the shards are written.
      spec: the columns of a row.
      num_ids: ids there are; up to 65,536 are stored in 16 bits.
    """

    def __init__(self, folder: Path, spec: RowSpec, num_ids: int) -> None:
        tfds = import_tfds()
        self._spec = spec
        self._dtypes = {
            name: np.dtype(np.uint16 if column.is_ids and num_ids <= 1 << 16 else column.dtype)
            for name, column in spec.items()
        }
        identity = tfds.core.DatasetIdentity(
            name="rows", version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name=""
        )
        features = tfds.features.FeaturesDict({name: self._feature(name) for name in spec})
        info = tfds.core.DatasetInfo(builder=identity, features=features, disable_shuffling=True)
        row_bytes = sum(column.size * self._dtypes[name].itemsize for name, column in spec.items())
        per_shard = max(1, _SHARD_BYTES // row_bytes)
        self._writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard, file_format="array_record")
        self._writer.initialize_splits(list(SPLITS))

    def _feature(self, name: str) -> Any:
        features, column = import_tfds().features, self._spec[name]
        if column.encoding == "image":
            return features.Tensor(shape=(), dtype=np.object_)
        return features.Tensor(shape=column.shape, dtype=self._dtypes[name], encoding=features.Encoding.BYTES)

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._writer.close_all()

    def add(self, rows: dict[str, list[Row]]) -> None:
        """Appends rows to each split; ValueError for one whose columns are not those of the spec."""
        self._writer.add_examples({name: list(map(self._encoded, part)) for name, part in rows.items()})

    def _encoded(self, row: Row) -> dict[str, Any]:
        if row.keys() != self._spec.keys():
            raise ValueError(f"a row has columns {sorted(row)}, the layout's spec {sorted(self._spec)}")
        return {name: _encoded(name, row[name], column, self._dtypes[name]) for name, column in self._spec.items()}


def stack(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Rows as a batch: each column with a leading dimension."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _encoded(name: str, value: Any, column: Column, dtype: np.dtype) -> Any:
    if column.encoding == "image":
        if not isinstance(value, bytes):
            raise ValueError(f"column {name!r} holds a {type(value).__name__}, not the bytes of an image file")
        return value
    value = np.asarray(value, dtype)
    if value.shape != tuple(column.shape):
        raise ValueError(f"column {name!r} has shape {value.shape} in a row, {tuple(column.shape)} in the spec")
    return value


def _decoded(value: Any, column: Column) -> np.ndarray:
    if column.encoding == "image":
        return decode_image(value, column)
    return np.asarray(value).astype(column.dtype, copy=False)
