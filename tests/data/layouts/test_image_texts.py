"""Rows of pictures with texts, in a store and in batches."""

import numpy as np
import pytest
from PIL import Image

from t5x_lite.data import Bytes, CaptionFolder, Data, Vocabulary, batches
from t5x_lite.data.layouts.image_texts import ImageTexts, text_ends
from t5x_lite.data.records import images
from t5x_lite.errors import InputError

LAYOUT = ImageTexts(5, 4, length=9, num_captions=2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve pictures in three shards: of number n the color is n, and n's text stands beside it."""
    monkeypatch.setattr(images, "_SHARD_FILES", 4)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        Image.fromarray(np.full((5, 4, 3), number, np.uint8)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text("\n".join(f"n{number}" for _ in range(1 + number % 3)))
    return folder


def prepare(folder, cache, **options):
    return Data(CaptionFolder(str(folder), **options), Bytes(), held_out=0.25, cache_dir=str(cache)).prepare(LAYOUT)


def test_each_picture_keeps_its_texts(folder, tmp_path):
    store = prepare(folder, tmp_path / "cache")
    vocabulary = store.tokenizer.vocabulary
    rows = [*store.train[:], *store.held_out[:]]
    batch = batches(store.train, batch_size=8, seed=0)[0]
    assert len(rows) == 12 and batch["image"].shape == (8, 5, 4, 3)
    for image, captions, count in zip(batch["image"], batch["captions"], batch["num_captions"], strict=True):
        number = int(image[0, 0, 0])
        assert count == min(1 + number % 3, 2)
        for ids in captions[:count]:
            assert store.tokenizer.decode(ids) == f"n{number}"
            assert ids[len(f"n{number}")] == vocabulary.eos_id
        assert (captions[count:] == vocabulary.pad_id).all()
    assert sum(sum(figures.counts["captions"].values()) for figures in store.figures.values()) == 12


def test_long_texts_are_cut_before_their_end_and_counted(folder, tmp_path):
    (folder / "0.txt").write_text("a text of more than nine letters")
    store = prepare(folder, tmp_path / "cache")
    rows = [row["captions"][0] for row in (*store.train[:], *store.held_out[:])]
    (cut,) = [ids for ids in rows if store.tokenizer.decode(ids).startswith("a")]
    assert store.tokenizer.decode(cut) == "a text o"
    assert cut[-1] == store.tokenizer.vocabulary.eos_id
    assert sum(figures.too_long for figures in store.figures.values()) == 1


def test_broken_pictures_are_refused_or_left_out_with_their_texts(folder, tmp_path):
    (folder / "3.png").write_bytes(b"none")
    with pytest.raises(InputError, match=r"3\.png"):
        prepare(folder, tmp_path / "cache")
    store = prepare(folder, tmp_path / "cache", broken="skip")
    rows = [*store.train[:], *store.held_out[:]]
    assert sorted(store.tokenizer.decode(row["captions"][0]) for row in rows) == sorted(
        f"n{n}" for n in range(12) if n != 3
    )


def test_what_stands_around_a_text():
    assert text_ends(Vocabulary(300, eos_id=299)) == [299]
    assert text_ends(Vocabulary(300, eos_id=299, cls_id=298)) == [298, 299]
    assert text_ends(Vocabulary(300, eos_id=299, cls_id=298, sep_id=299)) == [298, 299]
