"""Classes of pictures, with the augmentation, mixed labels and losses of the recipes that trained ViT and DeiT."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.images import Images, PreparedImages
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.mixing import Mixing
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Predictions, Row, row_weights
from t5x_lite.objectives.losses import most_likely
from t5x_lite.objectives.task import TOP, TaskObjective
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Rate


@dataclass(frozen=True)
class ImageClassification(TaskObjective):
    """A classifier of pictures learns their classes; of the two heads of a DeiT both learn the same.

    Features are `images` [H W C], augmented and normalized, and `label` [], the number of the class; in a mixed batch
    also `partner_label` [], that of the picture which is mixed in, and `shares` [], what is left of the first: see
    `targets`.
    """

    augmentation: Augmentation = field(default_factory=Augmentation)
    """Of training; in evaluation `augmentation.for_evaluation()`."""
    canvas_size: tuple[int, int] = (256, 256)
    """Height and width to which pictures are stretched when they are read, before `augmentation` crops them."""
    num_channels: Literal[1, 3] = 3
    """1 is grey, 3 is RGB."""
    loss_type: Literal["softmax", "bce", "multilabel_bce"] = "softmax"
    """Cross entropy of all classes, or the mean over classes of each one's binary cross entropy; in multilabel_bce both
    classes of a mixed picture are targets of 1, whatever their shares (Wightman et al. 2021, section 2; so trained
    DeiT III)."""
    label_smoothing: Rate = 0.0
    """The share of each target that is spread evenly over all classes (Szegedy et al. 2016, section 7)."""
    mixing: Mixing = field(default_factory=Mixing)

    reads_text: ClassVar[bool] = False

    @property
    def has_independent_classes(self) -> bool:
        return self.loss_type != "softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_type == "multilabel_bce" and self.label_smoothing:
            raise InputError(
                f"objective.label_smoothing={self.label_smoothing} does not go with loss_type='multilabel_bce', whose "
                "targets are 0 and 1; choose 0, or another loss_type"
            )

    @cached_property
    def layout(self) -> Layout:
        return Images(*self.canvas_size, self.num_channels)

    def for_evaluation(self) -> Self:
        """With the center of each picture, its label alone, and nothing random."""
        return replace(self, augmentation=self.augmentation.for_evaluation(), mixing=Mixing(), label_smoothing=0.0)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        self.check_row(row)
        return {"images": self.augmentation(key, row["image"], row["size"]), "label": row["label"]}

    def corrupt_batch(self, key: Key[Array, ""], features: Features) -> Features:
        if not self.mixing:
            return features
        images, share = self.mixing(key, features["images"])
        labels = features["label"]
        shares = jnp.broadcast_to(share, labels.shape)
        return features | {"images": images, "partner_label": jnp.roll(labels, 1), "shares": shares}

    def features_on_host(self, features: Features) -> Features:
        """All but the pictures, which are large."""
        return {name: column for name, column in features.items() if name != "images"}

    def targets(self, features: Features, num_classes: int) -> Float[Array, "B C"]:
        """The probability of each class that the model is to give; the sum of a row is 1."""
        targets = jax.nn.one_hot(features["label"], num_classes)
        if "partner_label" in features:
            shares = features["shares"][:, None]
            targets = shares * targets + (1.0 - shares) * jax.nn.one_hot(features["partner_label"], num_classes)
        return optax.losses.smooth_labels(targets, self.label_smoothing)

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> tuple[Float[Array, "B C"], ...]:
        """The logits of each head."""
        options = {"deterministic": key is None}
        hidden = model.hidden_states(features["images"], **options)
        return tuple(getattr(model, f"{head}_logits")(hidden, **options) for head in model.config.heads)

    def loss_of(self, outputs: tuple[Float[Array, "B C"], ...], features: Features, whole: Features) -> Loss:
        """The mean of the heads' losses; accuracies are those of the heads' mean, against the likeliest target."""
        weights = row_weights(features)
        heads = [logits.astype(jnp.float32) for logits in outputs]
        targets = self.targets(features, heads[0].shape[-1])
        loss = sum((self.losses(logits, targets) * weights).sum() for logits in heads) / len(heads)
        logits, correct = sum(heads) / len(heads), most_likely(targets)
        # How many classes come before the correct one, by their logits and where those are equal by their numbers.
        classes = jnp.arange(logits.shape[-1])[None]
        own = jnp.where(classes == correct[:, None], logits, 0.0).sum(axis=-1, keepdims=True)
        better = (logits > own) | ((logits == own) & (classes < correct[:, None]))
        rank = better.sum(axis=-1)
        figures = {"accuracy": rank < 1} | ({f"top_{TOP}_accuracy": rank < TOP} if len(classes[0]) >= TOP else {})
        return loss, weights.sum(), {"loss": loss} | {n: (value * weights).sum() for n, value in figures.items()}

    def losses(self, logits: Float[Array, "B C"], targets: Float[Array, "B C"]) -> Float[Array, "B"]:
        """Of each row, in nats."""
        if self.loss_type != "softmax":
            targets = (targets > 0).astype(targets.dtype) if self.loss_type == "multilabel_bce" else targets
            return optax.losses.sigmoid_binary_cross_entropy(logits, targets).mean(axis=-1)
        return optax.losses.softmax_cross_entropy(logits, targets)

    def logits(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B C"]:
        """What inference takes: of two heads the mean."""
        return module.apply({"params": params}, features["images"], deterministic=True, method="class_logits")

    def predictions(
        self,
        outputs: np.ndarray,
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """Without names: a picture's is its location, for which all would have to be read again."""
        return replace(super().predictions(outputs, features, documents, tokenizer, labels), names=())

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        """Top-5 accuracy too, unless there are fewer classes."""
        return ("accuracy", "top_5_accuracy") if len(predictions.ranked[0]) >= TOP else ("accuracy",)

    def format_sample(
        self, row: dict[str, np.ndarray], tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> str:
        """The label of a picture and the model's, by name where they have names."""
        numbers = {"label": row["label"].item(), "model": row["answers"].item()}
        return "".join(f"{title}:  {labels[number] if labels else number}\n" for title, number in numbers.items())

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all pictures: it knows the frequencies of the classes."""
        labels = features["label"]
        if self.loss_type == "softmax":
            return super().baseline_loss(features, model)
        shares = np.bincount(labels, minlength=model.num_classes) / len(labels)
        both = np.stack([shares, 1.0 - shares])
        return float(-(both * np.log(np.where(both > 0, both, 1.0))).sum() / model.num_classes)

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if not hasattr(model, "num_channels"):
            raise InputError(f"model is a {type(model).__name__}, which reads no pictures; give {name} a ViT")
        if "classification" not in model.heads:
            raise InputError(
                f"model.heads={model.heads} lacks classification, which {name} trains; set model.heads to "
                "('classification',) and model.num_classes to the number of classes"
            )
        # A ResNet takes pictures of any size.
        if tuple(getattr(model, "image_size", self.augmentation.image_size)) != tuple(self.augmentation.image_size):
            raise InputError(
                f"model.image_size={model.image_size} is not that of the pictures, objective.augmentation.image_size="
                f"{self.augmentation.image_size}; choose the same"
            )
        if model.num_channels != self.num_channels:
            raise InputError(
                f"model.num_channels={model.num_channels} is not objective.num_channels={self.num_channels}; choose "
                "the same, 1 for grey pictures and 3 for colors"
            )

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        # A source may learn its classes when it is read, and refuse a single one then.
        if labels and 1 < len(labels) != model.num_classes:
            raise InputError(
                f"model.num_classes={model.num_classes} does not go with the data, which has {len(labels)} classes "
                f"({', '.join(labels[:10])}{', ...' * (len(labels) > 10)}); set model.num_classes to {len(labels)}, or "
                "correct the data"
            )


@dataclass(frozen=True)
class PreparedImageClassification(ImageClassification):
    """That of a model from elsewhere, whose preprocessor_config.json prepares pictures instead of an augmentation; for
    evaluation."""

    processor: str = "{}"
    """That file; it makes pictures of `canvas_size`."""

    @cached_property
    def layout(self) -> PreparedImages:
        return PreparedImages(*self.canvas_size, self.num_channels, processor=self.processor)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        self.check_row(row)
        mean, std = (values[None, None] for values in self.layout.preparation.statistics)
        return {"images": (row["image"] / 255.0 - mean) / std, "label": row["label"]}
