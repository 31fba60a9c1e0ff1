"""Boxes in the formats of Pascal VOC and YOLO, and in records of other sources."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from t5x_lite.data.records.base import EmptyCorpusError, Record, Records, Source, digest, field_of, hash_fields
from t5x_lite.data.records.boxes import (
    AnnotatedBoxes,
    Annotation,
    BadBoxes,
    BoxedImage,
    BoxFiles,
    BoxSource,
    ImageObjects,
    check_boxes,
    check_class_names,
    folder_of,
    image_objects,
    read_annotations,
)
from t5x_lite.data.records.image_records import LabeledImages
from t5x_lite.data.records.images import ENDINGS, Broken, ClassNames, ImageFiles, class_number
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_name
from t5x_lite.images.decoding import BadImageError, picture_size

BoxFormat = Literal["xyxy", "xywh", "cxcywh", "yxyx"]
"""Left, top, right, bottom; left, top, width, height (COCO); center x and y, width, height (YOLO); top, left, bottom,
right (TensorFlow Datasets)."""


@dataclass(frozen=True)
class VocBoxes(AnnotatedBoxes):
    """Pascal VOC: a folder with an XML file for each picture in Annotations, the pictures in JPEGImages, and lists of
    names in ImageSets/Main. Objects that are marked as difficult are boxes of crowds: none is trained or missed."""

    path: str
    """The folder, such as VOCdevkit/VOC2012."""
    image_set: str = ""
    """The list of names to read, such as trainval; empty: all annotations."""
    class_names: ClassNames = ()
    """By number; empty: those that there are, sorted. Objects of other classes are left out."""
    annotations: str = "Annotations"
    images: str = "JPEGImages"
    """The folders of both in it."""
    bad_boxes: BadBoxes = "refuse"
    """What becomes of boxes without area or outside of their picture."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a folder of annotations")
        check_class_names(self.class_names)

    def fingerprint(self) -> str:
        contents = [(name, digest(self._content(name))) for name in self._names()]
        return digest("VocBoxes", contents, self.class_names, self.images)

    def _names(self) -> list[str]:
        """Of the annotations, without their ending."""
        root = Path(self.path).expanduser()
        if self.image_set:
            path = root / "ImageSets" / "Main" / f"{self.image_set}.txt"
            # Lists of a class have a second column: 1 where the picture shows it.
            lines = [line.split() for line in read_annotations(str(path)).decode("utf-8", "replace").splitlines()]
            names = [line[0] for line in lines if line and line[1:] in ([], ["1"])]
        else:
            folder = root / self.annotations
            if not folder.is_dir():
                raise InputError(f"path={self.path!r} has no folder {self.annotations}; name one as Pascal VOC has it")
            names = sorted(path.stem for path in folder.glob("*.xml"))
        if not names:
            raise EmptyCorpusError(f"path={self.path!r} has no annotations; give some")
        return names

    def _content(self, name: str) -> bytes:
        return read_annotations(str(Path(self.path).expanduser() / self.annotations / f"{name}.xml"))

    def _read(self) -> BoxFiles:
        parsed = [(name, _parse_voc(self._content(name), f"{self.annotations}/{name}.xml")) for name in self._names()]
        found = sorted({one["name"] for _, (_, _, objects) in parsed for one in objects})
        names = self.class_names or tuple(found)
        if not names:
            raise InputError(f"path={self.path!r} has no object; give pictures with some")
        files, objects, problems = [], [], []
        for name, (file, size, boxes) in parsed:
            annotations = [
                Annotation(
                    f"object {number} of {name}.xml",
                    # Pixels are counted from 1, and the last one is part of the box.
                    (one["xmin"] - 1, one["ymin"] - 1, one["xmax"], one["ymax"]),
                    names.index(one["name"]),
                    crowd=int(one.get("difficult", "0").strip() == "1"),
                )
                for number, one in enumerate(boxes, start=1)
                if one["name"] in names
            ]
            width, height = size
            found_here, bad = image_objects(annotations, (width, height), (height, width))
            files.append(file or f"{name}.jpg")
            objects.append(found_here)
            problems += bad
        check_boxes(problems, self.bad_boxes, self.path)
        root = folder_of(str(Path(self.path) / self.images))
        return BoxFiles(ImageFiles(root, tuple(files), broken=self.broken), tuple(objects), names, self.broken)


