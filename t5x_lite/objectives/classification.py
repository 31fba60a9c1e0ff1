"""Fine-tuning on labels of texts and pairs, and on answers to choose from.

Devlin et al. 2019, sections 4.1 and 4.4; for BART Lewis et al. 2020, section 3.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.classification import Labeled
from t5x_lite.data.tasks.multiple_choice import ChoiceSets
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Predictions, row_weights
from t5x_lite.objectives.losses import weighted_loss
from t5x_lite.objectives.task import TextTask
from t5x_lite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Classification(TextTask):
    """The head `classification` learns the labels of examples: with several classes by cross entropy, with one, which
    stands for a number, by the squared error.

    Features are `inputs` [L], `segments` [L] and `label` [], the number of the class or the number itself, float32.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; the ends of longer texts are cut."""

    head = "classification"
    has_classes = True

    @cached_property
    def layout(self) -> Layout:
        return Labeled(self.input_length)

    def loss_of(self, outputs: Float[Array, "B C"], features: Features, whole: Features) -> Loss:
        weights, labels = row_weights(features), features["label"]
        if outputs.shape[-1] > 1:
            return weighted_loss(outputs, labels.astype(jnp.int32), weights)
        total = ((outputs[:, 0] - labels) ** 2 * weights).sum()
        return total, weights.sum(), {"loss": total}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B"]:
        """The likeliest class of each row, by its number, or the number that is predicted."""
        logits = self.logits(module, params, features)
        return logits[:, 0] if logits.shape[-1] == 1 else logits.argmax(axis=-1).astype(jnp.float32)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Array:
        """The numbers of the likeliest classes, or the number that is predicted."""
        logits = self.logits(module, params, features)
        return logits if logits.shape[-1] == 1 else super().prediction_outputs(module, params, features)

    def predicts(self, model: ModelConfig) -> str:
        return "numbers" if model.num_classes == 1 else "classes"

    def predictions(
        self,
        outputs: np.ndarray,
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        if labels != ():
            return super().predictions(outputs, features, documents, tokenizer, labels)
        names = list(map(str, range(len(outputs))))
        return Predictions("numbers", outputs[:, 0].tolist(), features["label"].tolist(), names)

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("pearson", "spearman") if predictions.type == "numbers" else super().default_metrics(predictions)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The texts, their label and the model's, by name where they have names."""
        texts = [row["inputs"][row["segments"] == number] for number in range(int(row["segments"].max()) + 1)]
        lines = [f"text:   {tokenizer.decode(ids)}\n" for ids in texts]
        for title, column in (("label", "label"), ("model", "answers")):
            label = row[column].item()
            lines.append(f"{title}:  {labels[int(label)] if labels else f'{label:.3f}'}\n")
        return "".join(lines)

    def in_nats(self, model: ModelConfig) -> bool:
        return model.num_classes > 1

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: the entropy of the classes, or the variance."""
        return float(np.var(features["label"])) if model.num_classes == 1 else super().baseline_loss(features, model)


@dataclass(frozen=True)
class MultipleChoice(TextTask):
    """The head `multiple_choice` gives every answer, read after its text, a number; the softmax is over the answers.

    Features are `inputs` [C L] and `segments` [C L], a row of ids for each of C answers, and `label` [], the correct
    one.
    """

    input_length: int = 128
    """Ids of a text with one answer, special ones and padding included; the ends of longer ones are cut."""
    num_choices: int = 4
    """Answers of an example."""

    head = "multiple_choice"

    @cached_property
    def layout(self) -> Layout:
        return ChoiceSets(self.input_length, self.num_choices)

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Float[Array, "B C"]:
        # Every answer of every example is a row to the model.
        rows = {name: features[name].reshape(-1, self.input_length) for name in ("inputs", "segments")}
        return super().forward(model, rows, key).reshape(features["inputs"].shape[:2])

    def loss_of(self, outputs: Float[Array, "B C"], features: Features, whole: Features) -> Loss:
        return weighted_loss(outputs, features["label"], row_weights(features))

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The text, and every answer with whether it is correct and whether the model takes it."""
        ids, segments = row["inputs"], row["segments"]
        lines = [f"text:   {tokenizer.decode(ids[0][segments[0] == 0])}"]
        for number in range(len(ids)):
            marks = [name for name, one in (("right", row["label"]), ("model", row["answers"])) if number == one]
            lines.append(f"{', '.join(marks):13} {tokenizer.decode(ids[number][segments[number] == 1])}")
        return "\n".join(lines) + "\n"
