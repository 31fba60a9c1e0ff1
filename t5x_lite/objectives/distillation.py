"""Distillation: a small encoder learns from the text and from a larger one (Sanh et al. 2019, section 2)."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import PixelStatistics
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean
from t5x_lite.objectives.losses import weighted_loss
from t5x_lite.objectives.masked_language_model import MaskedLanguageModel
from t5x_lite.objectives.teacher import WithTeacher
from t5x_lite.validation import NonNegativeFloat, PositiveFloat


@dataclass(frozen=True)
class Distillation(WithTeacher, MaskedLanguageModel):
    """Weighted sum of three means: soft targets and masked LM over the hidden tokens, cosine over all tokens.

    soft: KL divergence of the student's distribution from the teacher's, both at `temperature`, times temperature^2
    (Hinton et al. 2015); hidden: 1 - cosine of the two encoders' outputs. The weights are those of the authors' runs,
    which took the soft targets over all tokens; here only hidden tokens meet the vocabulary.
    """

    teacher: str = ""
    """A run's folder or a Hugging Face folder with an encoder of the same vocabulary."""
    temperature: PositiveFloat = 2.0
    """Of both distributions."""
    soft_weight: NonNegativeFloat = 5.0
    """Weight of the soft targets."""
    token_weight: NonNegativeFloat = 2.0
    """Weight of the masked language model."""
    cosine_weight: NonNegativeFloat = 1.0
    """Weight of the cosine; 0 where the two have different widths."""

    def for_teacher(
        self, teacher: ModelConfig, student: ModelConfig, statistics: PixelStatistics | None = None
    ) -> Self:
        if missing := [head for head in self.heads if head not in getattr(teacher, "heads", ())]:
            raise InputError(
                f"objective.teacher={self.teacher!r} is a {type(teacher).__name__} without {', '.join(missing)}; "
                "choose an encoder that was trained as a masked language model"
            )
        if self.input_length > teacher.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds the teacher's max_length={teacher.max_length}; "
                "choose shorter rows or another teacher"
            )
        if self.cosine_weight and teacher.embed_dim != student.embed_dim:
            raise InputError(
                f"the teacher's embed_dim={teacher.embed_dim} is not the student's {student.embed_dim}, so there is no "
                "cosine of their hidden states; set objective.cosine_weight to 0"
            )
        if teacher.vocab_size != student.vocab_size:
            raise InputError(
                f"model.vocab_size={student.vocab_size} is not the teacher's {teacher.vocab_size}; choose the teacher's"
            )
        return replace(self, teacher_model=teacher)

    def forward(
        self, model: nn.Module, features: Features, key: DropoutKey
    ) -> tuple[Float[Array, "B L D"], LazyLogits]:
        """(the encoder's output, the scores at the predicted positions)."""
        hidden = self.encode(model, features, key)
        return hidden, self.scores_of(model, hidden, features)

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
        """Without `frozen` that of the masked language model alone, for evaluation."""
        whole = features if whole is None else whole
        hidden, scores = self.apply(module, params, features, key)
        if frozen is None:
            return self.loss_of(scores, features, whole)
        teacher = self.frozen_model.build(dtype=module.dtype)
        target_hidden, target_scores = self.apply(teacher, frozen, features)
        logits = scores.dense()
        target_hidden, target_logits = jax.lax.stop_gradient((target_hidden, target_scores.dense()))
        weights = self.prediction_weights(features)
        tokens, weight, metrics = weighted_loss(logits, features["targets"], weights)
        soft = (self.soft_losses(logits, target_logits) * weights).sum()
        total = self.token_weight * tokens + self.soft_weight * soft
        metrics |= {"soft_loss": Mean(soft, weight)}
        if self.cosine_weight:
            weights = self.token_weights(features)
            pair = (x.astype(jnp.float32) for x in (hidden, target_hidden))
            cosine = ((1.0 - optax.losses.cosine_similarity(*pair, epsilon=1e-8)) * weights).sum()
            metrics |= {"cosine_loss": Mean(cosine, weights.sum())}
            total += self.cosine_weight * cosine * self.predictions_per(self.token_weights(whole), whole)
        return total, weight, metrics
