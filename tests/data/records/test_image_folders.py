"""Folders of pictures, on a disk and in a bucket, as people have them."""

import os
from dataclasses import replace

import fsspec
import numpy as np
import pytest
from PIL import Image

from t5x_lite.data import Data, ImageFolder, Images, SentencePiece
from t5x_lite.data.records import remote_files
from t5x_lite.data.records.images import ImageFiles
from t5x_lite.errors import InputError
from t5x_lite.images import BadImageError

CLASSES = ("cats", "dogs", "ducks 🦆")


def write_picture(path, number=0, size=(6, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Three classes of four pictures, one of them in a folder below."""
    folder = tmp_path / "pictures"
    for number in range(12):
        name = ("{}/{}.png", "{}/{}.JPG", "{}/more/größe {}.webp", "{}/{}.bmp")[number // 3]
        write_picture(folder / name.format(CLASSES[number % 3], number), number)
    return folder


def read(source):
    return {one.location: (one.image, one.label) for one in source.read_images()}


def test_a_folder_is_a_class(folder):
    (folder / ".hidden").mkdir()
    write_picture(folder / ".hidden" / "x.png")
    (folder / "cats" / "._1.png").write_bytes(b"of a Mac")
    (folder / "cats" / "Thumbs.db").write_bytes(b"of Windows")
    (folder / "README.md").write_text("of people")
    source = ImageFolder(str(folder))
    assert source.classes == source.read_classes() == CLASSES and source.has_answers
    images = read(source)
    assert len(images) == 12
    for location, (image, label) in images.items():
        with open(location, "rb") as file:
            assert file.read() == image
        assert f"/{CLASSES[label]}/" in location
    # The classes are mixed: whatever is read first is of all of them.
    assert [label for _, label in images.values()] != sorted(label for _, label in images.values())
    assert list(read(source)) == list(images)
    number = 1 + list(images).index(source.location(4))
    assert number == 4


def test_class_names_give_the_numbers(folder):
    names = ("ducks 🦆", "none yet", "cats", "dogs")
    source = ImageFolder(str(folder), class_names=names)
    assert source.classes == source.read_classes() == names
    assert all(f"/{names[label]}/" in location for location, (_, label) in read(source).items())
    assert source.fingerprint() != ImageFolder(str(folder)).fingerprint()


def test_a_folder_without_folders_has_no_labels(folder):
    source = ImageFolder(str(folder / "cats" / "more"))
    assert source.classes is None and not source.has_answers
    assert [label for _, label in read(source).values()] == [-1]
    with pytest.raises(InputError, match="has no folders, and class_names names them; leave it out"):
        read(ImageFolder(source.path, class_names=("a", "b")))
    with pytest.raises(InputError, match="has pictures and no folders of classes; put those of each"):
        source.read_classes()


def test_the_fingerprint_follows_the_files(folder):
    source = ImageFolder(str(folder))
    prints = [source.fingerprint(), source.fingerprint()]
    moved = folder.rename(folder.with_name("elsewhere"))
    prints.append(ImageFolder(str(moved)).fingerprint())
    assert len(set(prints)) == 1
    os.utime(moved / "cats" / "0.png", (1e9, 1e9))
    prints.append(ImageFolder(str(moved)).fingerprint())
    write_picture(moved / "dogs" / "new.png", 99)
    prints.append(ImageFolder(str(moved)).fingerprint())
    assert len(set(prints)) == 3
    assert replace(ImageFolder(str(moved)), broken="skip").fingerprint() == prints[-1], "the same rows"


def test_links_are_followed_and_loops_are_not(folder, tmp_path):
    write_picture(tmp_path / "other" / "far.png", 50)
    (folder / "cats" / "linked").symlink_to(tmp_path / "other")
    (folder / "cats" / "again").symlink_to(folder)
    (folder / "dogs" / "itself").symlink_to(folder / "dogs")
    (folder / "dogs" / "a.png").symlink_to(folder / "dogs" / "b.png")
    (folder / "dogs" / "b.png").symlink_to(folder / "dogs" / "a.png")
    (folder / "dogs" / "nowhere.png").symlink_to(tmp_path / "missing")
    images = read(ImageFolder(str(folder)))
    assert len(images) == 16
    bad = {name.rpartition("/")[2]: image for name, (image, _) in images.items() if isinstance(image, BadImageError)}
    assert sorted(bad) == ["a.png", "b.png", "nowhere.png"]
    assert {one.problem for one in bad.values()} == {"unreadable"}
    assert "Too many levels of symbolic links" in bad["a.png"].detail and "No such file" in bad["nowhere.png"].detail


def test_a_pipe_is_not_waited_for(folder):
    os.mkfifo(folder / "cats" / "pipe.png")
    (found,) = (image for image, _ in read(ImageFolder(str(folder))).values() if isinstance(image, BadImageError))
    assert found.problem == "not a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_permissions(folder):
    (folder / "cats" / "0.png").chmod(0)
    (found,) = (image for image, _ in read(ImageFolder(str(folder))).values() if isinstance(image, BadImageError))
    assert "Permission denied" in found.detail
    (folder / "dogs").chmod(0)
    with pytest.raises(InputError, match="dogs cannot be read .Permission denied.; change its permissions"):
        ImageFolder(str(folder)).read_classes()
    (folder / "dogs").chmod(0o755)


def test_a_file_that_the_system_refuses(folder, monkeypatch):
    import pathlib

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "read_bytes", refuse)
    assert {image.detail for image, _ in read(ImageFolder(str(folder))).values()} == {"unreadable (Permission denied)"}


def test_a_bucket_is_read_as_a_disk_is(folder):
    files = fsspec.filesystem("memory")
    files.put(str(folder), "/pictures", recursive=True)
    local, remote = ImageFolder(str(folder)), ImageFolder("memory://pictures")
    assert remote.read_classes() == CLASSES and remote.classes == () and remote.has_answers
    here, there = (
        {name.partition("pictures/")[2]: content for name, content in read(one).items()} for one in (local, remote)
    )
    assert list(here.items()) == list(there.items())
    before, (shard,) = remote.fingerprint(), remote.shards()
    files.rm("/pictures/cats/0.png")
    assert remote.fingerprint() != before
    found = {name: image.problem for name, (image, _) in read(shard).items() if isinstance(image, BadImageError)}
    assert found == {"memory://pictures/cats/0.png": "unreadable"}
    files.rm("/pictures", recursive=True)
    with pytest.raises(InputError, match="path='memory://pictures' holds no picture"):
        remote.read_classes()


def test_a_bucket_that_cannot_be_reached_is_not_a_broken_picture(monkeypatch):
    class Lost(type(fsspec.filesystem("memory"))):
        cachable = False

        def cat_file(self, path, **options):
            raise ConnectionError("no route")

    monkeypatch.setattr(remote_files, "_FIRST_WAIT", 0.0)
    monkeypatch.setattr(remote_files, "_file_system", lambda url: (Lost(), url))
    files = ImageFiles("memory://pictures", ("a.png",))
    with pytest.raises(InputError, match="memory://pictures/a.png cannot be read .ConnectionError: no route.; see"):
        list(files.read_images())


def test_shards_are_the_folder_in_order(folder, monkeypatch):
    from t5x_lite.data.records import images

    monkeypatch.setattr(images, "_SHARD_FILES", 5)
    source = ImageFolder(str(folder), broken="skip")
    shards = source.shards()
    assert [len(shard.names) for shard in shards] == [5, 5, 2]
    together = {name: content for shard in shards for name, content in read(shard).items()}
    assert list(together.items()) == list(read(source).items())
    monkeypatch.setattr(images, "_SHARD_BYTES", 400)
    assert len(source.shards()) > 3
    assert {name for shard in source.shards() for name in shard.names} == set(shards[0].names).union(
        *(one.names for one in shards)
    )


BAD = {
    "missing": (lambda f: f / "x", {}, "path='.*/x' does not exist .seen from .*; name a folder of pictures"),
    "a file": (lambda f: f / "cats" / "0.png", {}, "is a file; name a folder of pictures"),
    "empty": (lambda f: f / "empty", {}, r"holds no picture \(.jpg, .jpeg, .jfif, .png, .webp, .gif, .bmp\); correct"),
    "one class": (lambda f: f / "one", {}, r"has one class \('cats'\), of which there is nothing to"),
    "beside": (lambda f: f / "beside", {}, "has 2 pictures beside the folders of the classes, such as 1.png, 2.png"),
    "an empty class": (lambda f: f / "gap", {}, "has folders without a picture: dogs; fill or remove"),
    "splits": (lambda f: f / "splits", {}, "folders Train, val, which are splits .*; give one, such as .*/Train"),
    "a link": (lambda f: f / "linked", {}, "linked/dogs is a link to nothing; correct or remove it"),
    "unknown folders": (lambda f: f, {"class_names": ("cats", "dogs")}, "not name: .*ducks .*; it names cats, dogs:"),
    "no folders": (lambda f: f / "cats" / "more", {"class_names": ("a", "b")}, "pictures and no folders of classes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_folders_end_in_a_sentence(folder, name):
    (folder / "empty").mkdir()
    write_picture(folder / "one" / "cats" / "1.png")
    for which in ("cats/0.png", "dogs/0.png", "1.png", "2.png"):
        write_picture(folder / "beside" / which)
    write_picture(folder / "gap" / "cats" / "1.png")
    (folder / "gap" / "dogs").mkdir()
    for which in ("splits/Train/1.png", "splits/val/1.png", "linked/cats/1.png"):
        write_picture(folder / which)
    where, options, message = BAD[name]
    if name == "a link":
        (folder / "linked" / "dogs").symlink_to(folder / "nowhere")
    if name != "unknown folders":
        folder = folder.rename(folder.with_name("all"))
    with pytest.raises(InputError, match=message) as raised:
        ImageFolder(str(where(folder)), **options).read_classes()
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_classes_wait_for_what_reading_refuses(folder):
    (folder / "empty").mkdir()
    (folder / "empty" / ".DS_Store").write_bytes(b"of a Mac")
    assert ImageFolder(str(folder)).classes == ()
    write_picture(folder / "empty" / "1.JFIF".lower())
    assert ImageFolder(str(folder)).classes == ("cats", "dogs", "ducks 🦆", "empty")
    assert ImageFolder(str(folder)).read_classes()[-1] == "empty"


def test_splits_may_be_classes(folder):
    for name in ("train", "test"):
        write_picture(folder / "of" / name / "1.png")
    named = ImageFolder(str(folder / "of"), class_names=("train", "test"))
    assert sorted(label for _, label in read(named).values()) == [0, 1]


def test_bad_options_end_in_a_sentence(folder):
    with pytest.raises(InputError, match="path='' is not the name of a folder"):
        ImageFolder("")
    with pytest.raises(InputError, match=r"class_names=\('a', 'a'\) names one of them twice"):
        ImageFolder(str(folder), class_names=("a", "a"))
    with pytest.raises(InputError, match="broken='ignore' is unknown; choose refuse or skip"):
        ImageFolder(str(folder), broken="ignore")
    with pytest.raises(InputError, match="has pictures and no text to train a tokenizer on; set data.tokenizer=None"):
        Data(ImageFolder(str(folder)), SentencePiece(100), cache_dir=str(folder / "cache")).prepare(Images(4, 4))


def test_held_out_classes_must_be_the_same(folder, tmp_path):
    for name in CLASSES[1:]:
        write_picture(tmp_path / "held" / name / "1.png")
    data = Data(ImageFolder(str(folder)), None, held_out_source=ImageFolder(str(tmp_path / "held")))
    data = replace(data, cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"held_out_source has the 2 classes \(dogs, ducks 🦆\) and source the 3 .*"):
        data.prepare(Images(4, 4))
    held = replace(data.held_out_source, class_names=CLASSES)
    store = replace(data, held_out_source=held).prepare(Images(4, 4))
    assert store.classes == CLASSES and {int(row["label"]) for row in store.held_out} == {1, 2}
