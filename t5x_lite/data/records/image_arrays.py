"""Pictures in arrays: NumPy's files, and the digits that scikit-learn has."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from t5x_lite.data.records.base import (
    EmptyCorpusError,
    Record,
    UnknownLabelError,
    check_labels,
    digest,
    map_records,
)
from t5x_lite.data.records.images import (
    ClassNames,
    ImageSource,
    LabeledImage,
    class_number,
    one_file,
    several_classes,
    sort_labels,
)
from t5x_lite.data.records.input_files import InputFile, open_bytes
from t5x_lite.data.records.remote_files import list_remote
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_name, is_in_bucket

_MOST_CLASSES = 1 << 20


@dataclass(frozen=True)
class ImageArrays(ImageSource):
    """Arrays in a file of NumPy's, `.npz`, such as Fashion-MNIST's: pictures, uint8 [N, H, W] or [N, H, W, C], and
    labels [N]. The file is read as a whole, and nothing in it is unpickled."""

    path: str
    images: str = "images"
    """The name of the array of pictures, such as 'train_images'."""
    labels: str = "labels"
    """The name of that of labels, numbers from 0 or names; empty where there are none."""
    class_names: ClassNames = ()
    """By number; empty: the numbers, or the names that are there, sorted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a file of pictures")
        check_labels(self.class_names, option="class_names")

    @property
    def has_answers(self) -> bool:
        return bool(self.labels)

    def read_classes(self) -> tuple[str, ...]:
        if not self.labels:
            raise InputError("labels='' names no array of labels, which are to be learnt; name it")
        return several_classes(self._read()[2], f"{self.labels!r} of path={self.path!r}")

    def read_images(self) -> Iterator[LabeledImage]:
        images, numbers, _ = self._read()
        for number, image in enumerate(images):
            yield LabeledImage(f"picture {number} of {self.path}", image, numbers[number] if numbers else -1)

    def fingerprint(self) -> str:
        file = self._file()
        content = file.version if not isinstance(file, Path) else hashlib.blake2b(file.read_bytes()).hexdigest()
        return digest("ImageArrays", content, self.images, self.labels, self.class_names)

    def _file(self) -> InputFile:
        path = one_file(self.path, (".npz",))
        if not is_in_bucket(path):
            return Path(path)
        if not (found := list_remote(path)):
            raise InputError(f"path={path!r} does not exist; correct the path")
        return found[0]

    def _read(self) -> tuple[Any, list[int], tuple[str, ...]]:
        """(pictures, numbers of their classes, names of the classes)."""
        where = f"path={self.path!r}"
        try:
            with open_bytes(self._file(), decompress=False) as file:
                if file.read(2) != b"PK":
                    raise ValueError("it is not a zip archive")
                file.seek(0)
                arrays = np.load(file, allow_pickle=False)
                if missing := [key for key in (self.images, self.labels) if key and key not in arrays]:
                    has = ", ".join(map(repr, arrays)) or "nothing"
                    raise InputError(f"{where} has no array {missing[0]!r}, but {has}; set images and labels to those")
                images, labels = (arrays[key] if key else None for key in (self.images, self.labels))
        except InputError:
            raise
        except MemoryError:
            raise InputError(f"{where} holds more than there is memory for; divide it into several") from None
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            reason = " ".join(str(error).split())[:150]
            remedy = "write arrays of uint8 by np.savez_compressed" if "pickle" in reason else "copy it again"
            raise InputError(f"{where} cannot be read as NumPy's .npz ({reason}); {remedy}") from None
        check_array_images(images, self.images, where)
        if labels is None:
            return images, [], ()
        return images, *array_labels(labels, len(images), self.class_names, self.labels, where)


def check_array_images(images: Any, key: str, where: str) -> None:
    """Raises `InputError` for what is not an array of pictures: uint8 [N, H, W] or [N, H, W, C]."""
    if images.dtype != np.uint8:
        raise InputError(f"{where}: {key!r} has type {images.dtype}; give uint8, from 0 to 255")
    if images.ndim not in (3, 4) or 0 in images.shape[1:]:
        raise InputError(f"{where}: {key!r} has shape {list(images.shape)}; give [N, H, W] or [N, H, W, C]")
    if images.ndim == 4 and images.shape[3] not in (1, 3, 4):
        hint = ", so move the channels to the end" if images.shape[1] in (1, 3, 4) else ""
        raise InputError(
            f"{where}: {key!r} has shape {list(images.shape)}, and the last dimension is of 1, 3 or 4 channels{hint}"
        )
    if not len(images):
        raise EmptyCorpusError(f"{where}: {key!r} has no pictures; give some")


def array_labels(labels: Any, count: int, names: tuple[str, ...], key: str, where: str) -> tuple[list[int], tuple]:
    """(number of each picture's class, names of the classes) of an array of labels, numbers or texts."""
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    if labels.shape != (count,):
        hint = "; of one-hot labels take argmax(axis=1)" if labels.ndim == 2 and len(labels) == count else ""
        raise InputError(
            f"{where}: {key!r} has shape {list(labels.shape)} and there are {count:,} pictures; give the number of a "
            f"class for each{hint}"
        )
    if labels.dtype.kind not in "iuU":
        raise InputError(f"{where}: {key!r} has type {labels.dtype}; give numbers of classes, or their names as str")
    if labels.dtype.kind == "U":
        names = names or sort_labels(labels.tolist())
    elif not names:
        if int(labels.max()) >= _MOST_CLASSES:  # an array of hashes or of identifiers, say
            raise InputError(
                f"{where}: {key!r} has the label {labels.max()}, and labels are numbers of classes, from 0 to "
                f"{_MOST_CLASSES - 1:,}; number the classes from 0, or set class_names"
            )
        names = tuple(map(str, range(int(labels.max()) + 1)))
    records = (Record(f"picture {number} of {where}", {key: label}) for number, label in enumerate(labels.tolist()))
    # A number is that of a class, whatever the names are.
    by_number = labels.dtype.kind != "U"
    number_of = (lambda value: _in_range(value, names, key)) if by_number else lambda v: class_number(v, names, key)
    return [number for _, (number,) in map_records(records, lambda record: [number_of(record.fields[key])])], names


def _in_range(value: int, names: tuple[str, ...], key: str) -> int:
    if 0 <= value < len(names):
        return value
    remedy = f"give 0 to {len(names) - 1}" if len(names) > 1 else "number the classes from 0"
    raise UnknownLabelError("labels", key, names, (str(value),), remedy, "class_names")


@dataclass(frozen=True)
class Digits(ImageSource):
    """Scikit-learn's 1,797 handwritten digits, 8 x 8 in grey, from 13 writers (Alpaydin and Kaynak 1998); no file is
    needed. The last 360 are for tests, as nobody else divides them."""

    split: Literal["train", "test"] = "train"

    def read_classes(self) -> tuple[str, ...]:
        return self.classes

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(map(str, range(10)))

    def fingerprint(self) -> str:
        return digest("Digits", self.split)

    def read_images(self) -> Iterator[LabeledImage]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        numbers = range(len(images) - 360) if self.split == "train" else range(len(images) - 360, len(images))
        for number in numbers:
            yield LabeledImage(f"digit {number}", images[number], int(digits.target[number]))
