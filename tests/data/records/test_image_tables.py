"""Tables of pictures and their labels; records of other sources; arrays; subsets with few labels."""

import io
import json

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from t5x_lite.data import (
    Digits,
    ImageArrays,
    ImageFolder,
    Images,
    ImageSubset,
    ImageTable,
    JoinedRecords,
    JsonlFiles,
    LabeledImages,
    ParquetFiles,
    Tfds,
)
from t5x_lite.data.records import images
from t5x_lite.errors import InputError
from t5x_lite.images import BadImageError, decode_image


def png(number=0, size=(5, 4)) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def read(source):
    return [(one.image, one.label) for one in source.read_images()]


ROWS = [("a/0.png", "dog"), ("a/1.png", "cat"), ("2.png", "dog"), ("2.png", "bird")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for number, name in enumerate(("a/0.png", "a/1.png", "2.png")):
        (tmp_path / name).write_bytes(png(number))
    return tmp_path


def write_table(folder, ending, rows=ROWS, names=("image", "label")):
    path = folder / f"table{ending}"
    if ending == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    elif ending == ".parquet":
        parquet.write_table(pyarrow.table({n: [row[i] for row in rows] for i, n in enumerate(names)}), path)
    else:
        separator = "," if ending == ".csv" else "\t"
        path.write_text("".join(separator.join(map(str, row)) + "\n" for row in (names, *rows)))
    return str(path)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_paths_are_seen_from_the_table(folder, ending, monkeypatch):
    source = ImageTable(write_table(folder, ending))
    assert source.read_classes() == ("bird", "cat", "dog") and source.classes == ()
    expected = [(png(0), 2), (png(1), 1), (png(2), 2), (png(2), 0)]
    assert read(source) == expected
    named = ImageTable(source.path, class_names=("dog", "cat", "bird"))
    assert [label for _, label in read(named)] == [0, 1, 0, 2] and named.fingerprint() != source.fingerprint()
    assert [label for _, label in read(ImageTable(source.path, label=""))] == [-1] * 4
    monkeypatch.setattr(images, "_SHARD_FILES", 3)
    assert [image for shard in source.shards() for image in read(shard)] == expected
    locations = [one.location for one in source.read_images()]
    assert locations[0].startswith(source.path) and len(set(locations)) == 4
    assert source.location(3) == locations[2]
    if ending != ".parquet":
        assert len(source.shards()) == 2 and locations[0].endswith("(a/0.png)")


def test_absolute_paths_and_changed_pictures(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "3.png"
    elsewhere.write_bytes(png(3))
    source = ImageTable(write_table(folder, ".csv", [(elsewhere, "b"), ("2.png", "a")]))
    assert read(source) == [(png(3), 1), (png(2), 0)]
    before = source.fingerprint()
    elsewhere.write_bytes(png(4, (9, 9)))
    assert source.fingerprint() != before


def test_numbers_as_labels(folder):
    rows = [(name, number) for (name, _), number in zip(ROWS, (10, 9, 10, 2), strict=True)]
    for ending in (".csv", ".jsonl", ".parquet"):
        source = ImageTable(write_table(folder, ending, rows))
        assert source.read_classes() == ("2", "9", "10")
        assert [label for _, label in read(source)] == [2, 1, 2, 0]
    rows = [(name, number) for (name, _), number in zip(ROWS, (1, 0, 1, 2), strict=True)]
    source = ImageTable(write_table(folder, ".csv", rows), class_names=("x", "y", "z"))
    assert [label for _, label in read(source)] == [1, 0, 1, 2]


def hugging_face_table(path, numbers, names=("cat", "dog")):
    """As `datasets` writes one."""
    rows = {"image": [{"bytes": png(n), "path": f"{n}.png"} for n in numbers], "label": [n % 2 for n in numbers]}
    features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
    table = pyarrow.table(rows).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, path)


def test_bytes_and_names_of_hugging_face(tmp_path):
    for part in range(3):
        hugging_face_table(tmp_path / f"train-{part:05d}-of-00003.parquet", range(part * 2, part * 2 + 2))
    source = ImageTable(str(tmp_path / "train-*.parquet"))
    assert source.read_classes() == ("cat", "dog")
    assert read(source) == [(png(n), n % 2) for n in range(6)]
    assert read(LabeledImages(ParquetFiles((str(tmp_path),)), class_names=("cat", "dog"))) == read(source)
    both = [ParquetFiles((str(tmp_path / f"train-0000{part}*"),)) for part in (0, 2)]
    joined = LabeledImages(JoinedRecords(tuple(both)), class_names=("cat", "dog"))
    assert len(joined.shards()) == 2 and [image for shard in joined.shards() for image in read(shard)] == read(joined)


def test_the_hub_streams_encoded_pictures(tmp_path):
    pytest.importorskip("datasets", reason="pip install datasets")
    from t5x_lite.data import HuggingFaceDataset

    hugging_face_table(tmp_path / "train.parquet", range(4))
    source = LabeledImages(HuggingFaceDataset(str(tmp_path)))
    assert source.read_classes() == ("cat", "dog")
    assert read(source) == [(png(n), n % 2) for n in range(4)]


def test_a_dataset_of_tfds(tmp_path, write_dataset):
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(shape=(None, None, 3)), "label": tfds.features.ClassLabel(names=["cat", "dog"])}
    )
    # TFDS encodes pictures by TensorFlow; files go in as they are.
    files = []
    for number in range(4):
        files.append(tmp_path / f"{number}.png")
        files[-1].write_bytes(png(number))
    rows = [{"image": str(file), "label": n % 2} for n, file in enumerate(files)]
    write_dataset(tmp_path / "tiny" / "1.0.0", features, train=rows)
    source = LabeledImages(Tfds("tiny", data_dir=str(tmp_path)))
    assert source.read_classes() == ("cat", "dog")
    assert read(source) == [(png(n), n % 2) for n in range(4)]


