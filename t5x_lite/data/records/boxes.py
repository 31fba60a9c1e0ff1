"""Pictures with boxes around objects: what every source of them is, and COCO's files."""

import abc
import itertools
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from t5x_lite.data.records.base import EmptyCorpusError, Source, check_labels, digest, hash_fields
from t5x_lite.data.records.images import Broken, ClassNames, ImageFiles
from t5x_lite.data.records.remote_files import read_remote
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_name, is_in_bucket
from t5x_lite.images.decoding import BadImageError

BadBoxes = Literal["refuse", "drop"]
"""What becomes of boxes that are not of an object in the picture: they are named with their number, or left out and
counted."""
UNNAMED = "N/A"
"""Of a number that no class has."""
_MOST_JSON = 1 << 31


class ImageObjects(NamedTuple):
    """The objects of one picture."""

    boxes: tuple[tuple[float, float, float, float], ...]
    """Left, top, right, bottom, as shares of the picture's width and height, from 0 to 1."""
    classes: tuple[int, ...]
    areas: tuple[float, ...]
    """Of each object as a share of the picture's area: of its outline, where the data have one, or of its box."""
    crowd: tuple[int, ...]
    """1 for a box around many objects."""
    size: tuple[int, int] | None = None
    """Height and width of the picture as the data have them; None where they do not."""
    problems: tuple[str, ...] = ()
    """What is wrong with boxes that were left out or clipped, one for each."""


class BoxedImage(NamedTuple):
    """A picture of a corpus and its objects."""

    location: str
    """As messages show it."""
    image: bytes | np.ndarray | BadImageError
    """The content of a file, or why there is none."""
    objects: ImageObjects
    label: int = -1
    """The picture itself has no class."""


@dataclass(frozen=True)
class BoxSource(Source):
    """Base of corpora of pictures with boxes."""

    @abc.abstractmethod
    def read_boxed(self) -> Iterator[BoxedImage]:
        """Picture after picture, unreadable ones too."""

    @abc.abstractmethod
    def read_classes(self) -> tuple[str, ...]:
        """The names of the classes by number."""

    def documents(self) -> Iterator[str]:
        raise InputError(
            f"source={type(self).__name__}(...) has pictures and no text to train a tokenizer on; set "
            "data.tokenizer=None"
        )

    def location(self, number: int) -> str:
        return next(itertools.islice(self.read_boxed(), number - 1, None)).location

    @property
    def classes(self) -> tuple[str, ...] | None:
        """`class_names`; () where they are only known by reading the source."""
        return tuple(getattr(self, "class_names", ()))


@dataclass(frozen=True)
class BoxFiles(BoxSource):
    """Files of pictures by their names, and their objects: what annotations are read as."""

    files: ImageFiles
    objects: tuple[ImageObjects, ...]
    class_names: ClassNames
    broken: Broken = "refuse"

    fingerprint = hash_fields

    def read_classes(self) -> tuple[str, ...]:
        return self.class_names

    def read_boxed(self) -> Iterator[BoxedImage]:
        for image, objects in zip(self.files.read_images(), self.objects, strict=True):
            yield BoxedImage(image.location, image.image, objects)

    def parts(self, sizes: Sequence[int] = ()) -> list[Source]:
        """Its files in the groups of `ImageFiles.parts`."""
        parts, start = [], 0
        for files in self.files.parts(sizes):
            parts.append(replace(self, files=files, objects=self.objects[start : start + len(files.names)]))
            start += len(files.names)
        return parts


@dataclass(frozen=True)
class AnnotatedBoxes(BoxSource):
    """Base of annotations that are read as a whole, and name files of pictures."""

    def read_classes(self) -> tuple[str, ...]:
        return self._read().class_names

    def read_boxed(self) -> Iterator[BoxedImage]:
        return self._read().read_boxed()

    def shards(self) -> list[Source]:
        return self._read().parts()

    @abc.abstractmethod
    def _read(self) -> BoxFiles:
        """All of it; raises `InputError` for what cannot be read, and for bad boxes that are refused."""


class Annotation(NamedTuple):
    """A box as annotations have it."""

    where: str
    """Which one it is, for messages."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in units of `size`."""
    class_number: int
    area: float | None = None
    """In squares of these units; None is that of the box."""
    crowd: int = 0


