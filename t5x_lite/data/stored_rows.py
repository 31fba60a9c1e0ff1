"""Rows of ids on disk: a TFDS dataset of ArrayRecord shards, written in order, read at random."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_lite.data.records.tfds import import_tfds

SPLITS = ("train", "held_out")
_SHARD_BYTES = 256 << 20


class Rows(Sequence[np.ndarray]):
    """One split as a sequence of int32 arrays [row_length]; opened at the first read, safe to read from threads."""

    def __init__(self, folder: Path, split: str, length: int) -> None:
        self._folder, self._split, self._length = folder, split, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        return self._records[int(index) % self._length]["ids"].astype(np.int32)

    def __getitems__(self, indices: Iterable[int]) -> list[np.ndarray]:
        """Many rows in one read, which is faster than one by one."""
        indices = [int(index) for index in indices]
        return [row["ids"].astype(np.int32) for row in self._records.__getitems__(indices)]

    @functools.cached_property
    def _records(self) -> Any:
        return import_tfds().builder_from_directory(str(self._folder)).as_data_source(self._split)


class RowWriter:
    """Writes rows of the splits, to be used as a context.

    TFDS's `GeneratorBasedBuilder` would gather a gigabyte of rows in memory and then spill them through TensorFlow's
    file system; its `SequentialWriter` streams to the shards and needs no TensorFlow.
    """

    def __init__(self, folder: Path, row_length: int, dtype: type[np.generic]) -> None:
        tfds = import_tfds()
        encoding = tfds.features.Encoding.BYTES
        ids = tfds.features.Tensor(shape=(row_length,), dtype=dtype, encoding=encoding)
        identity = tfds.core.DatasetIdentity(
            name="rows", version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name=""
        )
        info = tfds.core.DatasetInfo(
            builder=identity, features=tfds.features.FeaturesDict({"ids": ids}), disable_shuffling=True
        )
        per_shard = max(1, _SHARD_BYTES // (row_length * np.dtype(dtype).itemsize))
        self._dtype = dtype
        self._writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard, file_format="array_record")
        self._writer.initialize_splits(list(SPLITS))

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._writer.close_all()

    def add(self, rows: dict[str, np.ndarray]) -> None:
        """Append rows [n, row_length] to each split."""
        self._writer.add_examples({name: [{"ids": r} for r in part.astype(self._dtype)] for name, part in rows.items()})
