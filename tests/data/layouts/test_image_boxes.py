"""Rows of pictures with boxes, in a store and in batches."""

import json

import numpy as np
import pytest
from PIL import Image

from t5x_lite.cli.image_tables import image_tables
from t5x_lite.data import CocoBoxes, Data, ImageBoxes, batches
from t5x_lite.data.records import images
from t5x_lite.errors import InputError

LAYOUT = ImageBoxes(5, 8, max_boxes=3)


@pytest.fixture
def annotations(tmp_path, monkeypatch):
    """Twelve pictures of 16 x 10 in three shards: of number n the color is n, and n % 5 objects are in it."""
    monkeypatch.setattr(images, "_SHARD_FILES", 4)
    records, objects = [], []
    for number in range(12):
        Image.fromarray(np.full((10, 16, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
        records.append({"id": number, "file_name": f"{number}.png", "width": 16, "height": 10})
        objects += [
            {"image_id": number, "category_id": 1 + one % 2, "bbox": [one, 1, 4 + one, 4], "iscrowd": int(one == 1)}
            for one in range(number % 5)
        ]
    content = {
        "images": records,
        "annotations": objects,
        "categories": [{"id": n, "name": "ab"[n - 1]} for n in (1, 2)],
    }
    path = tmp_path / "coco.json"
    path.write_text(json.dumps(content))
    return path


def prepare(path, cache, **options):
    return Data(CocoBoxes(str(path), **options), None, held_out=0.25, cache_dir=str(cache)).prepare(LAYOUT)


def test_each_picture_keeps_its_objects_of_many_the_largest(annotations, tmp_path):
    store = prepare(annotations, tmp_path / "cache")
    assert store.classes == ("a", "b")
    batch = batches(store.train, batch_size=8, seed=0)[0]
    assert batch["image"].shape == (8, 5, 8, 3)
    for row in range(8):
        number = int(batch["image"][row, 0, 0, 0])
        count = batch["num_boxes"][row]
        assert count == min(number % 5, 3)
        first = max(number % 5 - 3, 0)
        expected = [[one / 16, 0.1, (4 + 2 * one) / 16, 0.5] for one in range(first, first + count)]
        np.testing.assert_allclose(batch["boxes"][row, :count], np.array(expected).reshape(-1, 4), rtol=1e-6)
        assert batch["classes"][row, :count].tolist() == [one % 2 for one in range(first, first + count)]
        assert batch["crowd"][row, :count].tolist() == [int(one == 1) for one in range(first, first + count)]
        np.testing.assert_allclose(batch["areas"][row, :count], [4 * (4 + one) for one in range(first, first + count)])
        assert batch["size"][row].tolist() == [10, 16]
        assert not batch["boxes"][row, count:].any()
    figures = store.figures.values()
    assert sum(one.too_long for one in figures) == 2
    assert sum(sum(one.counts["labels"].values()) for one in figures) == sum(n % 5 for n in range(12))


def test_tables_count_objects_and_what_is_wrong_with_boxes(annotations, tmp_path):
    content = json.loads(annotations.read_text())
    content["annotations"] += [{"image_id": n, "category_id": 1, "bbox": [20, 1, 4, 4]} for n in range(12)]
    annotations.write_text(json.dumps(content))
    with pytest.raises(InputError, match="12 outside of their picture"):
        prepare(annotations, tmp_path / "cache")
    tables = {
        table.columns[0].header: table for table in image_tables(prepare(annotations, tmp_path, bad_boxes="drop"))
    }
    cells = list(zip(*(column.cells for column in tables["boxes"].columns), strict=True))
    assert cells[0][0] == "dropped outside of their picture"
    assert sum(map(int, cells[0][1:])) == 12
    objects = list(zip(*(column.cells for column in tables["objects"].columns), strict=True))
    assert {line[0]: sum(map(int, line[1:])) for line in objects} == {
        "0": sum(n % 5 == 0 for n in range(12)),
        "1": sum(n % 5 == 1 for n in range(12)),
        "2 to 3": sum(n % 5 in (2, 3) for n in range(12)),
        "4 to 7": sum(n % 5 == 4 for n in range(12)),
    }


def test_a_picture_of_another_size_than_its_annotations_say_is_refused(annotations, tmp_path):
    Image.fromarray(np.zeros((16, 10, 3), np.uint8)).save(annotations.parent / "3.png")
    with pytest.raises(InputError, match=r"3\.png \(of 10 x 16 pixels, and 16 x 10 where its"):
        prepare(annotations, tmp_path / "cache")
    store = prepare(annotations, tmp_path / "cache", broken="skip")
    assert len(store.train) + len(store.held_out) == 11
