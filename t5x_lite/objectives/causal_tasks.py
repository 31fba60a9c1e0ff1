"""Fine-tuning a language model on a task, as GPT was: a head reads the last token of a row, and the model goes on
learning to predict its tokens (Radford et al. 2018, sections 3.2 and 3.3)."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.tasks.classification import Delimited, DelimitedChoices
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Row
from t5x_lite.objectives.classification import Classification
from t5x_lite.objectives.masked_language_model import apply, row_weights
from t5x_lite.objectives.multiple_choice import MultipleChoice
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)
from t5x_lite.validation import NonNegativeFloat


@dataclass(frozen=True)
class CausalTask(TaskObjective):
    """Base of tasks over rows that three marks begin, divide and end: `start`, `delimiter` and `extract`, the ids right
    behind the vocabulary's, which the model must have room for.

    The loss of an example is that of the task plus `language_model_weight` times the mean of those of its tokens, from
    the first text's first to `extract`, as in the released code (equation 5, whose sums these means are). Of an example
    that is several rows it is the mean over these.
    """

    language_model_weight: NonNegativeFloat = 0.5
    """Lambda; 0 leaves the language model out."""

    roles: ClassVar[tuple[str, ...]] = ()

    def check_model(self, model: ModelConfig) -> None:
        if model.architecture != "decoder" or self.head not in model.task_heads:
            name = type(self).__name__
            raise InputError(
                f"model is a {type(model).__name__}, which {name} cannot train; give it a GptConfig, or train this "
                f"model with {name.removeprefix('Causal')}"
            )
        super().check_model(model)

    @property
    def marks(self) -> tuple[int, int, int]:
        """The ids of start, delimiter and extract."""
        size = self.known_vocabulary.size
        return size, size + 1, size + 2

    @abstractmethod
    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        """The N rows that the model reads of each example."""

    @abstractmethod
    def row_logits(
        self,
        model: nn.Module,
        hidden: Float[Array, "B N L D"],
        valid: Bool[Array, "B N L"],
        *,
        deterministic: bool,
    ) -> Float[Array, "B C"]:
        """What the head says of each example, from the model's vectors; `valid` is false behind `extract`."""

    def logits(
        self, module: nn.Module, params: Any, features: Features, key: Key[Array, ""] | None = None
    ) -> Float[Array, "B C"]:
        return apply(module, params, lambda model: self._read(model, features, key)[0], key)

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: Key[Array, ""] | None,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        if not self.language_model_weight:
            return super().loss(module, params, features, key)

        def forward(model: nn.Module) -> tuple[Float[Array, "B C"], Float[Array, ""]]:
            logits, hidden, valid = self._read(model, features, key)
            return logits, self._language_model_loss(model, features, hidden, valid, deterministic=key is None)

        logits, language_model_loss = apply(module, params, forward, key)
        total, weight, metrics = self.loss_of(logits, features)
        metrics["language_model_loss"] = language_model_loss
        return total + self.language_model_weight * language_model_loss, weight, metrics

    def _read(
        self, model: nn.Module, features: Features, key: Key[Array, ""] | None
    ) -> tuple[Float[Array, "B C"], Float[Array, "B N L D"], Bool[Array, "B N L"]]:
        """(what the head says, the model's vectors, where they are not behind `extract`)."""
        ids = self.rows_of(features)
        ends = jnp.argmax(ids == self.marks[-1], axis=2)
        valid = jnp.arange(self.input_length)[None, None] <= ends[..., None]
        rows, rows_valid = (x.reshape(-1, self.input_length) for x in (ids, valid))
        hidden = model.hidden_states(rows, inputs_valid=rows_valid, deterministic=key is None).reshape(*ids.shape, -1)
        return self.row_logits(model, hidden, valid, deterministic=key is None), hidden, valid

    def _language_model_loss(
        self,
        model: nn.Module,
        features: Features,
        hidden: Float[Array, "B N L D"],
        valid: Bool[Array, "B N L"],
        *,
        deterministic: bool,
    ) -> Float[Array, ""]:
        """The mean loss of each example's tokens, added up over the examples."""
        length = self.input_length
        scores = model.token_scores(hidden.reshape(-1, length, hidden.shape[-1]), deterministic=deterministic)
        # Behind the last one there is no target; the row keeps its length, which the devices may share out.
        targets = jnp.roll(self.rows_of(features), -1, axis=2).reshape(-1, length)
        counts = jnp.pad(valid[..., 1:], ((0, 0), (0, 0), (0, 1))).astype(jnp.float32)
        weights = counts / counts.sum(axis=2, keepdims=True) / counts.shape[1] * row_weights(features)[:, None, None]
        return vocabulary_loss(scores, targets, weights.reshape(-1, length))[0]


