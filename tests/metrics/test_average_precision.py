"""Against the tool's own way from its files to its figures, and what is known without it."""

import contextlib
import io
import json

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from t5x_lite.images.boxes import DetectedBoxes, TrueBoxes
from t5x_lite.metrics.average_precision import AveragePrecision
from t5x_lite.objectives.base import Predictions


def pictures(seed, count=200, classes=4):
    """Pictures with 0 to 6 objects, some of them crowds, and what was found: many near them, some not."""
    random = np.random.default_rng(seed)
    true, found = [], []
    for number in range(count):
        many = 0 if number % 7 == 0 else random.integers(0, 7)
        corner, sides = random.uniform(0, 300, (many, 2)), random.uniform(4, 200, (many, 2))
        boxes = np.concatenate([corner, corner + sides], 1).astype(np.float32)
        of = random.integers(0, classes, many)
        areas = sides.prod(1) * random.uniform(0.4, 1.0, many)
        true.append(TrueBoxes(boxes, of, areas, (random.random(many) < 0.1).astype(np.int32)))
        near = np.repeat(boxes, 2, 0) + random.normal(0, 6, (2 * many, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        others = random.uniform(0, 250, (0 if number % 5 == 0 else 4, 2))
        others = np.concatenate([others, others + random.uniform(5, 99, others.shape)], 1)
        numbers = np.concatenate([np.where(random.random(2 * many) < 0.8, np.repeat(of, 2), 0), [3] * len(others)])
        both = np.concatenate([near, others])
        found.append(DetectedBoxes(both, random.random(len(both)), numbers.astype(np.int32)))
    return Predictions("boxes", found, true)


def by_files(predictions, folder):
    """[6]: the figures of the tool from its two kinds of file."""
    objects = [
        {
            "id": 1000 + 31 * picture + number,
            "image_id": picture + 1,
            "category_id": int(of) + 1,
            "bbox": [*map(float, box[:2]), *map(float, box[2:] - box[:2])],
            "area": float(area),
            "iscrowd": int(crowd),
        }
        for picture, one in enumerate(predictions.references)
        for number, (box, of, area, crowd) in enumerate(zip(*one, strict=True))
    ]
    results = [
        {
            "image_id": picture + 1,
            "category_id": int(of) + 1,
            "bbox": [*map(float, box[:2]), *map(float, box[2:] - box[:2])],
            "score": float(score),
        }
        for picture, one in enumerate(predictions.predicted)
        for box, score, of in zip(*one, strict=True)
    ]
    images = [{"id": number + 1} for number in range(len(predictions.references))]
    content = {"images": images, "annotations": objects, "categories": [{"id": number} for number in range(1, 5)]}
    (folder / "objects.json").write_text(json.dumps(content))
    (folder / "results.json").write_text(json.dumps(results))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(folder / "objects.json"))
        tool = COCOeval(coco, coco.loadRes(str(folder / "results.json")), "bbox")
        tool.evaluate()
        tool.accumulate()
        tool.summarize()
    return tool.stats[:6]


@pytest.fixture(scope="module")
def predictions():
    return pictures(0)


def test_figures_are_those_of_the_tool_with_crowds_and_empty_pictures(predictions, tmp_path):
    figures = AveragePrecision().figures(predictions)
    assert list(figures) == ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"]
    np.testing.assert_allclose(list(figures.values()), by_files(predictions, tmp_path), rtol=1e-12)
    assert 0.1 < figures["ap"] < 0.9


def test_all_pictures_once_are_a_draw_that_gives_the_figures(predictions):
    metric = AveragePrecision()
    figures_of = metric.resampled(predictions)
    figures = metric.figures(predictions)
    assert figures_of(np.arange(200)) == pytest.approx(figures, abs=1e-9)
    draw = np.random.default_rng(1).integers(0, 200, 200)
    assert figures_of(draw) == pytest.approx(metric.figures(predictions.take(draw)), abs=2e-3)
    intervals = metric.intervals(predictions, resamples=30)
    for name, (low, high) in intervals.items():
        assert low < figures[name] < high, name


def test_the_same_boxes_are_found_whole_and_nothing_is_not_found(predictions):
    true = predictions.references
    same = [DetectedBoxes(one.boxes, np.ones(len(one.boxes)), one.classes) for one in true]
    assert list(AveragePrecision().figures(Predictions("boxes", same, true)).values()) == pytest.approx([1.0] * 6)
    nothing = [DetectedBoxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))] * len(true)
    assert set(AveragePrecision().figures(Predictions("boxes", nothing, true)).values()) == {0.0}


def test_sizes_that_there_are_not_have_no_figure_and_no_objects_are_not_a_number():
    box = np.array([[10.0, 10.0, 20.0, 20.0]])
    true = TrueBoxes(box, np.zeros(1, int), np.array([100.0]), np.zeros(1, int))
    found = DetectedBoxes(box, np.ones(1), np.zeros(1, int))
    predictions = Predictions("boxes", [found], [true])
    assert AveragePrecision().figures(predictions) == pytest.approx(
        {"ap": 1.0, "ap50": 1.0, "ap75": 1.0, "ap_small": 1.0}
    )
    assert AveragePrecision().intervals(predictions, resamples=5)["ap"] == pytest.approx((1.0, 1.0))
    none = TrueBoxes(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0), np.zeros(0, int))
    assert np.isnan(AveragePrecision().figures(Predictions("boxes", [found], [none]))["ap"])


def test_what_hits_a_crowd_is_neither_right_nor_wrong():
    box = np.array([[0.0, 0.0, 100.0, 100.0], [200.0, 0.0, 240.0, 40.0]])
    true = TrueBoxes(box, np.zeros(2, int), np.array([1e4, 1.6e3]), np.array([1, 0]))
    inside = np.array([[0.0, 0.0, 50.0, 50.0], [10.0, 10.0, 60.0, 60.0], [200.0, 0.0, 240.0, 40.0]])
    found = DetectedBoxes(inside, np.array([0.9, 0.8, 0.7]), np.zeros(3, int))
    assert AveragePrecision().figures(Predictions("boxes", [found], [true]))["ap"] == pytest.approx(1.0)
