"""Fine-tuning a language model on whole texts and pairs of texts (Radford et al. 2018, section 3.3)."""

from dataclasses import dataclass
from functools import cached_property

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.delimited_rows import Delimited
from t5x_lite.data.vocabulary import Vocabulary  # noqa: F401 (read by doctests)
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.causal_task import CausalTask
from t5x_lite.objectives.classification import Classification


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
    def row_format(self) -> Delimited:
        return Delimited(self.input_length, self.both_orders)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """One raw row to its features; nothing is random.

        >>> objective = CausalClassification(8, both_orders=True).for_vocabulary(Vocabulary(20))
        >>> row = objective.corrupt(jax.random.key(0), jnp.array([20, 7, 21, 8, 9, 22, 0, 0, 16416, 0]))
        >>> row["inputs"].tolist(), row["swapped"].tolist()
        ([20, 7, 21, 8, 9, 22, 0, 0], [20, 8, 9, 21, 7, 22, 0, 0])
        >>> row["segments"].tolist(), row["label"].item()
        ([0, 0, 0, 1, 1, 1, 0, 0], 2.5)
        """
        inputs, label = self._inputs_and_label(raw)
        features = {"inputs": inputs, "segments": behind_delimiter(inputs, *self.marks[1:]), "label": label}
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
        # A row ends at the same place in either order.
        together = hidden.sum(axis=1)
        return model.classification_logits(together, inputs_valid=valid[:, 0], deterministic=deterministic)


def behind_delimiter(inputs: Int[Array, "L"], delimiter_id: int, extract_id: int) -> Int[Array, "L"]:
    """1 behind the delimiter, up to `extract`; else 0.

    >>> behind_delimiter(jnp.array([20, 7, 21, 8, 22, 0]), 21, 22).tolist()
    [0, 0, 0, 1, 1, 0]
    """
    places, middle = jnp.arange(len(inputs)), jnp.argmax(inputs == delimiter_id)
    second = (middle > 0) & (places > middle) & (places <= jnp.argmax(inputs == extract_id))
    return second.astype(inputs.dtype)


def swapped(inputs: Int[Array, "L"], delimiter_id: int, extract_id: int) -> Int[Array, "L"]:
    """`start A delimiter B extract` as `start B delimiter A extract`.

    >>> swapped(jnp.array([20, 7, 21, 8, 9, 22, 0]), 21, 22).tolist()
    [20, 8, 9, 21, 7, 22, 0]
    """
    places, middle = jnp.arange(len(inputs)), jnp.argmax(inputs == delimiter_id)
    end = jnp.argmax(inputs == extract_id)
    new_middle = end - middle
    before, behind = places < new_middle, places < end
    come_from = jnp.where(before, places + middle, jnp.where(behind, places - new_middle, places))
    return inputs[jnp.where(places == new_middle, middle, jnp.where(places == 0, 0, come_from))]
