"""Pictures with boxes: COCO's annotations, Pascal VOC's, YOLO's, and those in records."""

import io
import json

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from t5x_lite.data import BoxedImages, CocoBoxes, ParquetFiles, VocBoxes, YoloBoxes
from t5x_lite.errors import InputError
from t5x_lite.images import BadImageError


def png(number=0, size=(20, 40)) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


OBJECTS = [
    (0, 3, [4.0, 5.0, 8.0, 10.0], 70.0, 0),
    (0, 1, [0.0, 0.0, 40.0, 20.0], 800.0, 1),
    (2, 1, [30, 10, 10, 10], 90.0, 0),
]
"""Of three pictures of 40 x 20: picture, category, box, area, whether it is a crowd."""


def coco(count=3, objects=OBJECTS, **changes):
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "width": 40, "height": 20, "split": "b" if n else "a"}
            for n in range(count)
        ],
        "categories": [{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}],
        "annotations": [
            {"id": 10 + n, "image_id": image, "category_id": category, "bbox": box, "area": area, "iscrowd": crowd}
            for n, (image, category, box, area, crowd) in enumerate(objects)
        ],
    }
    return content | changes


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(number))
    (tmp_path / "coco.json").write_text(json.dumps(coco()))
    return tmp_path


def read(source):
    return {one.image: one.objects for one in source.read_boxed()}


def test_coco_has_shares_numbers_and_areas_of_each_picture(folder):
    source = CocoBoxes(str(folder / "coco.json"))
    found = read(source)
    assert list(found) == [png(0), png(1), png(2)]
    first = found[png(0)]
    np.testing.assert_allclose(first.boxes, [[0.1, 0.25, 0.3, 0.75], [0, 0, 1, 1]])
    assert first.classes == (1, 0)
    assert first.crowd == (0, 1)
    np.testing.assert_allclose(np.array(first.areas) * 800, [70.0, 800.0])
    assert first.size == (20, 40)
    assert found[png(1)].boxes == (), "a picture without an object stays"
    assert source.read_classes() == ("cat", "dog")
    assert sum(len(list(shard.read_boxed())) for shard in source.shards()) == 3


def test_classes_are_numbered_one_by_one_by_their_ids_or_by_names(folder):
    path = str(folder / "coco.json")
    by_id = CocoBoxes(path, numbering="ids")
    assert by_id.read_classes() == ("N/A", "cat", "N/A", "dog")
    assert read(by_id)[png(0)].classes == (3, 1)
    by_name = CocoBoxes(path, class_names=("dog",))
    assert read(by_name)[png(0)].classes == (0,), "cats are not read"
    assert not read(by_name)[png(2)].boxes
    prints = {
        CocoBoxes(path, **o).fingerprint()
        for o in ({}, {"numbering": "ids"}, {"class_names": ("dog",)}, {"images": "b"})
    }
    assert len(prints) == 4


def test_a_field_of_images_may_say_what_is_read(folder):
    path = str(folder / "coco.json")
    assert list(read(CocoBoxes(path, split=("split", "a")))) == [png(0)]
    assert list(read(CocoBoxes(path, split=("split", "b")))) == [png(1), png(2)]
    with pytest.raises(InputError, match="split='z'"):
        read(CocoBoxes(path, split=("split", "z")))


BAD = [
    (0, 1, [4, 5, 0, 10], 0, 0),
    (0, 1, [4, 5, -3, 10], 0, 0),
    (1, 3, [50, 5, 5, 5], 25, 0),
    (1, 3, [35, 5, 10, 5], 25, 0),
    (2, 1, [float("nan"), 5, 5, 5], 25, 0),
]


def test_boxes_of_nothing_are_named_with_their_number_or_left_out(folder):
    (folder / "coco.json").write_text(json.dumps(coco(objects=BAD)))
    path = str(folder / "coco.json")
    expected = (
        r"boxes that are not of an object in the picture: 2 without area, 1 outside of their picture, 1 with numbers "
        r"that are not finite; the first is annotation 10 of 0\.png; correct them, or set bad_boxes='drop'"
    )
    with pytest.raises(InputError, match=expected):
        read(CocoBoxes(path))
    found = read(CocoBoxes(path, bad_boxes="drop"))
    assert [len(one.boxes) for one in found.values()] == [0, 1, 0]
    np.testing.assert_allclose(found[png(1)].boxes, [[35 / 40, 0.25, 1.0, 0.5]])
    assert found[png(0)].problems == ("dropped without area",) * 2
    assert sorted(found[png(1)].problems) == ["clipped", "dropped outside of their picture"]