def _parse_voc(content: bytes, where: str) -> tuple[str, tuple[int, int], list[dict[str, Any]]]:
    """(the name of the picture, its width and height, the objects); raises `InputError` for other XML.

    A document type is refused, as its entities may grow without end.
    """
    fields: dict[str, str] = {}
    objects: list[dict[str, Any]] = []
    path: list[str] = []
    text: list[str] = []
    parser = expat.ParserCreate()

    def start(name: str, _: dict[str, str]) -> None:
        path.append(name)
        text.clear()
        if path[1:] == ["object"]:
            objects.append({})

    def end(_: str) -> None:
        value = "".join(text).strip()
        match path[1:]:
            case ["filename"] | ["size", "width" | "height"]:
                fields[path[-1]] = value
            case ["object", "name" | "difficult"] | ["object", "bndbox", "xmin" | "ymin" | "xmax" | "ymax"]:
                objects[-1][path[-1]] = value
        path.pop()
        text.clear()

    def refuse(*_: Any) -> None:
        raise InputError(f"{where} has a document type, which annotations do not; remove it")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text.append, refuse
    try:
        parser.Parse(content, True)
        size = (int(float(fields["width"])), int(float(fields["height"])))
        if min(size) < 1:
            raise ValueError(f"its size is {size}")
        for one in objects:
            one |= {side: float(one[side]) for side in ("xmin", "ymin", "xmax", "ymax")}
            if not one.get("name"):
                raise KeyError("name")
    except (expat.ExpatError, KeyError, ValueError, OverflowError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged ({error})"
        raise InputError(f"{where} {reason}; write width, height, and name and bndbox of each object") from None
    return os.path.basename(fields.get("filename", "")), size, objects


@dataclass(frozen=True)
class YoloBoxes(AnnotatedBoxes):
    """YOLO: a folder of pictures, and beside each a text of the same name, with a line for each object: the number of
    its class, then center x, center y, width and height as shares of the picture. A picture without a text, or with an
    empty one, has no object. Where the path of pictures has a folder `images`, the texts are in `labels` beside it."""

    path: str
    """The folder of the pictures, and folders in it, such as data/images/train."""
    class_names: ClassNames = ()
    """By number; they are also read from `classes.txt` in the folder or above it, a name a line."""
    bad_boxes: BadBoxes = "refuse"
    """What becomes of boxes without area or outside of their picture."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_name(self.path, "path", "a folder of pictures")
        check_class_names(self.class_names)

    def fingerprint(self) -> str:
        files = self._pictures()
        versions = [(str(path), (status := path.stat()).st_size, int(status.st_mtime)) for path in files]
        return digest("YoloBoxes", versions, [self._lines(path) for path in files], self._class_names())

    def _pictures(self) -> list[Path]:
        folder = Path(folder_of(self.path))
        if not folder.is_dir():
            raise InputError(f"path={self.path!r} is not a folder of pictures; name one")
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
        if not files:
            raise EmptyCorpusError(f"path={self.path!r} holds no picture ({', '.join(ENDINGS)}); correct the path")
        return files

    def _class_names(self) -> tuple[str, ...]:
        if self.class_names:
            return self.class_names
        folder = Path(folder_of(self.path))
        for above in (folder, *list(folder.parents)[:2]):
            if (file := above / "classes.txt").is_file():
                names = tuple(line.strip() for line in file.read_text("utf-8").splitlines() if line.strip())
                if names:
                    check_class_names(names)
                    return names
        raise InputError(f"class_names=() names no classes, and path={self.path!r} has no classes.txt; name them")

    def _text_of(self, picture: Path) -> Path:
        parts = list(picture.with_suffix(".txt").parts)
        if "images" in parts:
            parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
        return Path(*parts)

    def _lines(self, picture: Path) -> list[str]:
        text = self._text_of(picture)
        if not text.exists():
            return []
        return read_annotations(str(text)).decode("utf-8", "replace").splitlines()

    def _read(self) -> BoxFiles:
        files, names, folder = self._pictures(), self._class_names(), Path(folder_of(self.path))
        objects, problems = [], []
        for path in files:
            annotations = []
            for number, line in enumerate(self._lines(path), start=1):
                if not line.strip():
                    continue
                where = f"{self._text_of(path)}:{number}"
                try:
                    first, *values = line.split()
                    label, (x, y, width, height) = int(first), map(float, values)
                except ValueError:
                    raise InputError(
                        f"{where} is {line.strip()[:60]!r}, not the number of a class, center x, center y, width and "
                        "height; correct it"
                    ) from None
                if not 0 <= label < len(names):
                    raise InputError(f"{where} has class {label}, and there are {len(names)}; correct it or name more")
                box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
                annotations.append(Annotation(where, box, label))
            found, bad = image_objects(annotations, (1.0, 1.0), None)
            objects.append(found)
            problems += bad
        check_boxes(problems, self.bad_boxes, self.path)
        relative = tuple(path.relative_to(folder).as_posix() for path in files)
        return BoxFiles(ImageFiles(str(folder), relative, broken=self.broken), tuple(objects), names, self.broken)


@dataclass(frozen=True)
class BoxedImages(BoxSource):
    """The pictures and boxes in records of another source: `Tfds`, `HuggingFaceDataset`, `ParquetFiles` and others.

    A picture is the bytes of a file, or as Hugging Face's datasets have them: {"bytes": ..., "path": ...}. Boxes and
    classes are lists of one length, such as objects/bbox and objects/category, or in TensorFlow Datasets objects/label.
    """

    examples: Records
    class_names: ClassNames
    """By number."""
    image: str = "image"
    """The field of the picture."""
    boxes: str = "objects/bbox"
    labels: str = "objects/category"
    """The fields of boxes and of their classes, by name or number."""
    box_format: BoxFormat = "xywh"
    """xyxy: left, top, right, bottom; xywh: left, top, width, height (COCO); cxcywh: center, width, height (YOLO);
    yxyx: top, left, bottom, right (TensorFlow Datasets)."""
    relative: bool = False
    """Whether boxes are shares of width and height, not pixels."""
    root: str = ""
    """The folder or URL that paths of pictures start from; empty: there are none."""
    bad_boxes: BadBoxes = "refuse"
    """What becomes of boxes without area or outside of their picture."""
    broken: Broken = "refuse"
    """What becomes of pictures that cannot be read: 'refuse' names them, 'skip' leaves them out and counts them."""

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.class_names:
            raise InputError("class_names=() names no classes; name them by number")
        check_class_names(self.class_names)

    def read_classes(self) -> tuple[str, ...]:
        return self.class_names

    def shards(self) -> list[Source]:
        return [replace(self, examples=shard) for shard in self.examples.shards()]

    def read_boxed(self) -> Iterator[BoxedImage]:
        images = LabeledImages(self.examples, self.image, "", (), self.root, self.broken)
        is_empty = True
        for record in self.examples:
            is_empty = False
            image = images.image_in(field_of(record, self.image, "image"), record)
            size: Any = image
            if isinstance(image, bytes):
                try:
                    size = picture_size(image)
                except BadImageError as error:
                    image = size = error
            if isinstance(size, BadImageError):
                yield BoxedImage(record.location, image, ImageObjects((), (), (), ()))
                continue
            height, width = size
            units = (1.0, 1.0) if self.relative else (width, height)
            objects, bad = image_objects(self._annotations(record), units, (height, width))
            check_boxes(bad, self.bad_boxes, record.location)
            yield BoxedImage(record.location, image, objects)
        if is_empty:
            raise EmptyCorpusError(f"{self.examples} holds no pictures; give some")

    def _annotations(self, record: Record) -> list[Annotation]:
        boxes, labels = (
            list(field_of(record, name, of)) for name, of in ((self.boxes, "boxes"), (self.labels, "labels"))
        )
        if len(boxes) != len(labels):
            raise InputError(
                f"boxes={self.boxes!r} has {len(boxes)} and labels={self.labels!r} {len(labels)} in {record.location}; "
                "correct the record"
            )
        found = []
        for number, (box, label) in enumerate(zip(boxes, labels, strict=True), start=1):
            box = list(box) if isinstance(box, Sequence) or hasattr(box, "tolist") else []
            try:
                a, b, c, d = map(float, box)
            except (TypeError, ValueError):
                raise InputError(
                    f"boxes={self.boxes!r} has {str(box)[:60]} in {record.location}, not four numbers; correct it"
                ) from None
            corners = {
                "xyxy": (a, b, c, d),
                "xywh": (a, b, a + c, b + d),
                "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
                "yxyx": (b, a, d, c),
            }[self.box_format]
            number_of = class_number(label, self.class_names, self.labels)
            found.append(Annotation(f"box {number} of {record.location}", corners, number_of))
        return found
