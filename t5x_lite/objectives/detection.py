"""Objects in pictures: each one belongs to one query of a DETR, which is to give its class and its box.

Carion et al. 2020, End-to-End Object Detection with Transformers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.image_boxes import ImageBoxes
from t5x_lite.errors import InputError
from t5x_lite.images.box_augmentation import BoxAugmentation
from t5x_lite.images.boxes import DetectedBoxes, TrueBoxes, generalized_iou, to_centers, to_corners
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.detr import Detections, DetrConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean, Predictions, Row, row_weights
from t5x_lite.objectives.losses import cross_entropy, most_likely
from t5x_lite.objectives.matching import assign
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import NonNegativeFloat, Positive, Validated


class Objects(NamedTuple):
    """The objects of pictures, M at most in each."""

    boxes: Float[Array, "B M 4"]
    """Center x and y, width and height, as shares of the picture."""
    classes: Int[Array, "B M"]
    valid: Bool[Array, "B M"]
    """Those that there are."""


@dataclass(frozen=True)
class DetectionLoss(Validated):
    """The weights of matching and of the loss (section 3.1, appendix A.4)."""

    class_cost: NonNegativeFloat = 1.0
    box_cost: NonNegativeFloat = 5.0
    iou_cost: NonNegativeFloat = 2.0
    """The weights of the class's probability, of the boxes' distance and of their generalized IoU in matching."""
    class_weight: NonNegativeFloat = 1.0
    box_weight: NonNegativeFloat = 5.0
    iou_weight: NonNegativeFloat = 2.0
    """Those in the loss."""
    no_object_weight: NonNegativeFloat = 0.1
    """Of a query without an object in the mean of the cross entropies."""

    def match(self, found: Detections, objects: Objects) -> Int[Array, "N B M"]:
        """The query of each object, by the outputs of each decoder layer for itself; no gradient passes."""
        logits, boxes = jax.lax.stop_gradient(found)
        layers, batch, queries, _ = logits.shape
        # A product, as gathers are slow.
        of_class = jax.nn.one_hot(objects.classes, logits.shape[-1])
        probability = jnp.einsum("nbqk,bmk->nbmq", jax.nn.softmax(logits), of_class, precision="highest")
        theirs, own = boxes[:, :, None], objects.boxes[None, :, :, None]
        distance = jnp.abs(theirs - own).sum(axis=-1)
        overlap = generalized_iou(*jnp.broadcast_arrays(to_corners(theirs), to_corners(own)))
        costs = self.box_cost * distance - self.class_cost * probability - self.iou_cost * overlap
        # Rows of the batch first, so that each device has its own.
        valid = jnp.broadcast_to(objects.valid[:, None], (batch, layers, objects.valid.shape[1]))
        costs = costs.swapaxes(0, 1).reshape(batch * layers, -1, queries)
        matched = assign(costs, valid.reshape(batch * layers, -1))
        return matched.reshape(batch, layers, -1).swapaxes(0, 1)

    def __call__(
        self,
        found: Detections,
        objects: Objects,
        row_weights: Float[Array, "B"],
        whole: tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]],
    ) -> tuple[Float[Array, ""], dict[str, Mean]]:
        """(the loss of all decoder layers times the number of rows, figures of the last one).

        Args:
          row_weights: 0 for rows that fill up a batch.
          whole: what `totals` gives for the whole batch.
        """
        rows, count, class_total = whole
        queries, num_logits = found.class_logits.shape[2:]
        matched = self.match(found, objects)
        used = objects.valid & (row_weights[:, None] > 0)
        is_pair = jax.nn.one_hot(matched, queries, dtype=bool) & used[None, ..., None]  # [N B M Q]
        has_object = is_pair.any(axis=2)
        classes = jnp.where(is_pair, objects.classes[None, :, :, None], 0).sum(axis=2)
        targets = jnp.where(has_object, classes, num_logits - 1)
        weights = jnp.where(has_object, 1.0, self.no_object_weight) * row_weights[None, :, None]
        of_class = (cross_entropy(found.class_logits, targets) * weights).sum(axis=(1, 2))
        boxes = jnp.einsum("nbmq,nbqd->nbmd", is_pair.astype(jnp.float32), found.boxes, precision="highest")
        own = jnp.broadcast_to(objects.boxes, boxes.shape)
        there = is_pair.any(axis=3)
        distances = jnp.where(there, jnp.abs(boxes - own).sum(axis=-1), 0.0).sum(axis=(1, 2))
        # Where there is no box the one of the object stands in: a gradient of nothing is to be 0.
        boxes = jnp.where(there[..., None], boxes, own)
        overlaps = jnp.where(there, 1.0 - generalized_iou(to_corners(boxes), to_corners(own)), 0.0).sum(axis=(1, 2))
        loss = self.class_weight * of_class / class_total
        loss += (self.box_weight * distances + self.iou_weight * overlaps) / count
        likeliest = most_likely(found.class_logits[-1])
        wrong = has_object[-1] & (most_likely(found.class_logits[-1, ..., :-1]) != targets[-1])
        found_count = (likeliest < num_logits - 1).sum(axis=1)
        cardinality = jnp.abs(found_count - used.sum(axis=1)) * row_weights
        figures = {
            "class_loss": Mean(of_class[-1], weights[-1].sum()),
            "box_loss": Mean(distances[-1], there[-1].sum()),
            "iou_loss": Mean(overlaps[-1], there[-1].sum()),
            "class_error": Mean(wrong.sum().astype(jnp.float32), there[-1].sum()),
            "cardinality_error": Mean(cardinality.sum(), row_weights.sum()),
        }
        return loss.sum() * rows, figures

    def totals(
        self, objects: Objects, row_weights: Float[Array, "B"], num_queries: int
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """(rows, objects, the sum of the weights of queries) of a batch, what its means divide by; 1 at least."""
        counts = objects.valid.sum(axis=1) * row_weights
        pairs = jnp.minimum(objects.valid.sum(axis=1), num_queries) * row_weights
        weights = pairs.sum() + self.no_object_weight * (num_queries * row_weights.sum() - pairs.sum())
        return row_weights.sum(), jnp.maximum(counts.sum(), 1.0), jnp.maximum(weights, 1e-6)


@dataclass(frozen=True)
class ObjectDetection(TaskObjective):
    """A DETR learns to find the objects of pictures, each by one of its queries.

    Features are `images` [H W C], augmented, normalized and padded to one size; `extent` [2], the height and width of
    the picture in each; `boxes` [M 4], `classes` [M] and `boxes_valid` [M] of its objects; and what scores are computed
    from. Figures beside the loss, which sums over all decoder layers, are those of the last one: `class_loss`,
    `box_loss`, `iou_loss`, the share of objects whose class is wrong (`class_error`), and by how many the number of
    objects is wrong (`cardinality_error`).
    """

    augmentation: BoxAugmentation = field(default_factory=BoxAugmentation)
    """Of training; in evaluation `augmentation.for_evaluation()`."""
    canvas_size: tuple[int, int] = (800, 800)
    """Height and width to which pictures are stretched when they are read."""
    num_channels: Literal[1, 3] = 3
    """1 is grey, 3 is RGB."""
    max_boxes: Positive = 100
    """Objects of a picture, at most."""
    loss_weights: DetectionLoss = field(default_factory=DetectionLoss)

    reads_text: ClassVar[bool] = False

    @cached_property
    def layout(self) -> Layout:
        return ImageBoxes(*self.canvas_size, self.num_channels, max_boxes=self.max_boxes)

    def for_evaluation(self) -> Self:
        return replace(self, augmentation=self.augmentation.for_evaluation())

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        self.check_row(row)
        there = jnp.arange(self.max_boxes) < row["num_boxes"]
        images, extent, boxes, valid = self.augmentation(
            key, row["image"], row["size"], row["boxes"], there & (row["crowd"] == 0)
        )
        given = {"true_boxes": row["boxes"], **{name: row[name] for name in ("size", "areas", "crowd", "num_boxes")}}
        found = {"boxes": to_centers(boxes), "classes": row["classes"], "boxes_valid": valid}
        return {"images": images, "extent": extent} | found | given

    def features_on_host(self, features: Features) -> Features:
        """All but the pictures, which are large."""
        return {name: column for name, column in features.items() if name != "images"}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Detections:
        return model(features["images"], features["extent"], deterministic=key is None)

    def loss_of(self, outputs: Detections, features: Features, whole: Features) -> Loss:
        weights, queries = row_weights(features), outputs.boxes.shape[2]
        totals = self.loss_weights.totals(_objects(whole), row_weights(whole), queries)
        loss, figures = self.loss_weights(outputs, _objects(features), weights, totals)
        return loss, weights.sum(), {"loss": loss} | figures

    def logits(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B Q K"]:
        """Of the classes of each query, by the last decoder layer."""
        return self.apply(module, params, features).class_logits[-1]

    def predicts(self, model: ModelConfig) -> str:
        return "boxes"

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B Q 6"]:
        """Of each query the box (left, top, right, bottom, as shares), the probability of its class, and its class."""
        return detected(self.apply(module, params, features))

    def predictions(
        self,
        outputs: Float[np.ndarray, "N Q 6"],
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """Of each picture the boxes of all queries, in pixels, and the true ones."""
        found, true = [], []
        for number, output in enumerate(outputs):
            row = {name: column[number] for name, column in features.items()}
            scale = np.tile(row["size"][::-1], 2).astype(np.float32)
            boxes, scores, classes = output[:, :4] * scale, output[:, 4], output[:, 5].astype(np.int32)
            found.append(DetectedBoxes(boxes, scores, classes))
            some = slice(int(row["num_boxes"]))
            columns = (row["true_boxes"][some] * scale, row["classes"][some], row["areas"][some], row["crowd"][some])
            true.append(TrueBoxes(*columns))
        return Predictions("boxes", found, true)

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("average_precision",)

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        names = ("boxes", "classes", "boxes_valid")
        found = self.prediction_outputs(module, params, features)
        return {name: features[name] for name in names} | {"answers": found}

    def format_sample(
        self, row: dict[str, np.ndarray], tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> str:
        """How many objects of each class there are in a picture, and how many the model finds, more likely than not."""
        likely = row["answers"][row["answers"][:, 4] > 0.5, 5].astype(int)
        lines = []
        for title, numbers in (("objects", row["classes"][row["boxes_valid"]]), ("model", likely)):
            counts = np.bincount(numbers) if len(numbers) else []
            names = (f"{count} {labels[n] if labels else n}" for n, count in enumerate(counts) if count)
            lines.append(f"{title}:  {', '.join(names) or 'none'}\n")
        return "".join(lines)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of a model whose queries all give, for every picture, the classes by their frequencies and the
        medians of all boxes: matching changes nothing there."""
        weights, valid = self.loss_weights, features["boxes_valid"]
        rows, pairs = len(valid), np.minimum(valid.sum(axis=1), model.num_queries).sum()
        counts = np.bincount(features["classes"][valid], minlength=model.num_classes).astype(np.float64)
        counts *= pairs / max(counts.sum(), 1.0)
        of_classes = np.append(counts, weights.no_object_weight * (rows * model.num_queries - pairs))
        shares = of_classes / max(of_classes.sum(), 1e-9)
        loss = -weights.class_weight * (shares * np.log(np.where(shares > 0, shares, 1.0))).sum()
        if boxes := features["boxes"][valid].tolist():
            given = np.array(boxes, np.float32)
            constant = np.broadcast_to(np.median(given, axis=0), given.shape)
            overlaps = generalized_iou(to_corners(jnp.asarray(given)), to_corners(jnp.asarray(constant)))
            loss += weights.box_weight * np.abs(given - constant).sum(axis=1).mean()
            loss += weights.iou_weight * (1.0 - float(overlaps.mean()))
        return float(loss * model.num_decoder_layers)

    def in_nats(self, model: ModelConfig) -> bool:
        return False

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if not isinstance(model, DetrConfig):
            raise InputError(f"model is a {type(model).__name__}, which finds no boxes; give {name} a DetrConfig")
        if model.num_channels != self.num_channels:
            raise InputError(
                f"model.backbone.num_channels={model.num_channels} is not objective.num_channels={self.num_channels}; "
                "choose the same, 1 for grey pictures and 3 for colors"
            )
        if self.max_boxes > model.num_queries:
            raise InputError(
                f"objective.max_boxes={self.max_boxes} is more than the model finds, model.num_queries="
                f"{model.num_queries}; choose fewer boxes or more queries"
            )

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        if labels and len(labels) != model.num_classes:
            raise InputError(
                f"model.num_classes={model.num_classes} does not go with the data, which have {len(labels)} classes "
                f"({', '.join(labels[:10])}{', ...' * (len(labels) > 10)}); set model.num_classes to {len(labels)}, or "
                "correct the data"
            )


def detected(found: Detections) -> Float[Array, "B Q 6"]:
    """The boxes of the last decoder layer (left, top, right, bottom, as shares), of each the probability of the
    likeliest class, and that class."""
    probabilities = jax.nn.softmax(found.class_logits[-1])[..., :-1]
    likeliest = most_likely(probabilities)
    columns = (probabilities.max(axis=-1), likeliest.astype(jnp.float32))
    return jnp.concatenate([to_corners(found.boxes[-1]), *(column[..., None] for column in columns)], axis=-1)


def _objects(features: Features) -> Objects:
    return Objects(features["boxes"], features["classes"], features["boxes_valid"])