def test_pictures_that_are_not_there_are_named_or_left_out(folder):
    (folder / "1.png").unlink()
    (folder / "2.png").write_bytes(b"none")
    images = [one.image for one in CocoBoxes(str(folder / "coco.json")).read_boxed()]
    assert images[0] == png(0)
    assert isinstance(images[1], BadImageError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"coco.json' is not JSON \(.*\); it may be truncated: copy it again"),
        ("[]", "has no list of images, as COCO's annotations of objects have"),
        (coco(annotations=[3]), "has no list of annotations"),
        (coco(categories=[]), "has no categories with an id and a name"),
        (coco(categories=[{"id": "a", "name": "cat"}]), "id='a' of categories in path=.* is not a whole number"),
        (coco(objects=[(9, 1, [0, 0, 1, 1], 1, 0)]), "image_id=9 of annotation 10 in path=.* is none of its images"),
        (
            coco(objects=[(0, 2, [0, 0, 1, 1], 1, 0)]),
            "category_id=2 of annotation 10 .* none of its categories",
        ),
        (coco(objects=[(0, 1, [0, 0, 1], 1, 0)]), r"bbox=\[0, 0, 1\] of annotation 10 .* is not left, top, width"),
        (coco(objects=[(0, 1, None, 1, 0)]), "bbox=None of annotation 10"),
        (coco(0), "names no pictures|is none of its images"),
        (coco(images=[{"id": 0, "file_name": "0.png"}], annotations=[]), "width=None and height=None of image 0"),
        (coco(images=[{"id": 0, "width": 1, "height": 1}], annotations=[]), "file_name=None of image 0"),
        (
            coco(images=[{"id": 0, "file_name": "0.png", "width": 4, "height": 4}] * 2),
            "1 ids of images twice, such as 0",
        ),
    ],
)
def test_what_is_wrong_with_annotations_is_said(folder, content, message):
    (folder / "coco.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError, match=message):
        read(CocoBoxes(str(folder / "coco.json")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CocoBoxes(""), "path='' is not the name of a file of annotations; give one"),
        (lambda: CocoBoxes("a", class_names=("x", "x")), "names one of them twice"),
        (lambda: read(CocoBoxes("/nowhere/a.json")), r"^path='/nowhere/a.json' cannot be read \(No such"),
        (lambda: read(YoloBoxes("/nowhere")), "path='/nowhere' is not a folder of pictures"),
        (lambda: read(VocBoxes("/nowhere")), "path='/nowhere' has no folder Annotations"),
        (lambda: BoxedImages(ParquetFiles(("a.parquet",)), ()), "names no classes; name them by number"),
    ],
)
def test_what_is_not_there_is_said(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_names_that_a_file_has_not_are_refused(folder):
    with pytest.raises(InputError, match="class_names names 'cow', which .* does not have; it has cat, dog"):
        read(CocoBoxes(str(folder / "coco.json"), class_names=("cow",)))


VOC = """<annotation><folder>x</folder><filename>{name}</filename>
<size><width>40</width><height>20</height><depth>3</depth></size>{objects}</annotation>"""
ONE = """<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>"""


@pytest.fixture
def voc(folder):
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    objects = [ONE.format(5, 6, 12, 15, name="dog", difficult=0), ONE.format(1, 1, 40, 20, name="cat", difficult=1)]
    for number in range(3):
        (folder / "JPEGImages" / f"{number}.png").write_bytes(png(number))
        text = VOC.format(name=f"{number}.png", objects="".join(objects[:number]))
        (folder / "Annotations" / f"{number}.xml").write_text(text)
    (folder / "ImageSets/Main/train.txt").write_text("1\n2\n")
    (folder / "ImageSets/Main/dog_train.txt").write_text("0 -1\n1  1\n2  1\n")
    return folder


def test_voc_counts_pixels_from_one_and_difficult_objects_are_crowds(voc):
    source = VocBoxes(str(voc))
    found = read(source)
    assert source.read_classes() == ("cat", "dog")
    assert found[png(0)].boxes == ()
    np.testing.assert_allclose(found[png(2)].boxes, [[0.1, 0.25, 0.3, 0.75], [0, 0, 1, 1]])
    assert found[png(2)].classes == (1, 0)
    assert found[png(2)].crowd == (0, 1)
    for name in ("train", "dog_train"):
        assert list(read(VocBoxes(str(voc), name))) == [png(1), png(2)]
    assert read(VocBoxes(str(voc), class_names=("dog", "cow")))[png(2)].classes == (0,)
    assert len({VocBoxes(str(voc), name).fingerprint() for name in ("", "train")}) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", r"Annotations/0\.xml is damaged"),
        ("<annotation></annotation>", r"Annotations/0\.xml lacks 'width'; write width, height"),
        (VOC.format(name="a", objects="<object><name>cat</name></object>"), r"0\.xml lacks 'xmin'"),
        (VOC.format(name="a", objects=ONE.format(1, 1, "x", 2, name="a", difficult=0)), r"0\.xml is damaged"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>', "has a document type"),
        (
            VOC.format(name="0.png", objects=ONE.format(9, 1, 3, 2, name="a", difficult=0)),
            r"1 without area; the first is object 1 of 0\.xml",
        ),
    ],
)
def test_what_is_wrong_with_xml_is_said(voc, text, message):
    (voc / "Annotations/0.xml").write_text(text)
    with pytest.raises(InputError, match=message):
        read(VocBoxes(str(voc)))


