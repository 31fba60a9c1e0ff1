"""Fine-tuning on whole texts and pairs of texts: which class, or which number.

Devlin et al. 2019, section 4.1; for BART Lewis et al. 2020, section 3.1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.classification import Labeled
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Predictions, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective, segments_of
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class Classification(TaskObjective):
    """The head `classification` learns the labels of examples: with several classes by cross entropy, with one, which
    stands for a number, by the squared error.

    Features are `inputs` [L], `segments` [L] and `label` [], the number of the class or the number itself, float32.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; the ends of longer texts are cut."""

    head = "classification"
    has_classes = True
    unit: ClassVar[str] = "example"

    @cached_property
    def layout(self) -> Layout:
        return Labeled(self.input_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = Classification(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> row = {"ids": jnp.array([3, 10, 4, 11, 12, 4, 0, 0]), "label": jnp.float32(2.5)}
        >>> row = objective.corrupt(jax.random.key(0), row)
        >>> row["inputs"].tolist(), row["segments"].tolist(), row["label"].item()
        ([3, 10, 4, 11, 12, 4, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0], 2.5)
        """
        self.check_row(row)
        segments = segments_of(row["ids"], self.known_vocabulary)
        return {"inputs": row["ids"], "segments": segments, "label": row["label"]}

    def loss_of(
        self, logits: Float[Array, "B C"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        weights, labels = row_weights(features), features["label"]
        if logits.shape[-1] == 1:
            total = ((logits[:, 0] - labels) ** 2 * weights).sum()
            return total, weights.sum(), {"loss": total}
        losses, _ = cross_entropy(logits, labels.astype(jnp.int32))
        total, correct = (losses * weights).sum(), ((logits.argmax(axis=-1) == labels) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B"]:
        """The likeliest class of each row, by its number, or the number that is predicted."""
        logits = self.logits(module, params, features)
        return logits[:, 0] if logits.shape[-1] == 1 else logits.argmax(axis=-1).astype(jnp.float32)

    def predicts(self, model: ModelConfig) -> str:
        return "numbers" if model.num_classes == 1 else "classes"

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("pearson", "spearman") if predictions.type == "numbers" else ("accuracy",)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The texts, their label and the model's, by name where they have names."""

        def name(label: float) -> str:
            return labels[int(label)] if labels else f"{label:.3f}"

        texts = [row["inputs"][row["segments"] == number] for number in range(int(row["segments"].max()) + 1)]
        lines = [f"text:   {tokenizer.decode(ids)}" for ids in texts]
        return (
            "\n".join([*lines, f"label:  {name(row['label'].item())}", f"model:  {name(row['answers'].item())}"]) + "\n"
        )

    def in_nats(self, model: ModelConfig) -> bool:
        return model.num_classes > 1

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: the entropy of the classes, or the variance."""
        labels = features["label"]
        return float(np.var(labels)) if model.num_classes == 1 else entropy(labels)
