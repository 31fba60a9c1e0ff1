"""How well the objects of pictures are found: COCO's average precision, by its own tool."""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from t5x_lite.images.boxes import DetectedBoxes, TrueBoxes
from t5x_lite.metrics.base import Figures, Metric
from t5x_lite.objectives.base import Predictions

_SIZES = ("", "_small", "_medium", "_large")
_MOST = 100
"""Boxes of one class in a picture that count, those with the highest scores (COCO's rule)."""


@dataclass(frozen=True)
class AveragePrecision(Metric):
    """The area under precision by recall, as a mean over classes (Lin et al. 2014; by pycocotools).

    `ap` is also a mean over ten overlaps, from an IoU of 0.5 to one of 0.95; `ap50` and `ap75` are of one alone.
    `ap_small`, `ap_medium` and `ap_large` are those of objects of less than 32 * 32 pixels, of up to 96 * 96, and of
    more; each is there where the data have such objects. Without any object `ap` is not a number.
    """

    name = "average_precision"
    compares = ("boxes",)
    reads_texts = False
    labels: ClassVar = {
        "ap": "AP",
        "ap50": "AP50",
        "ap75": "AP75",
        "ap_small": "AP of small objects",
        "ap_medium": "AP of medium objects",
        "ap_large": "AP of large objects",
    }

    def compute(self, predictions: Predictions) -> Figures:
        tool = _evaluated(predictions.predicted, predictions.references)
        with contextlib.redirect_stdout(io.StringIO()):
            tool.accumulate()
            tool.summarize()
        return _figures(tool.stats[:6])

    def resampled(self, predictions: Predictions) -> Callable[[Int[np.ndarray, "M"]], Figures]:
        """Pictures are matched once; each draw counts their matches anew."""
        tool = _evaluated(predictions.predicted, predictions.references)
        names, count = list(self.compute(predictions)), len(predictions.predicted)
        of_sizes = _matches(tool, count)

        def figures(drawn: Int[np.ndarray, "M"]) -> Figures:
            weights = np.bincount(drawn, minlength=count)
            precision = [_precision([one.precision(weights) for one in of_size]) for of_size in of_sizes]
            whole = precision[0]
            values = (whole.mean(), whole[0], whole[5], *(of_size.mean() for of_size in precision[1:]))
            return {name: value for name, value in zip(self.labels, map(float, values), strict=True) if name in names}

        return figures


class _Matches(NamedTuple):
    """Of one class and one range of sizes: D boxes of all pictures by falling score, for T overlaps."""

    pictures: Int[np.ndarray, "D"]
    right: Bool[np.ndarray, "T D"]
    wrong: Bool[np.ndarray, "T D"]
    """Boxes that match something to be ignored are neither."""
    objects: Int[np.ndarray, "N"]
    """How many there are to be found in each picture."""

    def precision(self, weights: Int[np.ndarray, "N"]) -> Float[np.ndarray, "T"]:
        """The mean over 101 recalls, of pictures with weights; not a number where these have no object."""
        objects = int(self.objects @ weights)
        if not objects:
            return np.full(len(self.right), np.nan)
        times = weights[self.pictures]
        right, wrong = (np.cumsum(one * times, axis=1) for one in (self.right, self.wrong))
        precision = right / np.maximum(right + wrong, 1)
        # The best that there is at this recall or a higher one.
        precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        padded = np.pad(precision, ((0, 0), (0, 1)))
        first = [np.searchsorted(one / objects, _RECALLS) for one in right]
        return np.take_along_axis(padded, np.array(first), axis=1).mean(axis=1)


_RECALLS = np.linspace(0.0, 1.0, 101)


def _evaluated(predicted: Sequence[DetectedBoxes], true: Sequence[TrueBoxes]) -> COCOeval:
    """The tool after it has matched boxes with objects, picture by picture."""
    classes = sorted({int(number) for one in true for number in one.classes})
    pictures = [{"id": number} for number in range(len(true))]
    objects = [
        _record(picture, box, number) | {"area": float(area), "iscrowd": int(crowd)}
        for picture, one in enumerate(true)
        for box, number, area, crowd in zip(*one, strict=True)
    ]
    found = [
        _record(picture, box, number) | {"score": float(score)}
        for picture, one in enumerate(predicted)
        for box, score, number in zip(*one, strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        sides = [_coco(pictures, classes, records) for records in (objects, found)]
        tool = COCOeval(*sides, iouType="bbox")
        tool.params.imgIds, tool.params.catIds = list(range(len(true))), classes
        tool.evaluate()
    return tool


def _record(picture: int, box: Any, number: Any) -> dict[str, Any]:
    left, top, right, bottom = map(float, box)
    sides = (right - left, bottom - top)
    shape = {"bbox": [left, top, *sides], "area": sides[0] * sides[1], "iscrowd": 0}
    return {"image_id": picture, "category_id": int(number)} | shape


def _coco(pictures: list[dict], classes: list[int], records: list[dict]) -> COCO:
    coco = COCO()
    # Numbers of 0 mean to the tool that nothing has matched.
    annotations = [{"id": number} | record for number, record in enumerate(records, start=1)]
    coco.dataset = {"images": pictures, "categories": [{"id": one} for one in classes], "annotations": annotations}
    coco.createIndex()
    return coco


def _matches(tool: COCOeval, count: int) -> list[list[_Matches]]:
    """By range of sizes, of each class."""
    per_class = np.empty(len(tool.evalImgs), object)
    per_class[:] = tool.evalImgs
    table = per_class.reshape(-1, len(_SIZES), count)
    return [[_of_pictures(row) for row in table[:, size]] for size in range(len(_SIZES))]


def _of_pictures(results: Sequence[dict[str, Any] | None]) -> _Matches:
    objects = np.array([0 if one is None else int((one["gtIgnore"] == 0).sum()) for one in results])
    there = [(number, one) for number, one in enumerate(results) if one is not None]
    scores, pictures = [np.zeros(0)], [np.zeros(0, np.int64)]
    right, wrong = [np.zeros((10, 0), bool)], [np.zeros((10, 0), bool)]
    for number, one in there:
        matched, ignored = (one[name][:, :_MOST] > 0 for name in ("dtMatches", "dtIgnore"))
        scores.append(np.array(one["dtScores"][:_MOST]))
        pictures.append(np.full(matched.shape[1], number))
        right.append(matched & ~ignored)
        wrong.append(~matched & ~ignored)
    order = np.argsort(-np.concatenate(scores), kind="stable")
    sides = (np.concatenate(parts, axis=1)[:, order] for parts in (right, wrong))
    return _Matches(np.concatenate(pictures)[order], *sides, objects)


def _precision(of_classes: Sequence[Float[np.ndarray, "T"]]) -> Float[np.ndarray, "T"]:
    """The mean over the classes that have objects."""
    known = [one for one in of_classes if not np.isnan(one).any()]
    return np.mean(known, axis=0) if known else np.full(10, np.nan)


def _figures(values: Sequence[float]) -> Figures:
    """The tool gives -1 where there is no such object."""
    named = zip(AveragePrecision.labels, map(float, values), strict=True)
    found = {name: value for name, value in named if value >= 0}
    return found or {"ap": float("nan")}
