"""What objectives share that learn from a model which was trained before: their teacher."""

from dataclasses import dataclass, field

import jax
import optax
import tyro
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Objective


@dataclass(frozen=True)
class WithTeacher(Objective):
    """An objective that has the fields `teacher` and `temperature` too, and reads the teacher's logits."""

    teacher_model: tyro.conf.Suppress[ModelConfig | None] = field(default=None, kw_only=True)
    """The teacher's architecture: see `for_teacher`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.teacher:
            raise InputError("teacher='' names no teacher; give the folder of a run or a Hugging Face folder")

    @property
    def frozen_model(self) -> ModelConfig | None:
        return self.teacher_model

    def soft_losses(self, logits: Float[Array, "*batch C"], target: Float[Array, "*batch C"]) -> Float[Array, "*batch"]:
        """temperature^2 * KL(teacher, student), both at `temperature` (Hinton et al. 2015, section 2)."""
        student, teacher = (jax.nn.log_softmax(values / self.temperature) for values in (logits, target))
        return self.temperature**2 * optax.losses.kl_divergence_with_log_targets(student, teacher)
