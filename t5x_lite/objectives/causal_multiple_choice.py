"""Fine-tuning a language model on choosing one of several answers (Radford et al. 2018, section 3.3)."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp  # noqa: F401 (read by doctests)
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.delimited_rows import DelimitedChoices
from t5x_lite.data.vocabulary import Vocabulary  # noqa: F401 (read by doctests)
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.causal_classification import behind_delimiter
from t5x_lite.objectives.causal_task import CausalTask
from t5x_lite.objectives.multiple_choice import MultipleChoice


@dataclass(frozen=True)
class CausalMultipleChoice(CausalTask, MultipleChoice):
    """The head `multiple_choice` gives every answer a number, from the last token of `start text delimiter answer
    extract`; the softmax is over the answers, and the model goes on learning to predict the tokens: see `CausalTask`.

    Features are those of `MultipleChoice`.
    """

    @cached_property
    def row_format(self) -> DelimitedChoices:
        return DelimitedChoices(self.input_length, self.num_choices)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """One raw row to its features; nothing is random.

        >>> objective = CausalMultipleChoice(8, 2).for_vocabulary(Vocabulary(30))
        >>> raw = jnp.array([30, 10, 11, 31, 20, 32, 0, 0] + [30, 10, 11, 31, 21, 22, 32, 0] + [1])
        >>> row = objective.corrupt(jax.random.key(0), raw)
        >>> row["segments"].tolist(), row["label"].item()
        ([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0]], 1)
        """
        self._check_raw(raw)
        inputs = raw[:-1].reshape(self.num_choices, self.input_length)
        segments = jax.vmap(lambda ids: behind_delimiter(ids, *self.marks[1:]))(inputs)
        return {"inputs": inputs, "segments": segments, "label": raw[-1]}

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
        said = model.multiple_choice_logits(rows, inputs_valid=rows_valid, deterministic=deterministic)
        return said.reshape(hidden.shape[:2])