@pytest.fixture
def yolo(tmp_path):
    for name in ("images/train", "labels/train"):
        (tmp_path / name).mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"images/train/{number}.png").write_bytes(png(number))
    (tmp_path / "labels/train/0.txt").write_text("1 0.2 0.5 0.2 0.5\n\n0 0.5 0.5 1 1\n")
    (tmp_path / "labels/train/1.txt").write_text("")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    return tmp_path


def test_yolo_has_a_text_for_each_picture_that_has_objects(yolo):
    source = YoloBoxes(str(yolo / "images/train"))
    found = read(source)
    assert source.read_classes() == ("cat", "dog")
    np.testing.assert_allclose(found[png(0)].boxes, [[0.1, 0.25, 0.3, 0.75], [0, 0, 1, 1]])
    assert found[png(0)].classes == (1, 0)
    assert found[png(1)].boxes == found[png(2)].boxes == ()
    before = source.fingerprint()
    (yolo / "labels/train/1.txt").write_text("0 0.5 0.5 0.1 0.1")
    assert source.fingerprint() != before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 1", r"labels/train/1\.txt:1 is '0 0.5 0.5 1', not the number of a class, center x"),
        ("cat 0.5 0.5 1 1", "not the number of a class"),
        ("2 0.5 0.5 1 1", r"1\.txt:1 has class 2, and there are 2"),
        ("1 0.5 0.5 0 1", r"1 without area; the first is .*1\.txt:1"),
        ("1 1.5 0.5 0.2 1", "1 outside of their picture"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(yolo, line, message):
    (yolo / "labels/train/1.txt").write_text(line)
    with pytest.raises(InputError, match=message):
        read(YoloBoxes(str(yolo / "images/train")))


def test_yolo_without_names_of_classes_is_refused(yolo):
    (yolo / "classes.txt").unlink()
    with pytest.raises(InputError, match="names no classes, and path=.* has no classes.txt"):
        read(YoloBoxes(str(yolo / "images/train")))
    names = ("cat", "dog", "cow")
    assert YoloBoxes(str(yolo / "images/train"), class_names=names).read_classes() == names


@pytest.mark.parametrize(
    ("options", "box"),
    [
        ({}, [4.0, 5.0, 8.0, 10.0]),
        ({"box_format": "xyxy"}, [4.0, 5.0, 12.0, 15.0]),
        ({"box_format": "cxcywh", "relative": True}, [0.2, 0.5, 0.2, 0.5]),
        ({"box_format": "yxyx", "relative": True}, [0.25, 0.1, 0.75, 0.3]),
    ],
)
def test_records_have_boxes_in_four_forms(folder, options, box):
    rows = [
        {"image": {"bytes": png(0), "path": None}, "objects": {"bbox": [box], "category": [1]}},
        {"image": {"bytes": png(1), "path": None}, "objects": {"bbox": [], "category": []}},
        {"image": {"bytes": b"none", "path": None}, "objects": {"bbox": [box], "category": [0]}},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    source = BoxedImages(ParquetFiles((str(folder / "a.parquet"),)), ("cat", "dog"), **options)
    one, empty, broken = source.read_boxed()
    np.testing.assert_allclose(one.objects.boxes, [[0.1, 0.25, 0.3, 0.75]])
    assert one.objects.classes == (1,)
    assert one.objects.size == (20, 40)
    assert empty.objects.boxes == ()
    assert isinstance(broken.image, BadImageError)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"bbox": [[1.0, 2.0, 3.0]], "category": [0]}, r"boxes='objects/bbox' has \[1.0, 2.0, 3.0\] in .*not four"),
        ({"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [0, 1]}, "has 1 and labels='objects/category' 2 in"),
        ({"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [7]}, "7"),
        ({"bbox": [[1.0, 2.0, 0.0, 4.0]], "category": [0]}, "1 without area; the first is box 1 of"),
        ({"box": [[1.0, 2.0, 0.0, 4.0]], "category": [0]}, "objects/bbox"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(folder, objects, message):
    rows = [{"image": {"bytes": png(0), "path": None}, "objects": objects}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    with pytest.raises(InputError, match=message):
        list(BoxedImages(ParquetFiles((str(folder / "a.parquet"),)), ("cat", "dog")).read_boxed())
