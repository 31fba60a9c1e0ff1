"""Noise tokens dropped from the input, and asked for (Raffel et al. 2020, section 3.3.2)."""

import bisect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.text_to_text import kept_ids
from t5x_lite.objectives.token_noise import TokenNoise


@dataclass(frozen=True)
class DropTokens(TokenNoise):
    """The input is the row without its noise tokens, the target the noise tokens alone."""

    input_length: int = 512
    """Ids of the input, EOS included; filled exactly."""

    pads_inputs: ClassVar[bool] = False
    targets_are_text: ClassVar[bool] = False

    @cached_property
    def raw_length(self) -> int:
        """The most raw ids of which `input_length - 1` are left.

        >>> objective = DropTokens(512)
        >>> objective.raw_length, objective.target_length
        (601, 91)
        """
        # What is left never gets less as a row grows.
        bound = math.ceil((self.input_length + 1) / (1.0 - self.noise_density)) + 2
        return bisect.bisect_right(range(2, bound), self.input_length - 1, key=lambda n: n - self._noise_in(n)) + 1

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + 1

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`raw_length` ids to `inputs` [input_length] and `targets` [target_length]."""
        self.check_row(raw)
        noise, lengths = self.noise_mask(key, raw), (self.input_length, self.target_length)
        inputs, targets = drop_tokens(raw, noise, self.known_vocabulary, *lengths)
        return {"inputs": inputs, "targets": targets}


def drop_tokens(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, input_length: int, target_length: int
) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
    """(inputs, targets) of one row under a noise mask, each closed by EOS, and padded or cut to its length.

    >>> import jax.numpy as jnp
    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> inputs, targets = drop_tokens(jnp.arange(10, 21), noise, Vocabulary(size=22), 9, 4)
    >>> [" ".join(words[i - 10] for i in side.tolist() if i > 1) for side in (inputs, targets)]
    ['Thank you me to your party week .', 'for inviting last']
    """
    return kept_ids(raw, ~noise, vocabulary, input_length), kept_ids(raw, noise, vocabulary, target_length)