@dataclass(frozen=True)
class CausalClassification(CausalTask, Classification):
    """The head `classification` learns the labels of examples from the last token of `start A delimiter B extract`, and
    the model goes on learning to predict their tokens: see `CausalTask`.

    Features are `inputs` [L], `segments` [L] and `label` [], and with `both_orders` `swapped` [L].
    """

    both_orders: bool = False
    """For pairs without an order, such as paraphrases: the model reads `start B delimiter A extract` too, and the two
    vectors are added up (similarity)."""

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
        self.check_row(row)
        inputs = row["ids"]
        segments = behind_delimiter(inputs, *self.marks[1:])
        features = {"inputs": inputs, "segments": segments, "label": row["label"]}
        return features | ({"swapped": swapped(inputs, *self.marks[1:])} if self.both_orders else {})

    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        # Side by side, so that each device has both orders of its examples.
        orders = ("inputs", "swapped") if self.both_orders else ("inputs",)
        return jnp.stack([features[name] for name in orders], axis=1)

    def row_logits(
        self,
        model: nn.Module,
        hidden: Float[Array, "B N L D"],
        valid: Bool[Array, "B N L"],
        *,
        deterministic: bool,
    ) -> Float[Array, "B C"]:
        # A row ends at the same position in either order.
        together = hidden.sum(axis=1)
        return model.classification_logits(together, inputs_valid=valid[:, 0], deterministic=deterministic)


def behind_delimiter(inputs: Int[Array, "L"], delimiter_id: int, extract_id: int) -> Int[Array, "L"]:
    """1 behind the delimiter, up to `extract`; else 0.

    >>> behind_delimiter(jnp.array([20, 7, 21, 8, 22, 0]), 21, 22).tolist()
    [0, 0, 0, 1, 1, 0]
    """
    positions, middle = jnp.arange(len(inputs)), jnp.argmax(inputs == delimiter_id)
    second = (middle > 0) & (positions > middle) & (positions <= jnp.argmax(inputs == extract_id))
    return second.astype(inputs.dtype)


def swapped(inputs: Int[Array, "L"], delimiter_id: int, extract_id: int) -> Int[Array, "L"]:
    """`start A delimiter B extract` as `start B delimiter A extract`.

    >>> swapped(jnp.array([20, 7, 21, 8, 9, 22, 0]), 21, 22).tolist()
    [20, 8, 9, 21, 7, 22, 0]
    """
    positions, middle = jnp.arange(len(inputs)), jnp.argmax(inputs == delimiter_id)
    end = jnp.argmax(inputs == extract_id)
    new_middle = end - middle
    before, behind = positions < new_middle, positions < end
    come_from = jnp.where(before, positions + middle, jnp.where(behind, positions - new_middle, positions))
    return inputs[jnp.where(positions == new_middle, middle, jnp.where(positions == 0, 0, come_from))]


@dataclass(frozen=True)
class CausalMultipleChoice(CausalTask, MultipleChoice):
    """The head `multiple_choice` gives every answer a number, from the last token of `start text delimiter answer
    extract`; the softmax is over the answers, and the model goes on learning to predict the tokens: see `CausalTask`.

    Features are those of `MultipleChoice`.
    """

    @cached_property
    def layout(self) -> DelimitedChoices:
        return DelimitedChoices(self.input_length, self.num_choices)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = CausalMultipleChoice(8, 2).for_vocabulary(Vocabulary(30))
        >>> ids = jnp.array([[30, 10, 11, 31, 20, 32, 0, 0], [30, 10, 11, 31, 21, 22, 32, 0]])
        >>> row = objective.corrupt(jax.random.key(0), {"ids": ids, "label": jnp.int32(1)})
        >>> row["segments"].tolist(), row["label"].item()
        ([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0]], 1)
        """
        self.check_row(row)
        segments = jax.vmap(lambda ids: behind_delimiter(ids, *self.marks[1:]))(row["ids"])
        return {"inputs": row["ids"], "segments": segments, "label": row["label"]}

    def rows_of(self, features: Features) -> Int[Array, "B N L"]:
        return features["inputs"]

    def row_logits(
        self,
        model: nn.Module,
        hidden: Float[Array, "B N L D"],
        valid: Bool[Array, "B N L"],
        *,
        deterministic: bool,
    ) -> Float[Array, "B C"]:
        rows, rows_valid = hidden.reshape(-1, *hidden.shape[2:]), valid.reshape(-1, valid.shape[2])
        answers = model.multiple_choice_logits(rows, inputs_valid=rows_valid, deterministic=deterministic)
        return answers.reshape(hidden.shape[:2])