def image_objects(
    annotations: Iterable[Annotation], size: tuple[float, float], pixels: tuple[int, int] | None
) -> tuple[ImageObjects, list[tuple[str, str]]]:
    """The objects of a picture, clipped to it, and (what is wrong, with which) for boxes that are left out.

    Args:
      size: width and height in the units of the boxes.
      pixels: height and width of the picture, where they are known.
    """
    width, height = size
    scale = (width, height, width, height)
    columns: tuple[list, ...] = ([], [], [], [])
    bad, notes = [], []
    for one in annotations:
        if not all(map(math.isfinite, one.box)):
            bad.append(("with numbers that are not finite", one.where))
            continue
        left, top, right, bottom = (value / of for value, of in zip(one.box, scale, strict=True))
        clipped = tuple(min(max(value, 0.0), 1.0) for value in (left, top, right, bottom))
        if right <= left or bottom <= top:
            bad.append(("without area", one.where))
        elif clipped[2] <= clipped[0] or clipped[3] <= clipped[1]:
            bad.append(("outside of their picture", one.where))
        else:
            # Rounding of coordinates is no reason to tell.
            if max(abs(a - b) for a, b in zip(clipped, (left, top, right, bottom), strict=True)) > 0.01:
                notes.append("clipped")
            own = (clipped[2] - clipped[0]) * (clipped[3] - clipped[1])
            given = own if one.area is None or not math.isfinite(one.area) else one.area / (width * height)
            for column, value in zip(columns, (clipped, one.class_number, given, one.crowd), strict=True):
                column.append(value)
    notes += [f"dropped {problem}" for problem, _ in bad]
    return ImageObjects(*map(tuple, columns), pixels, tuple(notes)), bad


def check_boxes(problems: Sequence[tuple[str, str]], bad_boxes: BadBoxes, path: str) -> None:
    """Raises `InputError` with the number of each problem, and the first, where bad boxes are refused."""
    if not problems or bad_boxes == "drop":
        return
    counts = Counter(problem for problem, _ in problems)
    listed = ", ".join(f"{count:,} {problem}" for problem, count in counts.items())
    raise InputError(
        f"path={path!r} has boxes that are not of an object in the picture: {listed}; the first is {problems[0][1]}; "
        "correct them, or set bad_boxes='drop' to leave them out"
    )


def number_classes(named: Mapping[int, str], numbering: Literal["consecutive", "ids"]) -> tuple[tuple[str, ...], dict]:
    """(the names of classes by our number, our number by theirs).

    >>> number_classes({1: "person", 3: "car"}, "consecutive")
    (('person', 'car'), {1: 0, 3: 1})
    >>> number_classes({1: "person", 3: "car"}, "ids")[0]
    ('N/A', 'person', 'N/A', 'car')
    """
    if numbering == "consecutive":
        return tuple(named[one] for one in sorted(named)), {one: number for number, one in enumerate(sorted(named))}
    names = tuple(named.get(number, UNNAMED) for number in range(max(named) + 1))
    return names, {one: one for one in named}


