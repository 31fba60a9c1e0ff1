"""Fine-tuning on words: which tag each of them has (Devlin et al. 2019, section 5.3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.formats import RowFormat
from t5x_lite.data.task_formats import Tagged
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective, whole_number
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class Tagging(TaskObjective):
    """The head `tagging` learns the tag of each word at the word's first piece; the other pieces are asked nothing.

    Features are `inputs` [L]; `tags` [L], -1 where none is asked for; and `example` [], the number of the sentence, of
    which a long one has several rows.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; longer sentences go on in another row."""

    head = "tagging"
    has_classes = True
    unit: ClassVar[str] = "word"

    @cached_property
    def row_format(self) -> RowFormat:
        return Tagged(self.input_length)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """One raw row to its features; nothing is random.

        >>> objective = Tagging(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> raw = jnp.array([3, 10, 11, 12, 4, 0, 0, 0] + [0, 1, 0, 6, 0, 0, 0, 0] + [0, 7])
        >>> row = objective.corrupt(jax.random.key(0), raw)
        >>> row["tags"].tolist(), row["example"].item()
        ([-1, 0, -1, 5, -1, -1, -1, -1], 7)
        """
        self._check_raw(raw)
        inputs, tags, number = jnp.split(raw, [self.input_length, 2 * self.input_length])
        return {"inputs": inputs, "tags": tags - 1, "example": whole_number(number)}

    def loss_of(
        self, logits: Float[Array, "B L C"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        tags = features["tags"]
        weights = (tags >= 0) * row_weights(features)[:, None]
        losses, _ = cross_entropy(logits, tags)
        # Where nothing is asked for, the loss of tag -1 is no number to count on.
        total = jnp.where(weights > 0, losses, 0.0).sum()
        correct = ((logits.argmax(axis=-1) == tags) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B L"]:
        """The likeliest tag of each token, by its number."""
        return self.logits(module, params, features).argmax(axis=-1)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all words: the entropy of the tags."""
        tags = features["tags"]
        return entropy(tags[tags >= 0])
