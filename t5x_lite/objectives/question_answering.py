"""Fine-tuning on questions whose answers stand in a text (Devlin et al. 2019, sections 4.2 and 4.3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp  # noqa: F401 (read by doctests)
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.question_answering import QuestionWindows
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective, segments_of
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class QuestionAnswering(TaskObjective):
    """The head `question_answering` learns where an answer begins and which is its last token.

    Features are `inputs` [L] and `segments` [L]; `ends` [2], the positions of the answer's first and last token, both 0
    where this window of the text has no answer; `example` [], the number of the question, which has a row for every
    window; and `window` [], which of the text's tokens is the window's first.
    """

    input_length: int = 384
    """Ids of a row, special ones and padding included."""
    stride: int = 128
    """Tokens from the beginning of a window of a long text to that of the next."""
    question_length: int = 64
    """Tokens of a question; the ends of longer ones are cut."""
    answer_length: int = 30
    """Tokens of an answer that the model gives, at most."""
    num_candidates: int = 20
    """Likeliest beginnings, and ends, among which an answer is looked for in each window."""

    head = "question_answering"
    unit: ClassVar[str] = "window"

    @cached_property
    def layout(self) -> Layout:
        return QuestionWindows(self.input_length, self.stride, self.question_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = QuestionAnswering(8, 2, 4).for_vocabulary(Vocabulary(30, cls_id=3, sep_id=4, eos_id=4))
        >>> row = {"ids": jnp.array([3, 10, 4, 22, 23, 24, 25, 4]), "ends": jnp.array([5, 6])}
        >>> row = objective.corrupt(jax.random.key(0), row | {"example": jnp.int32(7), "window": jnp.int32(2)})
        >>> row["segments"].tolist(), row["ends"].tolist(), row["example"].item(), row["window"].item()
        ([0, 0, 0, 1, 1, 1, 1, 1], [5, 6], 7, 2)
        """
        self.check_row(row)
        numbers = {name: row[name] for name in ("ends", "example", "window")}
        return {"inputs": row["ids"], "segments": segments_of(row["ids"], self.known_vocabulary)} | numbers

    def loss_of(
        self, logits: Float[Array, "B L 2"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        """The mean of the two cross entropies, of the beginning and of the end; `accuracy` counts where both are
        right."""
        logits = logits.swapaxes(1, 2)
        weights, ends = row_weights(features), features["ends"]
        losses, _ = cross_entropy(logits, ends)
        total = (losses.mean(axis=1) * weights).sum()
        correct = ((logits.argmax(axis=-1) == ends).all(axis=1) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B 2"]:
        """The likeliest beginning and the likeliest end, each for itself."""
        return self.logits(module, params, features).argmax(axis=1)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B L 2"]:
        """The logits of every place: answers are weighed against each other over all windows of a text."""
        return self.logits(module, params, features)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: half the entropies of both ends."""
        return (entropy(features["ends"][:, 0]) + entropy(features["ends"][:, 1])) / 2
