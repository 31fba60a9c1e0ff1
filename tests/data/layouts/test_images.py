"""Rows of pictures: what a store keeps of files, what batches have, and what becomes of broken files."""

import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from t5x_lite.data import Data, Digits, ImageArrays, ImageFolder, Images, batches, evaluation_batches, stored_rows
from t5x_lite.data.records import images
from t5x_lite.errors import InputError
from t5x_lite.images import decode_image

LAYOUT = Images(12, 16)
FORMATS = ("jpg", "png", "webp", "gif")


def picture(number) -> Image.Image:
    """A distinct one, of a size of its own."""
    y, x = np.mgrid[: 20 + number % 4, : 29 + number % 3]
    pixels = np.stack([x * 8 + number, y * 9 + number * 3, x + y + number * 5], axis=-1) % 256
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Sixty pictures of three classes in four formats, in five shards."""
    monkeypatch.setattr(images, "_SHARD_FILES", 12)
    for number in range(60):
        file = tmp_path / "pictures" / "abc"[number % 3] / f"{number}.{FORMATS[number % 4]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(file)
    return tmp_path / "pictures"


def prepare(folder, cache, layout=LAYOUT, workers=1, held_out=0.2, **options):
    data = Data(ImageFolder(str(folder), **options), None, held_out=held_out, cache_dir=str(cache))
    return data.prepare(layout, workers=workers)


def contents(store) -> dict[str, bytes]:
    return {str(path.relative_to(store.path)): path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def test_rows_are_the_files(folder, tmp_path):
    store = prepare(folder, tmp_path / "cache")
    assert store.tokenizer is None and store.classes == ("a", "b", "c")
    expected = {}
    for path in folder.glob("*/*"):
        pixels = decode_image(path.read_bytes(), (12, 16, 3))
        expected[pixels.tobytes()] = ("abc".index(path.parent.name), Image.open(path).size[::-1])
    assert len(expected) == 60
    rows = [*store.train[:], *store.held_out[:]]
    assert len(rows) == 60 and len(store.held_out) >= 5
    for row in rows:
        assert {name: (value.shape, value.dtype) for name, value in row.items()} == {
            "image": ((12, 16, 3), np.uint8),
            "size": ((2,), np.int32),
            "label": ((), np.int32),
        }
        assert expected.pop(row["image"].tobytes()) == (row["label"], tuple(row["size"].tolist()))
    counts = [store.figures[split].counts for split in ("train", "held_out")]
    assert sum(one["stored"].get("anew", 0) for one in counts) == 15, "GIF is stored as PNG"
    assert sum(sum(one["labels"].values()) for one in counts) == 60
    assert {size for one in counts for size in one["sizes"]} == {"16"}
    assert LAYOUT.throughput(8) == ("images", 8) and LAYOUT.num_ids == 0
    # The bytes of the other files are in the store as they are.
    kept = b"".join(content for name, content in contents(store).items() if name.endswith(".rows"))
    assert all(path.read_bytes() in kept for path in folder.glob("*/*.jpg"))


def test_without_labels(folder, tmp_path):
    layout = replace(LAYOUT, labels=False)
    store = prepare(folder, tmp_path / "cache", layout)
    assert set(store.train[0]) == {"image", "size"} and store.classes == () and not layout.has_examples
    flat = ImageFolder(str(folder / "a"))
    assert len(Data(flat, None, held_out=0.2, cache_dir=str(tmp_path / "cache")).prepare(layout).train) > 10
    with pytest.raises(InputError, match="has pictures and no folders of classes"):
        Data(flat, None, held_out=0.2, cache_dir=str(tmp_path / "cache")).prepare(LAYOUT)


def test_grey_rows(folder, tmp_path):
    store = prepare(folder, tmp_path / "cache", Images(5, 7, channels=1))
    assert store.train[0]["image"].shape == (5, 7, 1)


def test_copies_stay_on_one_side(folder, tmp_path):
    for path in list(folder.glob("*/*")):
        (path.parent.parent / "a" / f"copy of {path.name}").write_bytes(path.read_bytes())
    store = prepare(folder, tmp_path / "cache")
    sides = [{row["image"].tobytes() for row in rows[:]} for rows in (store.train, store.held_out)]
    assert len(store.train) + len(store.held_out) == 120 and not sides[0] & sides[1]
    assert len(list(store.held_out_documents())) == len(store.held_out)


def test_held_out_pictures_that_are_trained_on(folder, tmp_path):
    held = tmp_path / "held"
    for label, name in (("a", "0.jpg"), ("b", "0.jpg"), ("c", "new.png")):
        (held / label).mkdir(parents=True)
        if name == "0.jpg":
            (held / label / name).write_bytes((folder / "a" / name).read_bytes())
    picture(99).save(held / "c" / "new.png")
    data = Data(ImageFolder(str(folder)), None, held_out_source=ImageFolder(str(held)))
    (remark,) = replace(data, cache_dir=str(tmp_path / "cache")).prepare(LAYOUT).remarks
    assert remark.startswith("held-out: 2 of 3 images stand in the training data too, 1 of them with the same answer")
    assert re.search(r"the first is .*/held/[ab]/0.jpg", remark)


@pytest.mark.parametrize("batch_size", [4, 16])
def test_batches_do_not_depend_on_threads_or_hosts(folder, tmp_path, monkeypatch, batch_size):
    rows = prepare(folder, tmp_path / "cache").train
    options = {"batch_size": batch_size, "seed": 3}
    whole = batches(rows, **options)[5]
    assert whole["image"].shape == (batch_size, 12, 16, 3) and whole["label"].shape == (batch_size,)
    hosts = [batches(rows, local=range(host, batch_size, 2), **options)[5] for host in (0, 1)]
    for name, column in whole.items():
        np.testing.assert_array_equal(column[0::2], hosts[0][name])
        np.testing.assert_array_equal(column[1::2], hosts[1][name])
    monkeypatch.setattr(stored_rows, "_DECODED_TOGETHER", 1)
    again = batches(rows, **options)[5]
    by_pixels = {row["image"].tobytes(): row for row in rows}
    for number, image in enumerate(whole["image"]):
        for name, value in by_pixels[image.tobytes()].items():
            np.testing.assert_array_equal(value, whole[name][number])
            np.testing.assert_array_equal(value, again[name][number])
    valid = [np.sum(valid) for _, valid in evaluation_batches(rows, batch_size)]
    assert sum(valid) == len(rows)


def test_decoding_takes_several_threads(folder, tmp_path, monkeypatch):
    import threading

    rows, used = prepare(folder, tmp_path / "cache").train, set()
    decode = stored_rows.decode_image
    monkeypatch.setattr(stored_rows, "decode_image", lambda *a: used.add(threading.current_thread().name) or decode(*a))
    rows.__getitems__(range(40))
    assert used and all(name.startswith("decode images") for name in used)


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same(folder, tmp_path):
    stores = [prepare(folder, tmp_path / f"cache{workers}", workers=workers) for workers in (1, 3)]
    first, second = map(contents, stores)
    assert first == second and stores[0].key == stores[1].key
    assert len([name for name in first if name.startswith("train-")]) == 5


KILLED = """
import os, signal, sys
from t5x_lite.data import Data, ImageFolder, Images, write_store
from t5x_lite.data.records import images
images._SHARD_FILES = 12
done = write_store._write_shard
def die(task, number, report):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return done(task, number, report)
write_store._write_shard = die
Data(ImageFolder(sys.argv[1]), None, held_out=0.2, cache_dir=sys.argv[2]).prepare(Images(12, 16))
"""


def test_what_is_done_is_not_done_again_after_a_kill(folder, tmp_path, run_python, monkeypatch):
    from t5x_lite.data import write_store

    killed = run_python(KILLED, folder, tmp_path / "cache")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen, write = [], write_store._write_shard
    spy = lambda task, number, report: seen.append(number) or write(task, number, report)  # noqa: E731
    monkeypatch.setattr(write_store, "_write_shard", spy)
    monkeypatch.setattr(write_store, "_hash_shard", None)
    resumed = prepare(folder, tmp_path / "cache")
    assert seen == [2, 3, 4]
    monkeypatch.undo()
    monkeypatch.setattr(images, "_SHARD_FILES", 12)
    assert contents(resumed) == contents(prepare(folder, tmp_path / "other"))


def break_some(folder):
    """Seven of the files, in four ways."""
    files = sorted(folder.glob("*/*.png")) + sorted(folder.glob("*/*.jpg"))
    for path in files[:3]:
        path.write_bytes(path.read_bytes()[:60])
    files[3].write_bytes(b"")
    files[4].write_bytes(b"<html>404</html>")
    files[-1].write_bytes(files[-1].read_bytes()[:-50])
    Image.new("L", (4, 4)).save(folder / "b" / "scan.tif")
    return files[0]


def test_broken_files_are_refused_by_count_or_left_out(folder, tmp_path, monkeypatch):
    first = break_some(folder)
    with pytest.raises(InputError) as raised:
        prepare(folder, tmp_path / "cache")
    message = str(raised.value)
    assert message.startswith("7 of 61 images cannot be read (4 truncated, ") and "\n" not in message
    assert "1 empty" in message and "1 not a picture" in message and "1 in a format that is not read" in message
    assert ", and 2 others; replace or remove them, or leave such images out by data.source.broken='skip'" in message
    assert len(re.findall(r"/pictures/", message)) == 5 and len(message) < 1000

    # Nothing is read again to leave them out.
    monkeypatch.setattr("t5x_lite.data.write_store._write_shard", None)
    store = prepare(folder, tmp_path / "cache", broken="skip")
    monkeypatch.undo()
    assert len(store.train) + len(store.held_out) == 54 and store.num_examples == len(store.train)
    assert sum(int(re.match(r"(?:train|held-out): (\d+) of", remark)[1]) for remark in store.remarks) == 7
    assert all(remark.endswith("they are left out") for remark in store.remarks)
    monkeypatch.setattr(images, "_SHARD_FILES", 12)
    with pytest.raises(InputError, match="7 of 61 images cannot be read"):
        prepare(folder, tmp_path / "cache")
    picture(0).save(first)
    with pytest.raises(InputError, match="6 of 61 images cannot be read"):
        prepare(folder, tmp_path / "cache")


def test_every_file_is_broken(folder, tmp_path):
    for path in folder.glob("*/*"):
        path.write_bytes(path.name.encode())
    for broken in ("refuse", "skip"):
        with pytest.raises(InputError, match=r"^60 of 60 images .* \(60 not a picture\): .*, and 55 others; replace"):
            prepare(folder, tmp_path / "cache", broken=broken)


def test_too_few_pictures(tmp_path):
    for label in "ab":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        picture(0).save(tmp_path / "pictures" / label / "same.png")
    with pytest.raises(InputError, match="has 1 distinct images, .*; give more, or a held_out_source$"):
        prepare(tmp_path / "pictures", tmp_path / "cache")


def test_all_are_broken_in_the_same_way(folder, tmp_path):
    for path in folder.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"^60 of 60 images cannot be read \(60 empty\): .*, and 55 others; replace"):
        prepare(folder, tmp_path / "cache")


def test_prepared_in_a_folder(folder, tmp_path):
    data = Data(ImageFolder(str(folder)), None, held_out=0.2)
    store = data.prepare_in(tmp_path / "out", LAYOUT)
    folder.rename(folder.with_name("gone"))
    prepared = replace(data, prepared=str(tmp_path / "out")).prepare(LAYOUT)
    assert prepared.classes == ("a", "b", "c") and len(prepared.train) == len(store.train)
    np.testing.assert_array_equal(prepared.train[3]["image"], store.train[3]["image"])
    with pytest.raises(InputError, match="has no rows of this data"):
        replace(data, prepared=str(tmp_path / "out")).prepare(Images(13, 16))


def test_digits_and_arrays_come_back_as_they_are(tmp_path):
    data = Data(Digits(), None, held_out_source=Digits("test"), cache_dir=str(tmp_path))
    store = data.prepare(Images(8, 8, channels=1))
    for rows, split in ((store.train, "train"), (store.held_out, "test")):
        for row, one in zip(rows[:], Digits(split).read_images(), strict=True):
            np.testing.assert_array_equal(row["image"][..., 0], one.image)
            assert row["label"] == one.label
    assert store.classes == tuple("0123456789") and not store.remarks
    pixels = np.random.default_rng(0).integers(0, 256, (20, 9, 9, 3), np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(20) % 2)
    data = Data(ImageArrays(str(tmp_path / "x.npz")), None, held_out=0.2, cache_dir=str(tmp_path))
    store = data.prepare(Images(9, 9))
    assert {row["image"].tobytes() for row in [*store.train, *store.held_out]} == {one.tobytes() for one in pixels}


def test_files_of_rows_are_bounded_by_bytes(folder, tmp_path, monkeypatch):
    whole = prepare(folder, tmp_path / "whole")
    monkeypatch.setattr(stored_rows, "_FILE_BYTES", 1500)
    small = prepare(folder, tmp_path / "small")
    sizes = [[path.stat().st_size for path in store.path.glob("*.rows")] for store in (whole, small)]
    assert max(sizes[0]) > 4000 and max(sizes[1]) < 2500
    for one, other in zip(whole.train[:], small.train[:], strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_a_damaged_row_is_a_sentence(folder, tmp_path):
    store = prepare(folder, tmp_path / "cache")
    for path in store.path.glob("train-*.rows"):
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes(content)
    with prepare(folder, tmp_path / "cache") as opened, pytest.raises(InputError, match="is damaged .*; remove that"):
        opened.train[:]
