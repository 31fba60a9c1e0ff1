"""Pictures with texts: tables, folders with a text beside each picture, and records of other sources."""

import abc
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from t5x_lite.data.records.base import EmptyCorpusError, Record, Records, Source, digest, field_of, hash_fields
from t5x_lite.data.records.columnar import ParquetFiles
from t5x_lite.data.records.image_records import ImageTable, LabeledImages
from t5x_lite.data.records.images import Broken, ImageFiles, ImageFolder, read_picture
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_name
from t5x_lite.images.decoding import BadImageError

FieldNames = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]


class CaptionedImage(NamedTuple):
    """A picture of a corpus, and its texts, one or more."""

    location: str
    """As messages show it."""
    image: bytes | np.ndarray | BadImageError
    """The content of a file, or why there is none."""
    captions: tuple[str, ...]
    label: int = -1
    """There are no classes."""


@dataclass(frozen=True)
class CaptionSource(Source):
    """Base of corpora of pictures with texts. As running text they are the texts."""

    @abc.abstractmethod
    def read_captioned(self) -> Iterator[CaptionedImage]:
        """Picture after picture, unreadable ones too."""

    def documents(self) -> Iterator[str]:
        return (text for example in self.read_captioned() for text in example.captions)

    def location(self, number: int) -> str:
        return next(itertools.islice(self.read_captioned(), number - 1, None)).location


@dataclass(frozen=True)
class CaptionFiles(CaptionSource):
    """Files of pictures by their names, and their texts: what folders and tables are read as."""

    files: ImageFiles
    captions: tuple[tuple[str, ...], ...] = ()
    """Of each file; empty: they are in the text files beside them."""
    broken: Broken = "refuse"

    fingerprint = hash_fields

    def documents(self) -> Iterator[str]:
        """The texts, without reading a picture."""
        return itertools.chain.from_iterable(self.captions or map(self._captions_beside, self.files.names))

    def read_captioned(self) -> Iterator[CaptionedImage]:
        texts = self.captions or map(self._captions_beside, self.files.names)
        for image, captions in zip(self.files.read_images(), texts, strict=True):
            yield CaptionedImage(image.location, image.image, captions)

    def parts(self, sizes: Sequence[int] = ()) -> list[Source]:
        """Its files in the groups of `ImageFiles.parts`."""
        parts, start = [], 0
        for files in self.files.parts(sizes):
            captions = self.captions[start : start + len(files.names)]
            parts.append(replace(self, files=files, captions=captions))
            start += len(files.names)
        return parts

    def _captions_beside(self, name: str) -> tuple[str, ...]:
        path = f"{self.files.root.rstrip('/')}/{os.path.splitext(name)[0]}.txt"
        content = read_picture(path)
        if isinstance(content, BadImageError):
            raise InputError(f"{path} is {content.detail}; write the texts of the picture beside it there, one a line")
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not UTF-8; save it as such") from None
        captions = tuple(line.strip() for line in lines if line.strip())
        if not captions:
            raise InputError(f"{path} is empty; write the texts of the picture beside it there, one a line")
        return captions


@dataclass(frozen=True)
class CaptionFolder(CaptionSource):
    """A folder of pictures, and folders in it, on a disk or in a bucket; beside each picture a file of the same name
    that ends in .txt, with a text a line."""

    path: str
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a folder of pictures")

    def fingerprint(self) -> str:
        """Hash of the names, the sizes and the times of the pictures, and of the texts."""
        return digest("CaptionFolder", ImageFolder(self.path).fingerprint(), list(self.documents()))

    def documents(self) -> Iterator[str]:
        return self._files()[0].documents()

    def read_captioned(self) -> Iterator[CaptionedImage]:
        return self._files()[0].read_captioned()

    def shards(self) -> list[Source]:
        files, sizes = self._files()
        return files.parts(sizes)

    def _files(self) -> tuple[CaptionFiles, list[int]]:
        files, sizes = ImageFolder(self.path).all_files()
        return CaptionFiles(replace(files, broken=self.broken), (), self.broken), sizes


