"""Pictures with texts: tables, folders, records."""

import io
import json

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from t5x_lite.data import CaptionedImages, CaptionFolder, CaptionTable, ParquetFiles
from t5x_lite.errors import InputError
from t5x_lite.images import BadImageError


def png(number=0) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (5, 4, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


NAMES = ("a/0.png", "a/1.png", "2.png")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(png(number))
        (tmp_path / name).with_suffix(".txt").write_text(f" text {number} \n\nanother\n")
    return tmp_path


def read(source):
    return {one.image: one.captions for one in source.read_captioned()}


def write_table(folder, ending, rows, names=("image", "caption", "tags")):
    path = folder / f"table{ending}"
    if ending == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    elif ending == ".parquet":
        parquet.write_table(pyarrow.table({n: [row[i] for row in rows] for i, n in enumerate(names)}), path)
    else:
        separator = "," if ending == ".csv" else "\t"
        path.write_text("".join(separator.join(row) + "\n" for row in (names, *rows)))
    return str(path)


def test_a_folder_has_the_texts_beside_its_pictures(folder):
    source = CaptionFolder(str(folder))
    assert read(source) == {png(number): (f"text {number}", "another") for number in range(3)}
    assert sorted(source.documents()) == sorted(["text 0", "text 1", "text 2", *3 * ["another"]])
    before = source.fingerprint()
    (folder / "2.txt").write_text("other text")
    assert source.fingerprint() != before


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_rows_of_one_picture_are_its_texts(folder, ending):
    rows = [("2.png", "one", "x"), ("a/0.png", "zero", ""), ("2.png", "two", "y")]
    path = write_table(folder, ending, rows)
    assert read(CaptionTable(path)) == {png(2): ("one", "two"), png(0): ("zero",)}
    assert read(CaptionTable(path, captions=("caption", "tags"))) == {
        png(2): ("one", "x", "two", "y"),
        png(0): ("zero",),
    }
    moved = folder / "elsewhere"
    moved.mkdir()
    path = write_table(moved, ending, rows)
    assert read(CaptionTable(path, root=str(folder))).keys() == {png(2), png(0)}


@pytest.mark.parametrize("ending", [".tsv", ".jsonl", ".parquet"])
def test_a_column_may_say_what_is_read(folder, ending):
    rows = [("2.png", "one", "x"), ("a/0.png", "zero", "y"), ("2.png", "two", "y")]
    path = write_table(folder, ending, rows)
    assert read(CaptionTable(path, split=("tags", "x"))) == {png(2): ("one",)}
    assert read(CaptionTable(path, split=("tags", "y"))) == {png(0): ("zero",), png(2): ("two",)}
    assert list(CaptionTable(path, split=("tags", "x")).documents()) == ["one"]
    assert len({CaptionTable(path, split=s).fingerprint() for s in (None, ("tags", "x"), ("tags", "y"))}) == 3
    with pytest.raises(InputError, match="tags='z'"):
        list(CaptionTable(path, split=("tags", "z")).read_captioned())


def test_records_hold_bytes_and_lists_of_texts(folder):
    path = folder / "records.parquet"
    rows = [
        {"image": {"bytes": png(0), "path": None}, "texts": ["a", " ", "b"]},
        {"image": {"bytes": png(1), "path": None}, "texts": ["c"]},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    expected = {png(0): ("a", "b"), png(1): ("c",)}
    assert read(CaptionedImages(ParquetFiles((str(path),)), captions=("texts",))) == expected
    assert read(CaptionTable(str(path), captions=("texts",))) == expected


def without_text(folder):
    (folder / "a/1.txt").unlink()
    return CaptionFolder(str(folder))


def empty_text(folder):
    (folder / "a/1.txt").write_text(" \n")
    return CaptionFolder(str(folder))


def latin_text(folder):
    (folder / "a/1.txt").write_bytes("Bär".encode("latin-1"))
    return CaptionFolder(str(folder))


def table(*rows, **options):
    return lambda folder: CaptionTable(write_table(folder, ".jsonl", rows), **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            without_text,
            r"a/1\.txt is missing|a/1\.txt is not there|a/1\.txt .*write the texts of the picture beside it",
        ),
        (empty_text, r"a/1\.txt is empty; write the texts"),
        (latin_text, r"a/1\.txt is not UTF-8; save it as such"),
        (lambda folder: CaptionFolder(""), "path='' is not the name of a folder of pictures; give one"),
        (lambda folder: CaptionFolder(str(folder / "b")), "b"),
        (table(("2.png", " ", "x")), r"table.jsonl:1 has no text in caption; write one, or remove the record"),
        (table(("2.png", 3, "x")), r"captions='caption' is '3' in .*table.jsonl:1; set captions to fields of texts"),
        (table(("2.png", "a", "x"), captions=("text",)), "captions='text'"),
        (table(("2.png", "a", "x"), captions=()), "names no field or one twice"),
        (table(("2.png", "a", "x"), captions=("tags", "tags")), "names no field or one twice"),
    ],
)
def test_what_is_wrong_with_texts_is_said(folder, source, message):
    with pytest.raises(InputError, match=message):
        list(source(folder).read_captioned())


def test_a_picture_that_is_not_there_is_named_or_left_out(folder):
    made = table(("2.png", "a", "x"), ("gone.png", "b", "x"))(folder)
    images = [one.image for one in made.read_captioned()]
    assert images[0] == png(2)
    assert isinstance(images[1], BadImageError)
