"""Fine-tuning on choosing one of several answers (Devlin et al. 2019, section 4.4)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp  # noqa: F401 (read by doctests)
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.classification import ChoiceSets
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective, segments_of
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class MultipleChoice(TaskObjective):
    """The head `multiple_choice` gives every answer, read behind its text, a number; the softmax is over the answers.

    Features are `inputs` [C L] and `segments` [C L], a row of ids for each of C answers, and `label` [], the right
    one.
    """

    input_length: int = 128
    """Ids of a text with one answer, special ones and padding included; the ends of longer ones are cut."""
    num_choices: int = 4
    """Answers of an example."""

    head = "multiple_choice"
    unit: ClassVar[str] = "example"

    @cached_property
    def layout(self) -> Layout:
        return ChoiceSets(self.input_length, self.num_choices)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = MultipleChoice(8, 2).for_vocabulary(Vocabulary(30, cls_id=3, sep_id=4, eos_id=4))
        >>> ids = jnp.array([[3, 10, 11, 4, 20, 4, 0, 0], [3, 10, 11, 4, 21, 22, 4, 0]])
        >>> row = objective.corrupt(jax.random.key(0), {"ids": ids, "label": jnp.int32(1)})
        >>> row["segments"].tolist(), row["label"].item()
        ([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0]], 1)
        """
        self.check_row(row)
        segments = jax.vmap(lambda ids: segments_of(ids, self.known_vocabulary))(row["ids"])
        return {"inputs": row["ids"], "segments": segments, "label": row["label"]}

    def loss_of(
        self, logits: Float[Array, "B C"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        weights, labels = row_weights(features), features["label"]
        losses, _ = cross_entropy(logits, labels)
        total, correct = (losses * weights).sum(), ((logits.argmax(axis=-1) == labels) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def logits(
        self, module: nn.Module, params: Any, features: Features, key: Key[Array, ""] | None = None
    ) -> Float[Array, "B C"]:
        """How well each answer fits."""
        return super().logits(module, params, features, key).reshape(features["label"].shape[0], self.num_choices)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B"]:
        """The number of the best answer."""
        return self.logits(module, params, features).argmax(axis=-1)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The text, and every answer with whether it is correct and whether the model takes it."""
        ids, segments = row["inputs"], row["segments"]
        lines = [f"text:   {tokenizer.decode(ids[0][segments[0] == 0])}"]
        for number in range(len(ids)):
            marks = [name for name, one in (("right", row["label"]), ("model", row["answers"])) if number == one]
            lines.append(f"{', '.join(marks):13} {tokenizer.decode(ids[number][segments[number] == 1])}")
        return "\n".join(lines) + "\n"

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: the entropy of the labels."""
        return entropy(features["label"])

    def _model_inputs(self, features: Features) -> tuple[Int[Array, "N L"], Int[Array, "N L"]]:
        """Every answer of every example is a row to the model."""
        return tuple(features[name].reshape(-1, self.input_length) for name in ("inputs", "segments"))
