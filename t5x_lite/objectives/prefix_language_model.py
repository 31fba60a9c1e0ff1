"""The prefix language model: a text goes on from where it was cut (Raffel et al. 2020, sections 3.2.3 and 3.3.1)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from t5x_lite.data.formats import Stream
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.text_to_text import TextToText, kept_ids


@dataclass(frozen=True)
class PrefixLanguageModel(TextToText):
    """A row is cut at a random place, all of them equally likely: the input is what is before it, the target the rest.

    Neither is ever empty. Both are padded to the longest that there can be.
    """

    input_length: int = 512
    """Ids of a raw row, and of the input and the target at most, EOS included."""

    @property
    def row_format(self) -> Stream:
        return Stream(self.input_length)

    @property
    def target_length(self) -> int:
        return self.input_length

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`input_length` ids to `inputs` and `targets`, both as long."""
        self.check_row(raw)
        prefix = jax.random.randint(key, (), 1, raw.shape[0])
        inputs, targets = split_at(raw, prefix, self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}


def split_at(
    raw: Int[Array, "R"], prefix: Int[Array, ""] | int, vocabulary: Vocabulary
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """(inputs, targets): the first `prefix` ids of a row and the others, each closed by EOS and padded.

    >>> [side.tolist() for side in split_at(jnp.array([7, 8, 9, 7]), 3, Vocabulary(size=10))]
    [[7, 8, 9, 1], [7, 1, 0, 0]]
    """
    index, length = jnp.arange(raw.shape[0]), raw.shape[0]
    return tuple(kept_ids(raw, kept, vocabulary, length) for kept in (index < prefix, index >= prefix))
