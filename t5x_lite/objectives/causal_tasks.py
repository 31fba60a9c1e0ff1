"""Tasks of a decoder as GPT was fine-tuned: a head beside the language model (Radford et al. 2018, section 3.2)."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.tasks.classification import Delimited
from t5x_lite.data.tasks.multiple_choice import DelimitedChoices
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Row, row_weights
from t5x_lite.objectives.classification import Classification, MultipleChoice
from t5x_lite.objectives.task import TextTask
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)
from t5x_lite.validation import NonNegativeFloat


@dataclass(frozen=True)
class CausalTask(TextTask):
    """Base of tasks over rows with three marks: `start`, `delimiter` and `extract`, the ids that follow on the
    vocabulary's, for which the model must have room.

    The loss of an example is that of the task plus `language_model_weight` times the mean over its tokens, from the
    first text's first to `extract`, as in the released code (equation 5 has sums). Of an example with several rows it
    is the mean over the rows.
    """

    language_model_weight: NonNegativeFloat = 0.5
    """Lambda; 0 leaves the language model out."""

    roles: ClassVar[tuple[str, ...]] = ()
    adds_rows: ClassVar[bool] = False
    """Whether the head reads the sum of an example's rows, not each row."""

    def check_model(self, model: ModelConfig) -> None:
        if model.architecture != "decoder" or self.head not in model.task_heads:
            name = type(self).__name__
            raise InputError(
                f"model is a {type(model).__name__}, which {name} cannot train; give it a GptConfig, or train this "
                f"model with {name.removeprefix('Causal')}"
            )
        super().check_model(model)

    @abstractmethod
    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        """The N rows that the model reads of each example."""

    def logits(self, module: nn.Module, params: Any, features: Features, key: DropoutKey = None) -> Float[Array, "B C"]:
        """The head's logits of C classes or choices for each example, without the language modeling loss."""
        return replace(self, language_model_weight=0.0).apply(module, params, features, key)[0]

    def forward(
        self, model: nn.Module, features: Features, key: DropoutKey
    ) -> tuple[Float[Array, "B C"], Float[Array, ""] | None]:
        """(the logits of the head, the mean loss of each example's tokens added up over the examples)."""
        ids, length, deterministic = self.rows_of(features), self.input_length, key is None
        ends = jnp.argmax(ids == self.special_ids.sep_id, axis=2)
        valid = jnp.arange(length)[None, None] <= ends[..., None]
        rows, rows_valid = (x.reshape(-1, length) for x in (ids, valid))
        rows_hidden = model.hidden_states(rows, inputs_valid=rows_valid, deterministic=deterministic)
        hidden, hidden_valid = rows_hidden, rows_valid
        if self.adds_rows:  # they end at the same position
            hidden, hidden_valid = rows_hidden.reshape(*ids.shape, -1).sum(axis=1), valid[:, 0]
        logits = getattr(model, f"{self.head}_logits")(hidden, inputs_valid=hidden_valid, deterministic=deterministic)
        logits = logits.reshape(len(ids), -1)
        if not self.language_model_weight:
            return logits, None
        scores = model.token_scores(rows_hidden, deterministic=deterministic)
        # The last id has no target; the row keeps its length, which may be sharded.
        targets = jnp.roll(ids, -1, axis=2).reshape(-1, length)
        counts = jnp.pad(valid[..., 1:], ((0, 0), (0, 0), (0, 1))).astype(jnp.float32)
        weights = counts / counts.sum(axis=2, keepdims=True) / counts.shape[1] * row_weights(features)[:, None, None]
        return logits, vocabulary_loss(scores, targets, weights.reshape(-1, length))[0]

    def loss_of(self, outputs: tuple[Array, Array | None], features: Features, whole: Features) -> Loss:
        logits, language_model_loss = outputs
        total, weight, metrics = super().loss_of(logits, features, whole)
        if language_model_loss is None:
            return total, weight, metrics
        metrics["language_model_loss"] = language_model_loss
        return total + self.language_model_weight * language_model_loss, weight, metrics


@dataclass(frozen=True)
class CausalClassification(CausalTask, Classification):
    """A `CausalTask` whose head `classification` learns labels from the last token of `start A delimiter B extract`.

    Features are `inputs` [L], `segments` [L] and `label` [], and with `both_orders` `swapped` [L].
    """

    both_orders: bool = False
    """For pairs without an order, such as paraphrases: the model reads `start B delimiter A extract` too, and the two
    vectors are added up (similarity)."""

    adds_rows: ClassVar[bool] = True

    @cached_property
    def layout(self) -> Delimited:
        return Delimited(self.input_length, self.both_orders)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = CausalClassification(8, both_orders=True).for_vocabulary(Vocabulary(20))
        >>> row = {"ids": jnp.array([20, 7, 21, 8, 9, 22, 0, 0]), "label": jnp.float32(2.5)}
        >>> row = objective.corrupt(jax.random.key(0), row)
        >>> row["inputs"].tolist(), row["swapped"].tolist()
        ([20, 7, 21, 8, 9, 22, 0, 0], [20, 8, 9, 21, 7, 22, 0, 0])
        >>> row["segments"].tolist(), row["label"].item()
        ([0, 0, 0, 1, 1, 1, 0, 0], 2.5)
        """
        features, ids = super().corrupt(key, row), row["ids"]
        if not self.both_orders:
            return features
        middle, end = (jnp.argmax(ids == mark) for mark in (self.special_ids.delimiter_id, self.special_ids.sep_id))
        return features | {"swapped": masking.swap_segments(ids, middle, end)}

    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        # Side by side, so that each device has both orders of its examples.
        orders = ("inputs", "swapped") if self.both_orders else ("inputs",)
        return jnp.stack([features[name] for name in orders], axis=1)


@dataclass(frozen=True)
class CausalMultipleChoice(CausalTask, MultipleChoice):
    """A `CausalTask` whose head `multiple_choice` gives every answer a number, from the last token of
    `start text delimiter answer extract`; the softmax is over the answers. Features are those of `MultipleChoice`.
    """

    @cached_property
    def layout(self) -> DelimitedChoices:
        return DelimitedChoices(self.input_length, self.num_choices)

    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        return features["inputs"]
