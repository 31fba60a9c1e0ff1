"""Put shuffled tokens back in order (Raffel et al. 2020, section 3.3.1)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from t5x_lite.data.formats import Stream
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.text_to_text import TextToText, closed


@dataclass(frozen=True)
class Deshuffling(TextToText):
    """The input is the row in random order, the target the row as it was. Special ids, such as the EOS between two
    documents, stay where they are."""

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""

    pads_inputs: ClassVar[bool] = False

    @property
    def row_format(self) -> Stream:
        return Stream(self.input_length - 1)

    @property
    def target_length(self) -> int:
        return self.input_length

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(raw)
        inputs, targets = reorder(raw, self.order(key, raw), self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}

    def order(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Int[Array, "R"]:
        """Which raw id stands at each place; all orders of the text are equally likely."""
        text, index = ~masking.is_special(raw, self.known_vocabulary), jnp.arange(raw.shape[0])
        # Both list the places of the text, then the others in their order.
        places = jnp.argsort(~text, stable=True)
        shuffled = jnp.argsort(jnp.where(text, jax.random.uniform(key, raw.shape), 2.0), stable=True)
        return index.at[places].set(shuffled)


def reorder(
    raw: Int[Array, "R"], order: Int[Array, "R"], vocabulary: Vocabulary
) -> tuple[Int[Array, "R1"], Int[Array, "R1"]]:
    """(inputs, targets): the row in another order, and the row, both closed by EOS.

    >>> inputs, targets = reorder(jnp.array([10, 11, 12]), jnp.array([2, 0, 1]), Vocabulary(size=20))
    >>> inputs.tolist(), targets.tolist()
    ([12, 10, 11, 1], [10, 11, 12, 1])
    """
    return closed(raw[order], vocabulary), closed(raw, vocabulary)
