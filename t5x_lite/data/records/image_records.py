"""Pictures in records of other sources, in tables, and a few of another source's."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.data.records.base import (
    EmptyCorpusError,
    Record,
    Records,
    Source,
    check_labels,
    digest,
    field_of,
    hash_fields,
    map_records,
)
from t5x_lite.data.records.columnar import COLUMNAR_ENDINGS, ParquetFiles, class_names_in, columnar_records
from t5x_lite.data.records.formats import TABLE_ENDINGS, JsonlFiles, TableFiles
from t5x_lite.data.records.images import (
    Broken,
    ClassNames,
    ImageFiles,
    ImageSource,
    LabeledImage,
    class_number,
    read_picture,
    several_classes,
    sort_labels,
)
from t5x_lite.data.records.input_files import JSON_ENDINGS, FileRecords, expand
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_name, is_in_bucket
from t5x_lite.images.decoding import BadImageError
from t5x_lite.validation import NonNegative, Positive


@dataclass(frozen=True)
class LabeledImages(ImageSource):
    """The pictures in records of another source: `Tfds`, `HuggingFaceDataset`, `ParquetFiles` and others.

    A picture is the bytes of a file, or as Hugging Face's datasets have them: {"bytes": ..., "path": ...}.
    """

    examples: Records
    image: str = "image"
    """The field of the picture."""
    label: str = "label"
    """The field of the class, by name or number; empty where there are no labels."""
    class_names: ClassNames = ()
    """By number; empty: as the dataset has them."""
    root: str = ""
    """The folder or URL that paths of pictures start from; empty: there are none."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.class_names, option="class_names")

    @property
    def has_answers(self) -> bool:
        return bool(self.label)

    def fingerprint(self) -> str:
        return digest("LabeledImages", self.examples.fingerprint(), self.image, self.label, self.class_names)

    def read_classes(self) -> tuple[str, ...]:
        if not self.label:
            raise InputError("label='' names no field of labels, which are to be learnt; name it")
        known = self.class_names or getattr(self.examples, "label_names", lambda field: ())(self.label)
        if not known:
            raise InputError("class_names=() names no classes, which the data do not name either; name them by number")
        return several_classes(known, f"{type(self.examples).__name__}(...)")

    def shards(self) -> list[Source]:
        names = self.read_classes() if self.label else ()
        shards = self.examples.shards()
        fields = (self.image, self.label, names, self.root, self.broken)
        return [LabeledImages(shard, *fields) for shard in shards] if len(shards) > 1 else [self]

    def read_images(self) -> Iterator[LabeledImage]:
        names, is_empty = self.read_classes() if self.label else (), True

        def convert(record: Record) -> list[LabeledImage]:
            image = self.image_in(field_of(record, self.image, "image"), record)
            number = class_number(field_of(record, self.label, "label"), names, self.label) if self.label else -1
            return [LabeledImage(record.location, image, number)]

        for _, images in map_records(self.examples, convert):
            is_empty = False
            yield from images
        if is_empty:
            raise EmptyCorpusError(f"{self.examples} holds no pictures; give some")

    def image_in(self, value: Any, record: Record) -> bytes | BadImageError:
        """The picture that a field holds, or why it cannot be read. `InputError` for a value that is none."""
        if isinstance(value, dict) and {"bytes", "path"} & value.keys():
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return value
        if isinstance(value, str) and value.strip() and self.root:
            is_whole = is_in_bucket(value) or os.path.isabs(value)
            return read_picture(value if is_whole else f"{self.root.rstrip('/')}/{value}")
        if value is None or value == "":
            return BadImageError("missing", "missing from its record", "remove the record")
        raise InputError(
            f"image={self.image!r} is {str(value)[:60]!r} in {record.location}; set image to a field of encoded "
            f"pictures{'' if self.root else ', or root to the folder that paths start from'}"
        )


