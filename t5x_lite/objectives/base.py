"""What every objective is: two pure functions, `corrupt` and `loss`, and the row length they need."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import tyro
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.vocabulary import Vocabulary

Features = dict[str, Array]
"""What the model sees and is asked, each with a leading row dimension once `corrupt` is vmapped."""

Metrics = dict[str, Float[Array, ""]]
"""Sums over tokens; divided by the weight they are means."""


@dataclass(frozen=True)
class Objective(ABC):
    """How raw ids become a task, and what the model pays for its answers. A new objective is a file beside this one."""

    vocabulary: tyro.conf.Suppress[Vocabulary | None] = field(default=None, kw_only=True)
    """The ids with a meaning of their own. The tokenizer knows them: see `for_vocabulary`."""

    @property
    @abstractmethod
    def raw_length(self) -> int:
        """How many raw ids one row takes."""

    @abstractmethod
    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """One row of raw ids to one row of features; pure, with static shapes."""

    @abstractmethod
    def loss(
        self, module: nn.Module, params: Any, features: Features, key: Key[Array, ""] | None
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        """(sum, weight, metrics) over the features of a batch; the caller divides the sum by the weight.

        `key` drives dropout; None means deterministic. Where the features hold `valid` [B], rows for which it is false
        count for nothing (they fill up the last batch of an evaluation).
        """

    @abstractmethod
    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """The model's own answers to the features, as ids that compare with `features["targets"]`."""

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """This objective with its vocabulary. Raises `InputError` where the two do not fit."""
        return replace(self, vocabulary=vocabulary)


def corrupt_rows(
    objective: Objective, key: Key[Array, ""], raw: Int[Array, "B R"], first_row: Int[Array, ""] | int = 0
) -> Features:
    """Corrupts the rows `first_row, first_row + 1, ...` of the global batch, each under a key of its own."""
    rows = first_row + jnp.arange(raw.shape[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    return jax.vmap(objective.corrupt)(keys, raw)