@dataclass(frozen=True)
class CocoBoxes(AnnotatedBoxes):
    """COCO's annotations of objects: one JSON file with `images`, `annotations` and `categories`.

    Pictures without an annotation have no object. Outlines and key points are not read.
    """

    path: str
    """The file, such as instances_train2017.json."""
    images: str = ""
    """The folder or URL of the pictures, such as train2017; empty: that of the file."""
    numbering: Literal["consecutive", "ids"] = "consecutive"
    """Classes are numbered from 0 in the order of their ids, or by these ids: those of COCO go from 1 to 90, with gaps,
    so that published models have 91 classes."""
    class_names: ClassNames = ()
    """The categories that are read, by our number; empty: all, by `numbering`."""
    split: tuple[str, str] | None = None
    """A field of the records of images, and its value in those that are read; None: all."""
    bad_boxes: BadBoxes = "refuse"
    """What becomes of boxes without area or outside of their picture."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a file of annotations")
        if len(set(self.class_names)) < len(self.class_names):
            raise InputError(f"class_names={self.class_names} names one of them twice; name each once")

    def fingerprint(self) -> str:
        options = (self.numbering, self.class_names, self.split, self.images)
        return digest("CocoBoxes", digest(self._content()), *options)

    def _content(self) -> bytes:
        return read_annotations(self.path)

    def _read(self) -> BoxFiles:
        read = self._content()
        try:
            content = json.loads(read.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"path={self.path!r} is not JSON ({error}); it may be truncated: copy it again") from None
        lists = {name: self._records(content, name) for name in ("images", "annotations", "categories")}
        names, named, number_of = self._classes(lists["categories"])
        of_image = self._annotations(lists, named, number_of)
        chosen, objects, problems = [], [], []
        for one in lists["images"]:
            if self.split is not None and str(one.get(self.split[0])) != self.split[1]:
                continue
            name, width, height = one.get("file_name"), one.get("width"), one.get("height")
            if not isinstance(name, str) or not name.strip() or "\0" in name:
                raise InputError(f"file_name={name!r:.60} of image {one['id']} in path={self.path!r} is not a name")
            if type(width) is not int or type(height) is not int or min(width, height) < 1:
                raise InputError(
                    f"width={width!r:.20} and height={height!r:.20} of image {one['id']} in path={self.path!r} are not "
                    "its pixels; write them there"
                )
            found, bad = image_objects(of_image[one["id"]], (width, height), (height, width))
            chosen.append(name)
            objects.append(found)
            problems += [(problem, f"{where} of {name}") for problem, where in bad]
        if not chosen:
            of = f" with {self.split[0]}={self.split[1]!r}" if self.split else ""
            raise EmptyCorpusError(f"path={self.path!r} names no pictures{of}; give some")
        check_boxes(problems, self.bad_boxes, self.path)
        root = self.images or self.path.rpartition("/")[0] or "."
        files = ImageFiles(folder_of(root), tuple(chosen), broken=self.broken)
        return BoxFiles(files, tuple(objects), names, self.broken)

    def _classes(self, categories: list[dict[str, Any]]) -> tuple[ClassNames, dict[int, str], dict[int, int]]:
        """(the names by our number, the names by their id, our numbers by their id)."""
        named = {self._id(one, "id", "categories"): str(one.get("name")) for one in categories}
        if not named or min(named) < 0:
            raise InputError(f"path={self.path!r} has no categories with an id and a name; write them there")
        if not self.class_names:
            names, number_of = number_classes(named, self.numbering)
            return names, named, number_of
        unknown = [name for name in self.class_names if name not in (*named.values(), UNNAMED)]
        if unknown:
            raise InputError(
                f"class_names names {unknown[0]!r}, which path={self.path!r} does not have; it has "
                f"{', '.join(list(named.values())[:10])}"
            )
        names = self.class_names
        return names, named, {one: names.index(name) for one, name in named.items() if name in names}

    def _annotations(
        self, lists: dict[str, list[dict[str, Any]]], named: dict[int, str], number_of: dict[int, int]
    ) -> dict[int, list[Annotation]]:
        """Those of each image that are of a class which is read."""
        ids = Counter(self._id(one, "id", "images") for one in lists["images"])
        if twice := [one for one, count in ids.items() if count > 1]:
            raise InputError(
                f"path={self.path!r} has {len(twice):,} ids of images twice, such as {twice[0]}; correct it"
            )
        of_image: dict[int, list[Annotation]] = defaultdict(list)
        for number, one in enumerate(lists["annotations"]):
            image, category = (self._id(one, name, "annotations", number) for name in ("image_id", "category_id"))
            which = one.get("id", number)
            if image not in ids or category not in named:
                what, value = ("image_id", image) if image not in ids else ("category_id", category)
                raise InputError(
                    f"{what}={value} of annotation {which} in path={self.path!r} is none of its "
                    f"{'images' if what == 'image_id' else 'categories'}; correct it"
                )
            if category not in number_of:
                continue
            box = one.get("bbox")
            if not isinstance(box, list) or len(box) != 4 or not all(isinstance(v, int | float) for v in box):
                raise InputError(
                    f"bbox={box!r:.60} of annotation {which} in path={self.path!r} is not left, top, width and height; "
                    "correct it"
                )
            left, top, width, height = map(float, box)
            area = one.get("area")
            known = float(area) if isinstance(area, int | float) else None
            corners, crowd = (left, top, left + width, top + height), int(bool(one.get("iscrowd", 0)))
            of_image[image].append(Annotation(f"annotation {which}", corners, number_of[category], known, crowd))
        return of_image

    def _records(self, content: Any, name: str) -> list[dict[str, Any]]:
        listed = content.get(name) if isinstance(content, dict) else None
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise InputError(
                f"path={self.path!r} has no list of {name}, as COCO's annotations of objects have; name such a file"
            )
        return listed

    def _id(self, record: dict[str, Any], name: str, of: str, number: int | None = None) -> int:
        value = record.get(name)
        if type(value) is not int:
            which = "" if number is None else f" {record.get('id', number)}"
            raise InputError(
                f"{name}={value!r:.60} of {of}{which} in path={self.path!r} is not a whole number; correct it"
            )
        return value


def read_annotations(path: str) -> bytes:
    """The content of a file of annotations, on a disk or in a bucket. Raises `InputError`."""
    if is_in_bucket(path):
        return read_remote(path)
    try:
        with open(os.path.expanduser(path), "rb") as file:
            content = file.read(_MOST_JSON + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"path={path!r} cannot be read ({reason}); correct the path") from None
    if len(content) > _MOST_JSON:
        raise InputError(f"path={path!r} is larger than {_MOST_JSON >> 30} GiB; split it")
    return content


def folder_of(root: str) -> str:
    return root if is_in_bucket(root) else os.path.abspath(os.path.expanduser(root))


def check_class_names(names: tuple[str, ...]) -> None:
    """As `check_labels`, but one class alone can be found too."""
    if len(names) > 1:
        check_labels(names, option="class_names")