@dataclass(frozen=True)
class ImageTable(ImageSource):
    """A table of pictures and their labels: CSV, TSV, JSON lines, Parquet or Arrow.

    A picture is a path, seen from the table, or in Parquet and Arrow the bytes of a file, as Hugging Face's datasets
    have them: {"bytes": ..., "path": ...}.
    """

    path: str
    """A file; in Parquet and Arrow also a folder or a glob of several."""
    image: str = "image"
    """The column of the picture."""
    label: str = "label"
    """The column of the class, by name or number; empty where there are no labels."""
    class_names: ClassNames = ()
    """By number; empty: as Hugging Face's Parquet files name them, or else the labels that there are, sorted."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a table of pictures")
        check_labels(self.class_names, option="class_names")

    @property
    def has_answers(self) -> bool:
        return bool(self.label)

    def fingerprint(self) -> str:
        """Hash of the options and the table, and of the pictures that it names by path their sizes and times."""
        records = self.records()
        versions = []
        if not isinstance(records, ParquetFiles):
            for record in records:
                path = self._path_of(record)
                try:
                    status = None if is_in_bucket(path) else os.stat(path)
                except (OSError, ValueError):  # named when it is read
                    status = None
                versions.append((status.st_size, int(status.st_mtime)) if status else ())
        return digest("ImageTable", records.fingerprint(), self.image, self.label, self.class_names, versions)

    def read_classes(self) -> tuple[str, ...]:
        if not self.label:
            raise InputError("label='' names no column of labels, which are to be learnt; name it")
        return several_classes(self._classes(self.records()), f"label={self.label!r} of path={self.path!r}")

    def read_images(self) -> Iterator[LabeledImage]:
        for shard in self.shards():
            yield from shard.read_images()

    def shards(self) -> list[Source]:
        records = self.records()
        names = self._classes(records) if self.label else ()
        if isinstance(records, ParquetFiles):
            fields = (self.image, self.label, names, self.folder(records), self.broken)
            return [LabeledImages(shard, *fields) for shard in records.shards()]
        table, root = str(records.files()[0]), self.folder(records)

        def convert(record: Record) -> list[tuple[str, int, int]]:
            number = class_number(field_of(record, self.label, "label"), names, self.label) if self.label else -1
            return [(self.name_of(record), int(record.location.rpartition(":")[2]), number)]

        entries = [entry for _, (entry,) in map_records(records, convert)]
        if not entries:
            raise EmptyCorpusError(f"path={self.path!r} names no pictures; give some")
        files, lines, numbers = zip(*entries, strict=True)
        whole = ImageFiles(root, files, numbers if self.label else (), names, table, lines, self.broken)
        return whole.parts()

    def records(self) -> FileRecords:
        """The table as records."""
        readers = ((TABLE_ENDINGS, TableFiles), (JSON_ENDINGS, JsonlFiles), (COLUMNAR_ENDINGS, ParquetFiles))
        files = expand(self.path, tuple(ending for endings, _ in readers for ending in endings), "path")
        types = {reader for file in files for endings, reader in readers if file.name.lower().endswith(endings)}
        if len(types) != 1 or (len(files) > 1 and types != {ParquetFiles}):
            raise InputError(
                f"path={self.path!r} is not a table of pictures; name one .csv, .tsv or .jsonl, or files of .parquet"
            )
        return types.pop()(tuple(map(str, files)))

    def folder(self, records: FileRecords) -> str:
        """That of the table."""
        return str(records.files()[0]).rpartition("/")[0] or "."

    def name_of(self, record: Record) -> str:
        """The path of a record's picture, as it stands there."""
        value = field_of(record, self.image, "image")
        if isinstance(value, dict):
            value = value.get("path")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"image={self.image!r} is {value!r} in {record.location}; write the path of a picture")
        return value.strip()

    def _path_of(self, record: Record) -> str:
        name = self.name_of(record)
        whole = is_in_bucket(name) or os.path.isabs(name)
        return name if whole else f"{record.location.rpartition('/')[0]}/{name}"

    def _classes(self, records: FileRecords) -> tuple[str, ...]:
        """The names of the classes by number."""
        if self.class_names:
            return self.class_names
        if isinstance(records, ParquetFiles):
            files = records.files()
            if names := class_names_in(files[0], self.label):
                return names
            column = [self.label.partition("/")[0]]
            records = (Record(f"{file}:{n}", row) for file in files for n, row in columnar_records(file, column))
        labels = []
        for record in records:
            label = field_of(record, self.label, "label")
            if label is None or not str(label).strip():
                raise InputError(f"label={self.label!r} is empty in {record.location}; fill it or remove the record")
            labels.append(str(label).strip())
        return sort_labels(labels)


@dataclass(frozen=True)
class ImageSubset(ImageSource):
    """As many pictures of each class of another source, drawn by a seed: for learning from few labels.

    With the same seed the pictures of a smaller `per_class` are among those of a larger one.
    """

    images: ImageSource
    per_class: Positive
    seed: NonNegative = 0

    fingerprint = hash_fields

    @property
    def has_answers(self) -> bool:
        return self.images.has_answers

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.images.classes

    @property
    def broken(self) -> Broken:
        """What becomes of pictures that cannot be read, as the other source has it."""
        return getattr(self.images, "broken", "refuse")

    def read_classes(self) -> tuple[str, ...]:
        return self.images.read_classes()

    def read_images(self) -> Iterator[LabeledImage]:
        """The pictures drawn, in the order of the other source; `InputError` where a class has too few."""
        names, shards = self.read_classes(), self.images.shards()
        labels = [np.asarray(shard.class_numbers(), np.int64) for shard in shards]
        every = np.concatenate(labels)
        is_drawn = np.zeros(len(every), bool)
        for number, name in enumerate(names):
            of_class = np.flatnonzero(every == number)
            if len(of_class) < self.per_class:
                raise InputError(
                    f"per_class={self.per_class} is more than the {len(of_class)} pictures of class {name!r}; "
                    f"{f'choose {len(of_class)} or less' if len(of_class) else 'add some, or leave it out'}"
                )
            is_drawn[np.random.default_rng((self.seed, number)).permutation(of_class)[: self.per_class]] = True
        starts = np.cumsum([len(one) for one in labels])[:-1]
        for shard, drawn in zip(shards, np.split(is_drawn, starts), strict=True):
            if drawn.any():
                yield from shard.take(np.flatnonzero(drawn).tolist())
