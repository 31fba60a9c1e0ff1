"""Distillation of classifiers of pictures: a student learns the labels and from a teacher (Touvron et al. 2021)."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import tyro
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import PixelStatistics, statistics
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean, row_weights
from t5x_lite.objectives.image_classification import ImageClassification
from t5x_lite.objectives.losses import most_likely
from t5x_lite.objectives.teacher import WithTeacher
from t5x_lite.validation import PositiveFloat, Share


@dataclass(frozen=True)
class ImageDistillation(WithTeacher, ImageClassification):
    """(1 - teacher_weight) of the labels' loss and teacher_weight of the teacher's (Touvron et al. 2021, section 3).

    The first head learns the labels, smoothed and mixed as in `ImageClassification`, the last head the teacher: of a
    DeiT those are two, of other models one learns both. The teacher sees the same augmented pictures, under its own
    normalization and, where it is a Transformer, resized to what it has positions for. Evaluation is that of
    `ImageClassification`, and so are loss and accuracy.
    """

    teacher: str = ""
    """A run's folder or a Hugging Face folder with a classifier of the same classes."""
    kind: Literal["hard", "soft"] = "hard"
    """hard: the class that the teacher finds likeliest is one more label, not smoothed (equation 3); soft: the KL
    divergence from the teacher's distribution at `temperature`, times temperature^2 (equation 2)."""
    temperature: PositiveFloat = 3.0
    """Of both distributions in the soft kind."""
    teacher_weight: Share = 0.5
    """The share of the teacher's loss: a half in the paper's hard kind, 0.1 in its soft one, at temperature 3."""
    teacher_statistics: tyro.conf.Suppress[PixelStatistics | None] = field(default=None, kw_only=True)
    """What normalizes its pictures."""

    def for_teacher(self, teacher: ModelConfig, student: ModelConfig, statistics: PixelStatistics | None) -> Self:
        name = f"objective.teacher={self.teacher!r}"
        if not hasattr(teacher, "num_channels") or "classification" not in getattr(teacher, "heads", ()):
            raise InputError(
                f"{name} is a {type(teacher).__name__} that does not classify pictures; choose a ViT, DeiT or ResNet "
                "with a head for classification"
            )
        if teacher.num_classes != student.num_classes:
            raise InputError(
                f"{name} has {teacher.num_classes} classes, and model.num_classes={student.num_classes}; choose a "
                "teacher of the same classes"
            )
        if teacher.num_channels != self.num_channels:
            raise InputError(
                f"{name} reads pictures with {teacher.num_channels} channels, and objective.num_channels="
                f"{self.num_channels}; choose another teacher, or train with as many channels"
            )
        if statistics is None:
            raise InputError(
                f"{name} does not say how its pictures are normalized; put the preprocessor_config.json there that "
                "came with it, or name the folder that it was converted from"
            )
        return replace(self, teacher_model=teacher, teacher_statistics=statistics)

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: DropoutKey,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> Loss:
        """Without `frozen` that of the classification alone, for evaluation."""
        outputs, running = self.apply_in_training(module, params, features, key)
        total, weight, metrics = self.loss_of(outputs, features, features if whole is None else whole)
        if frozen is None:
            return total, weight, metrics | running
        first, last = (logits.astype(jnp.float32) for logits in (outputs[0], outputs[-1]))
        of_labels = self.losses(first, self.targets(features, first.shape[-1]))
        teacher = self.teacher_logits(frozen, features["images"], module.dtype)
        of_teacher = self.teacher_losses(last, teacher)
        weights = row_weights(features)
        total = (((1.0 - self.teacher_weight) * of_labels + self.teacher_weight * of_teacher) * weights).sum()
        agreement = most_likely(last) == most_likely(teacher)
        figures = {"label_loss": of_labels, "teacher_loss": of_teacher, "agreement": agreement}
        sums = {name: Mean((value * weights).sum(), weight) for name, value in figures.items()}
        return total, weight, metrics | sums | running

    def teacher_logits(self, frozen: Any, images: Float[Array, "B H W C"], dtype: Any) -> Float[Array, "B K"]:
        """The logits of the teacher with parameters `frozen`, deterministic, for pictures as the student's."""
        channels = images.shape[-1]
        mean, std = statistics(self.augmentation.normalization, channels)
        teacher_mean, teacher_std = statistics(self.teacher_statistics, channels)
        scale, offset = std / teacher_std, (mean - teacher_mean) / teacher_std
        images = images * scale[None, None, None] + offset[None, None, None]
        size = getattr(self.teacher_model, "image_size", images.shape[1:3])
        images = jax.image.resize(images, (len(images), *size, channels), "bicubic")
        variables = {"params": frozen}
        logits = self.teacher_model.build(dtype=dtype).apply(variables, images, method="class_logits")
        return jax.lax.stop_gradient(logits.astype(jnp.float32))

    def teacher_losses(self, logits: Float[Array, "B K"], teacher: Float[Array, "B K"]) -> Float[Array, "B"]:
        """Of each row, in nats: the loss of a head with these logits against the teacher's."""
        if self.kind == "hard":
            return self.losses(logits, jax.nn.one_hot(most_likely(teacher), teacher.shape[-1]))
        return self.soft_losses(logits, teacher)
