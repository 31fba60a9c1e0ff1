"""Pictures with or without labels: what every source of them is, and folders of files."""

import abc
import errno
import glob
import hashlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tyro

from t5x_lite.data.records.base import Source, UnknownLabelError, check_labels, digest, hash_fields
from t5x_lite.data.records.remote_files import list_remote, path_in_store, read_remote
from t5x_lite.errors import InputError
from t5x_lite.files import MOST_BYTES, check_is_name, is_in_bucket
from t5x_lite.images.decoding import BadImageError

ENDINGS = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp")
_UNREAD_ENDINGS = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".svg")
"""Of pictures that are named as broken where they lie among others."""
_SPLIT_NAMES = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "held_out"}
_SHARD_BYTES = 64 << 20
_SHARD_FILES = 10_000
_THREADS = 16
"""That read files ahead: those of a bucket are mostly waited for."""
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Broken = Literal["refuse", "skip"]
ClassNames = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]


class LabeledImage(NamedTuple):
    """A picture of a corpus."""

    location: str
    """As messages show it."""
    image: bytes | np.ndarray | BadImageError
    """The content of a file; uint8 [H, W] or [H, W, C]; or why there is neither."""
    label: int = -1
    """The number of its class; -1 where there are no labels."""


@dataclass(frozen=True)
class ImageSource(Source):
    """Base of corpora of pictures. Those that cannot be read, `broken`, are counted while their rows are written, and
    then refused, with the first of them, or left out."""

    @abc.abstractmethod
    def read_images(self) -> Iterator[LabeledImage]:
        """Picture after picture, unreadable ones too."""

    @abc.abstractmethod
    def read_classes(self) -> tuple[str, ...]:
        """The names of the classes by number, read where the source does not name them. `InputError` for one without
        labels, and for a single class."""

    def class_numbers(self) -> list[int]:
        """The number of each picture's class, in order; -1 where there are no labels."""
        return [image.label for image in self.read_images()]

    def take(self, numbers: Sequence[int]) -> Iterator[LabeledImage]:
        """The pictures of some places in that order, from 0, ascending."""
        chosen = set(numbers)
        return (image for number, image in enumerate(self.read_images()) if number in chosen)

    def documents(self) -> Iterator[str]:
        raise InputError(
            f"source={type(self).__name__}(...) has pictures and no text to train a tokenizer on; set "
            "data.tokenizer=None"
        )

    def location(self, number: int) -> str:
        return next(itertools.islice(self.read_images(), number - 1, None)).location

    @property
    def classes(self) -> tuple[str, ...] | None:
        """`class_names`, () where they are only known by reading the source; None without labels."""
        return tuple(getattr(self, "class_names", ())) if self.has_answers else None


def several_classes(names: Sequence[str], where: str) -> tuple[str, ...]:
    """The names; `InputError` for one or none."""
    if len(names) > 1:
        return tuple(names)
    has = f"one class ({names[0]!r}), of which there is nothing to learn" if names else "no classes"
    raise InputError(f"{where} has {has}; give pictures of two or more")


