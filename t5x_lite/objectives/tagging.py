"""Fine-tuning on words: which tag each of them has (Devlin et al. 2019, section 5.3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.tagging import Tagged
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective
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
    def layout(self) -> Layout:
        return Tagged(self.input_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = Tagging(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> ids, tags = jnp.array([3, 10, 11, 12, 4, 0, 0, 0]), jnp.array([-1, 0, -1, 5, -1, -1, -1, -1])
        >>> row = objective.corrupt(jax.random.key(0), {"ids": ids, "tags": tags, "example": jnp.int32(7)})
        >>> sorted(row), row["example"].item()
        (['example', 'inputs', 'tags'], 7)
        """
        self.check_row(row)
        return {"inputs": row["ids"], "tags": row["tags"], "example": row["example"]}

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