@dataclass(frozen=True)
class CaptionedImages(CaptionSource):
    """The pictures and texts in records of another source: `Tfds`, `HuggingFaceDataset`, `ParquetFiles` and others.

    A picture is the bytes of a file, or as Hugging Face's datasets have them: {"bytes": ..., "path": ...}. A field of
    texts holds one, or a list of them.
    """

    examples: Records
    image: str = "image"
    """The field of the picture."""
    captions: FieldNames = ("caption",)
    """The fields of its texts."""
    split: tuple[str, str] | None = None
    """A field and the value in it of the records that are read; None: all."""
    root: str = ""
    """The folder or URL that paths of pictures start from; empty: there are none."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields_of_texts(self.captions)

    def shards(self) -> list[Source]:
        return [replace(self, examples=shard) for shard in self.examples.shards()]

    def documents(self) -> Iterator[str]:
        return (text for record in self._selected() for text in captions_in(record, self.captions))

    def read_captioned(self) -> Iterator[CaptionedImage]:
        images = LabeledImages(self.examples, self.image, "", (), self.root, self.broken)
        is_empty = True
        for record in self._selected():
            is_empty = False
            image = images.image_in(field_of(record, self.image, "image"), record)
            yield CaptionedImage(record.location, image, captions_in(record, self.captions))
        if is_empty:
            raise EmptyCorpusError(f"{self.examples} holds no pictures{_of(self.split)}; give some")

    def _selected(self) -> Iterator[Record]:
        return (record for record in self.examples if is_of(self.split, record))


@dataclass(frozen=True)
class CaptionTable(CaptionSource):
    """A table of pictures and their texts: CSV, TSV, JSON lines, Parquet or Arrow.

    A picture is a path, seen from the table, or in Parquet and Arrow the bytes of a file. Rows of the same path are one
    picture with the texts of all.
    """

    path: str
    """A file; in Parquet and Arrow also a folder or a glob of several."""
    image: str = "image"
    """The column of the picture."""
    captions: FieldNames = ("caption",)
    """The columns of its texts; in JSON, Parquet and Arrow a column may hold a list of them."""
    split: tuple[str, str] | None = None
    """A column and the value in it of the rows that are read; None: all."""
    root: str = ""
    """The folder or URL that paths start from; empty: that of the table."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a table of captions")
        check_fields_of_texts(self.captions)

    def fingerprint(self) -> str:
        """Hash of the options and the table, and of the pictures that it names by path their sizes and times."""
        return digest("CaptionTable", self._table.fingerprint(), self.captions, self.split, self.root)

    def documents(self) -> Iterator[str]:
        return itertools.chain.from_iterable(shard.documents() for shard in self.shards())

    def read_captioned(self) -> Iterator[CaptionedImage]:
        return itertools.chain.from_iterable(shard.read_captioned() for shard in self.shards())

    def shards(self) -> list[Source]:
        records = self._table.records()
        root = self.root or self._table.folder(records)
        if isinstance(records, ParquetFiles):
            fields = (self.image, self.captions, self.split, root, self.broken)
            return [CaptionedImages(shard, *fields) for shard in records.shards()]
        captions: dict[str, tuple[str, ...]] = {}
        lines: dict[str, int] = {}
        for record in records:
            if not is_of(self.split, record):
                continue
            name = self._table.name_of(record)
            lines.setdefault(name, int(record.location.rpartition(":")[2]))
            captions[name] = (*captions.get(name, ()), *captions_in(record, self.captions))
        if not captions:
            raise EmptyCorpusError(f"path={self.path!r} names no pictures{_of(self.split)}; give some")
        table = str(records.files()[0])
        files = ImageFiles(root, tuple(captions), (), (), table, tuple(lines.values()), self.broken)
        return CaptionFiles(files, tuple(captions.values()), self.broken).parts()

    @property
    def _table(self) -> ImageTable:
        return ImageTable(self.path, self.image, "", (), self.broken)


def captions_in(record: Record, names: Sequence[str]) -> tuple[str, ...]:
    """The texts in some fields of a record, stripped; `InputError` where there are none, or other values."""
    captions: list[str] = []
    for name in names:
        value = field_of(record, name, "captions")
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str | None) for text in texts):
            raise InputError(
                f"captions={name!r} is {str(value)[:60]!r} in {record.location}; set captions to fields of texts"
            )
        captions += [text.strip() for text in texts if text and text.strip()]
    if not captions:
        raise InputError(f"{record.location} has no text in {', '.join(names)}; write one, or remove the record")
    return tuple(captions)


def is_of(split: tuple[str, str] | None, record: Record) -> bool:
    """Whether a record is of a split, given as a field and its value; all are of None."""
    return split is None or str(field_of(record, split[0], "split")) == split[1]


def _of(split: tuple[str, str] | None) -> str:
    return f" with {split[0]}={split[1]!r}" if split else ""


def check_fields_of_texts(names: Sequence[str]) -> None:
    """Raises `InputError` where no field is named, or one twice."""
    if not names or len(set(names)) < len(names):
        raise InputError(f"captions={tuple(names)} names no field or one twice; name each field of texts once")