def sort_labels(values: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels in order, as numbers where all are.

    >>> sort_labels(["10", "9", "10"]), sort_labels(["b", "10", "a"])
    (('9', '10'), ('10', 'a', 'b'))
    """
    distinct = set(values)
    return tuple(sorted(distinct, key=int) if all(one.isdecimal() for one in distinct) else sorted(distinct))


def class_number(value: Any, names: Sequence[str], field: str) -> int:
    """The number of the class that a label names, or is, where names are not numbers themselves; `UnknownLabelError`
    for any other.

    >>> class_number("dog", ("cat", "dog"), "label"), class_number(1, ("cat", "dog"), "label")
    (1, 1)
    """
    written = "" if value is None else str(value).strip()
    if written in names:
        return names.index(written)
    if written.isdecimal() and int(written) < len(names) and not any(name.isdecimal() for name in names):
        return int(written)
    known = tuple(names) if len(names) <= 20 else (*names[:20], f"... {len(names)} in all")
    remedy = "correct them, or name them in class_names"
    raise UnknownLabelError("label", field, known, (written,), remedy, "class_names")


def read_picture(path: str) -> bytes | BadImageError:
    """The content of a file, on a disk or in a bucket; or why that file cannot be read."""
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    try:
        if is_in_bucket(path):
            return read_remote(path)
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return BadImageError("not a file", remedy="remove it")
        if status.st_size > MOST_BYTES:
            return BadImageError("too large", f"too large ({status.st_size:,} bytes)", "scale it down")
        return Path(path).read_bytes()
    except InputError:  # a bucket that cannot be reached
        raise
    except (OSError, ValueError) as error:  # ValueError for a NUL in a name
        if getattr(error, "errno", None) in _OUT_OF_RESOURCES:
            raise InputError(f"{shown} cannot be read ({error.strerror}); end other programs") from None
        reason = getattr(error, "strerror", None) or "its name has a NUL"
        return BadImageError("unreadable", f"unreadable ({reason})", "correct its path or its permissions")


@dataclass(frozen=True)
class ImageFiles(ImageSource):
    """Files of pictures by their names: what folders and tables are read as."""

    root: str
    """The folder or URL that names start from."""
    names: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    """Of their classes; empty without labels."""
    class_names: tuple[str, ...] = ()
    table: str = ""
    """The table that names them, and `lines` in it."""
    lines: tuple[int, ...] = ()
    broken: Broken = "refuse"

    fingerprint = hash_fields

    @property
    def has_answers(self) -> bool:
        return bool(self.numbers)

    def read_classes(self) -> tuple[str, ...]:
        return self.class_names

    def class_numbers(self) -> list[int]:
        return list(self.numbers or (-1,) * len(self.names))

    def take(self, numbers: Sequence[int]) -> Iterator[LabeledImage]:
        names, of_names, lines = (
            tuple(values[number] for number in numbers if values) for values in (self.names, self.numbers, self.lines)
        )
        return replace(self, names=names, numbers=of_names, lines=lines).read_images()

    def read_images(self) -> Iterator[LabeledImage]:
        with ThreadPoolExecutor(_THREADS, "read pictures") as threads:
            waiting: deque = deque()
            try:
                for number, name in enumerate(self.names):
                    path = name if is_in_bucket(name) else f"{self.root.rstrip('/')}/{name}"
                    path = name if os.path.isabs(name) else path
                    waiting.append((number, threads.submit(read_picture, path)))
                    if len(waiting) > 2 * _THREADS:
                        yield self._image(*waiting.popleft())
                while waiting:
                    yield self._image(*waiting.popleft())
            finally:
                for _, read in waiting:
                    read.cancel()

    def _image(self, number: int, read: Any) -> LabeledImage:
        name = self.names[number]
        location = f"{self.table}:{self.lines[number]} ({name})" if self.table else f"{self.root.rstrip('/')}/{name}"
        location = os.fsencode(location).decode("utf-8", "backslashreplace")
        return LabeledImage(location, read.result(), self.numbers[number] if self.numbers else -1)

    def parts(self, sizes: Sequence[int] = ()) -> list[Source]:
        """Its files in groups of 64 MiB, or of 10,000."""
        ends, num_bytes, start = [], 0, 0
        for number, size in enumerate(sizes or [0] * len(self.names)):
            if number > start and (num_bytes >= _SHARD_BYTES or number - start >= _SHARD_FILES):
                ends.append(number)
                start, num_bytes = number, 0
            num_bytes += size
        bounds = zip([0, *ends], [*ends, len(self.names)], strict=True)
        return [
            replace(self, names=self.names[a:b], numbers=self.numbers[a:b], lines=self.lines[a:b]) for a, b in bounds
        ]


class _Listed(NamedTuple):
    name: str
    """Below the folder, with slashes."""
    size: int
    version: str


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """A folder of pictures, on a disk or in a bucket: JPEG, PNG, WebP, GIF or BMP, by the endings of their names.

    Each folder in it is a class, in the order of the names, and holds its pictures and folders of them. A folder with
    pictures alone is a corpus without labels. Hidden names are left out; links to folders are followed. The pictures
    are read in an order that mixes the classes, always the same one.
    """

    path: str
    class_names: ClassNames = ()
    """The names of the folders by the numbers of their classes; empty: all folders, sorted."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a folder of pictures")
        check_labels(self.class_names, option="class_names")

    @property
    def has_answers(self) -> bool:
        return not self._is_flat

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes; () where the folder is in a bucket or not there, or has one that is empty, which
        is refused when it is read; None where it has no folders."""
        if not self.has_answers:
            return None
        folders = self._folders()
        has_empty = any(_is_empty(f"{self._root}/{name}") for name in folders)
        return self.class_names or (() if has_empty else tuple(folders))

    def read_classes(self) -> tuple[str, ...]:
        files = None if self._is_flat and self._listing() else self._files()[0]
        if files is None or not files.numbers:
            raise InputError(
                f"path={self.path!r} has pictures and no folders of classes; put those of each class into a folder of "
                "its own"
            )
        return several_classes(files.class_names, f"path={self.path!r}")

    def read_images(self) -> Iterator[LabeledImage]:
        return self._files()[0].read_images()

    def shards(self) -> list[Source]:
        files, sizes = self._files()
        return files.parts(sizes)

    def fingerprint(self) -> str:
        """Hash of the names, the sizes and the times of the files; in a bucket of what their store says of them."""
        return digest("ImageFolder", self.class_names, [tuple(one) for one in self._listing()])

    @property
    def _root(self) -> str:
        return self.path if is_in_bucket(self.path) else os.path.abspath(os.path.expanduser(self.path))

    @property
    def _is_flat(self) -> bool:
        return not is_in_bucket(self.path) and os.path.isdir(self._root) and not self._folders()

    def _folders(self) -> list[str]:
        """The folders in a local one."""
        if is_in_bucket(self.path):
            return []
        try:
            with os.scandir(self._root) as entries:
                return sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
        except OSError:
            return []

    def _listing(self) -> list[_Listed]:
        """Its pictures, sorted; `InputError` where there are none."""
        endings = (*ENDINGS, *_UNREAD_ENDINGS)
        if is_in_bucket(self.path):
            below = path_in_store(self.path).rstrip("/") + "/"
            files = [(path_in_store(file.url), file) for file in list_remote(self.path, endings)]
            listed = [_Listed(at.removeprefix(below), file.size, file.version) for at, file in files]
        else:
            if not os.path.isdir(self._root):
                what = "is a file" if os.path.exists(self._root) else f"does not exist (seen from {Path.cwd()})"
                raise InputError(f"path={self.path!r} {what}; name a folder of pictures")
            listed = [one for one in _walk(self._root, "", ()) if one.name.lower().endswith(endings)]
        if not listed:
            raise InputError(f"path={self.path!r} holds no picture ({', '.join(ENDINGS)}); correct the path")
        return sorted(listed)

    def all_files(self) -> tuple[ImageFiles, list[int]]:
        """All files whatever folder they are in, without labels, in an order that mixes the folders; their sizes."""
        listed = self._listing()
        listed.sort(key=lambda one: hashlib.blake2b(os.fsencode(one.name), digest_size=8).digest())
        files = ImageFiles(self._root, tuple(one.name for one in listed), broken=self.broken)
        return files, [one.size for one in listed]

    def _files(self) -> tuple[ImageFiles, list[int]]:
        """All files with their labels, and their sizes."""
        files, sizes = self.all_files()
        names = files.names
        found = {name.partition("/")[0] for name in names if "/" in name}
        folders = sorted(found | set(self._folders()))
        if not folders:
            if self.class_names:
                raise InputError(f"path={self.path!r} has no folders, and class_names names them; leave it out")
            return files, sizes
        if beside := sorted(name for name in names if "/" not in name):
            raise InputError(
                f"path={self.path!r} has {_count(len(beside), 'picture')} beside the folders of the classes, such as "
                f"{', '.join(beside[:3])}; move them into one, or remove them"
            )
        if not self.class_names and {name.lower() for name in folders} <= _SPLIT_NAMES:
            one = max(folders, key=lambda name: name.lower().startswith("train"))
            raise InputError(
                f"path={self.path!r} has the folders {', '.join(folders)}, which are splits by their names; give one, "
                f"such as {self.path.rstrip('/')}/{one}, or set class_names if they are classes"
            )
        classes = self.class_names or tuple(folders)
        if unknown := sorted(found - set(classes)):
            raise InputError(
                f"path={self.path!r} has folders that class_names does not name: {', '.join(unknown[:10])}; it names "
                f"{', '.join(classes[:10])}{', ...' * (len(classes) > 10)}: rename or move them, or name them there"
            )
        if not self.class_names and (empty := sorted(set(folders) - found)):
            raise InputError(
                f"path={self.path!r} has folders without a picture: {', '.join(empty[:10])}; fill or remove them, "
                "or set class_names"
            )
        number = {name: index for index, name in enumerate(classes)}
        numbers = tuple(number[name.partition("/")[0]] for name in names)
        return ImageFiles(self._root, names, numbers, classes, broken=self.broken), sizes


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except OSError:  # named when it is read
        return False


def _walk(folder: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[_Listed]:
    """The files below a folder, links followed but those that lead back to it or to a folder `above`."""
    try:
        status = os.stat(folder)
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            return
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}); change its permissions") from None
    for entry in entries:
        name = prefix + entry.name
        try:
            is_folder, status = entry.is_dir(), entry.stat()
        except OSError:  # a link to nothing
            is_folder, status = False, None
            if "." not in entry.name:  # to a folder, by its name
                raise InputError(f"{entry.path} is a link to nothing; correct or remove it") from None
        if is_folder:
            yield from _walk(entry.path, f"{name}/", (*above, identity))
        else:
            yield _Listed(name, status.st_size if status else 0, str(int(status.st_mtime)) if status else "")


def one_file(path: str, endings: tuple[str, ...]) -> str:
    """The path of a file; `InputError` where it is not one with such an ending."""
    expanded = path if is_in_bucket(path) else os.path.expanduser(path)
    if not path or not path.lower().endswith(endings):
        raise InputError(f"path={path!r} does not end in {', '.join(endings)}; name such a file")
    if not is_in_bucket(path) and not os.path.isfile(expanded):
        what = "is not a file" if os.path.exists(expanded) else f"does not exist (seen from {Path.cwd()})"
        raise InputError(f"path={path!r} {what}; correct the path{' (one file)' if glob.has_magic(path) else ''}")
    return expanded