def test_a_picture_that_is_not_there(folder):
    rows = [*ROWS, ("gone.png", "cat"), ("a", "cat"), ("nul\0.png", "dog")]
    for ending in (".csv", ".parquet"):
        found = [one for one, _ in read(ImageTable(write_table(folder, ending, rows))) if not isinstance(one, bytes)]
        assert all(isinstance(one, BadImageError) for one in found)
        assert [one.problem for one in found] == ["unreadable", "not a file", "unreadable"]
    records = folder / "missing.parquet"
    of_image = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    image = pyarrow.array([{"bytes": None, "path": None}], of_image)
    parquet.write_table(pyarrow.table({"image": image, "label": ["a"]}), records)
    (found,) = read(LabeledImages(ParquetFiles((str(records),)), class_names=("a", "b")))
    assert found[0].problem == "missing"


BAD_TABLES = {
    "no such column": (".csv", ROWS, {"image": "file"}, "image='file' is missing in .*table.csv:2, which has 'image'"),
    "no labels": (".csv", ROWS, {"label": "class"}, "label='class' is missing in .*, which has 'image', 'label'; set"),
    "an empty label": (".csv", [*ROWS, ("2.png", " ")], {}, "label='label' is empty in .*table.csv:6; fill it"),
    "no picture": (".csv", [*ROWS, ("", "dog")], {}, "image='image' is '' in .*:6; write the path of a picture"),
    "unknown labels": (
        *(".csv", [*ROWS, ("2.png", "cow"), ("2.png", "cow")], {"class_names": ("bird", "cat", "dog")}),
        "has labels that class_names=.* does not know: 'cow' 2 times, the first in .*:6; correct them",
    ),
    "out of range": (
        *(".jsonl", [("2.png", 0), ("2.png", 1), ("2.png", 2)], {"class_names": ("cat", "dog")}),
        "does not know: '2' 1 times, the first in .*jsonl:3",
    ),
    "one class": (".tsv", [("2.png", "a"), ("a/0.png", "a")], {}, "has one class .'a'., of which there is nothing"),
    "numbers for pictures": (".jsonl", [(3, "a"), (4, "b")], {}, "image='image' is 3 in .*; write the path"),
    "a table of nothing": (".csv", [], {"label": ""}, "names no pictures; give some"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_end_in_a_sentence(folder, name):
    ending, rows, options, message = BAD_TABLES[name]
    source = ImageTable(write_table(folder, ending, rows), **options)
    with pytest.raises(InputError, match=message):
        if source.label:
            source.read_classes()
        read(source)


def test_other_bad_choices(folder):
    with pytest.raises(InputError, match="is not a table of pictures; name one .csv"):
        read(ImageTable(str(folder / "2.png")))
    with pytest.raises(InputError, match="path='.*none.csv': the file or folder does not exist"):
        read(ImageTable(str(folder / "none.csv")))
    with pytest.raises(InputError, match="label='' names no column of labels"):
        ImageTable(write_table(folder, ".csv"), label="").read_classes()
    records = JsonlFiles((write_table(folder, ".jsonl"),))
    with pytest.raises(InputError, match="names no classes, which the data do not name either"):
        LabeledImages(records).read_classes()
    with pytest.raises(InputError, match="image='image' is 'a/0.png' in .*; set image to .* or root to the folder"):
        read(LabeledImages(records, class_names=("cat", "dog", "bird")))
    with pytest.raises(InputError, match="class_names=.* is one class"):
        ImageTable("x.csv", class_names=("a",))


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
LABELS = np.array([2, 0, 1, 2, 0, 1], np.uint8)


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return str(path)


@pytest.mark.parametrize("pixels", [PIXELS, PIXELS[..., 0], PIXELS[..., :1]], ids=["RGB", "grey", "one channel"])
def test_arrays(tmp_path, pixels):
    path = save(tmp_path / "x.npz", images=pixels, labels=LABELS, other=np.arange(3))
    source = ImageArrays(path)
    assert source.read_classes() == ("0", "1", "2")
    for (image, label), pixel, number in zip(read(source), pixels, LABELS, strict=True):
        np.testing.assert_array_equal(image, pixel)
        assert label == number
    shape = (4, 5, 3 if pixels.shape[3:] == (3,) else 1)
    row = next(Images(*shape).tokenize([next(source.read_images())], None, "line"))
    np.testing.assert_array_equal(decode_image(row[0][0].content, shape).reshape(pixels[0].shape), pixels[0])
    assert ImageArrays(path, class_names=("a", "b", "c", "d")).read_classes() == ("a", "b", "c", "d")


def test_arrays_by_the_names_of_a_split(tmp_path):
    names = np.array(["b", "a", "b", "a", "c", "c"])
    path = save(tmp_path / "x.npz", train_images=PIXELS, train_labels=names, test_images=PIXELS[:2])
    source = ImageArrays(path, "train_images", "train_labels")
    assert source.read_classes() == ("a", "b", "c") and [label for _, label in read(source)] == [1, 0, 1, 0, 2, 2]
    unlabeled = ImageArrays(path, "test_images", "")
    assert [label for _, label in read(unlabeled)] == [-1, -1] and unlabeled.classes is None
    assert source.fingerprint() != unlabeled.fingerprint()
    column = save(tmp_path / "y.npz", images=PIXELS, labels=LABELS[:, None])
    assert [label for _, label in read(ImageArrays(column))] == LABELS.tolist()


BAD_ARRAYS = {
    "floats": ({"images": PIXELS / 255.0}, "'images' has type float64; give uint8, from 0 to 255"),
    "no third dimension": ({"images": PIXELS[:, :, 0, 0]}, r"'images' has shape \[6, 4\]; give \[N, H, W\] or"),
    "channels first": ({"images": PIXELS.transpose(0, 3, 1, 2)}, "of 1, 3 or 4 channels, so move the channels"),
    "no height": ({"images": PIXELS[:, :0]}, r"has shape \[6, 0, 5, 3\]; give"),
    "no pictures": ({"images": PIXELS[:0], "labels": LABELS[:0]}, "'images' has no pictures; give some"),
    "too few labels": ({"labels": LABELS[:5]}, r"'labels' has shape \[5\] and there are 6 pictures; give the number"),
    "one hot": ({"labels": np.eye(6)}, r"has shape \[6, 6\] .*; of one-hot labels take argmax\(axis=1\)"),
    "float labels": ({"labels": LABELS * 1.0}, "'labels' has type float64; give numbers of classes, or"),
    "negative labels": ({"labels": LABELS.astype(int) - 1}, "does not know: '-1' 2 times, the first in picture 1 of"),
    "no label": ({"labels": LABELS.astype(int) - 3}, "'-1' 2 times, .*; number the classes from 0"),
    "identifiers": ({"labels": LABELS.astype(int) << 40}, "has the label 2199023255552, .* from 0 to 1,048,575"),
    "bytes for names": ({"labels": LABELS.astype("S")}, "has type .S3; give .* or their names as str"),
    "one class": ({"labels": LABELS * 0}, "has one class .'0'., of which there is nothing to learn"),
    "objects": ({"images": np.array([PIXELS[0], "x"], object)}, "allow_pickle=False.*write arrays of uint8 by"),
    "other names": ({"images": None, "x_train": PIXELS}, "has no array 'images', but .*'x_train'; set"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_bad_arrays_end_in_a_sentence(tmp_path, name):
    changes, message = BAD_ARRAYS[name]
    arrays = {"images": PIXELS, "labels": LABELS} | changes
    path = save(tmp_path / "x.npz", **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(InputError, match=message):
        ImageArrays(path).read_classes()


def test_labels_beyond_the_names(tmp_path):
    path = save(tmp_path / "x.npz", images=PIXELS, labels=LABELS)
    with pytest.raises(InputError, match=r"class_names=\('a', 'b'\) does not know: '2' 2 times, .*; give 0 to 1"):
        ImageArrays(path, class_names=("a", "b")).read_classes()


def test_files_that_are_not_arrays(tmp_path):
    path = save(tmp_path / "x.npz", images=PIXELS, labels=LABELS)
    whole = (tmp_path / "x.npz").read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:200] + b"\0" * 50 + whole[250:]):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(InputError, match=r"cannot be read as NumPy's .npz \(.*\); copy it again"):
            ImageArrays(path).read_classes()
    with pytest.raises(InputError, match="path='x.npy' does not end in .npz; name such a file"):
        ImageArrays("x.npy").read_classes()
    with pytest.raises(InputError, match="^path='none.npz' does not exist"):
        ImageArrays("none.npz").read_classes()


def test_digits_need_no_file():
    train, test = list(Digits().read_images()), list(Digits("test").read_images())
    assert (len(train), len(test)) == (1437, 360)
    assert {one.image.shape for one in train + test} == {(8, 8)} and max(one.image.max() for one in train) == 255
    assert {one.label for one in test} == set(range(10)) and Digits().classes == tuple("0123456789")
    contents = {one.image.tobytes() for one in train}
    assert sum(one.image.tobytes() in contents for one in test) < 3
    assert Digits().fingerprint() != Digits("test").fingerprint()


def locations(source):
    return [one.location for one in source.read_images()]


def test_subset_has_as_many_of_each_class():
    few, more = ImageSubset(Digits(), per_class=3), ImageSubset(Digits(), per_class=30)
    labels = [label for _, label in read(few)]
    assert sorted(labels) == sorted([*range(10)] * 3) and labels != sorted(labels)
    assert len(set(locations(more))) == 300 and set(locations(few)) < set(locations(more))
    every, chosen = locations(Digits()), locations(few)
    assert chosen == [one for one in every if one in chosen] and chosen != every[:30]
    other = ImageSubset(Digits(), per_class=3, seed=1)
    assert locations(few) == locations(ImageSubset(Digits(), 3)) and set(locations(few)) != set(locations(other))
    assert len({one.fingerprint() for one in (few, more, other, ImageSubset(Digits("test"), 3))}) == 4
    assert few.classes == few.read_classes() == Digits().classes and few.has_answers


def test_subset_of_a_folder_reads_its_pictures_alone(tmp_path, monkeypatch):
    for number in range(12):
        path = tmp_path / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(number))
    monkeypatch.setattr(images, "_SHARD_FILES", 5)
    folder, opened = ImageFolder(str(tmp_path)), []
    pictures = {one.location: one for one in folder.read_images()}
    read_picture = images.read_picture
    monkeypatch.setattr(images, "read_picture", lambda path: opened.append(path) or read_picture(path))
    drawn = list(ImageSubset(folder, per_class=2).read_images())
    assert len(folder.shards()) == 3 and sorted(opened) == sorted(one.location for one in drawn)
    assert sorted(one.label for one in drawn) == [0, 0, 1, 1, 2, 2]
    assert all(one == pictures[one.location] for one in drawn)
    assert ImageSubset(ImageFolder(str(tmp_path), broken="skip"), 2).broken == "skip"


def test_subset_beyond_a_class(tmp_path):
    path = save(tmp_path / "x.npz", images=PIXELS, labels=LABELS)
    with pytest.raises(InputError, match="per_class=3 is more than the 2 pictures of class '0'; choose 2 or less"):
        read(ImageSubset(ImageArrays(path), 3))
    with pytest.raises(InputError, match="1 is more than the 0 pictures of class 'd'; add some, or leave it out"):
        read(ImageSubset(ImageArrays(path, class_names=("a", "b", "c", "d")), 1))
    with pytest.raises(InputError, match="labels='' names no array of labels"):
        read(ImageSubset(ImageArrays(path, labels=""), 1))
