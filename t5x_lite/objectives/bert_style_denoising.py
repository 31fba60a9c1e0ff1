"""BERT's objective as T5's authors gave it to an encoder-decoder (Raffel et al. 2020, sections 3.1.4 and 3.3.1)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.token_noise import TokenNoise, mask_token_id, mask_tokens


@dataclass(frozen=True)
class BertStyleDenoising(TokenNoise):
    """15 % of the tokens are shown as the mask token or as a random one; the target is the whole original text.

    How many tokens are noise is exact; which of them is shown as what is drawn for each.
    """

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""
    random_share: float = 0.1
    """Share of the noise tokens shown as another token, drawn at random; the rest is shown as the mask token."""

    pads_inputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.random_share <= 1.0:
            raise InputError(f"random_share={self.random_share} is not in [0, 1]; choose e.g. 0.1")

    @property
    def target_length(self) -> int:
        return self.input_length

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        mask_token_id(vocabulary)
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(raw)
        vocabulary = self.known_vocabulary
        noise_key, draw_key, token_key = jax.random.split(key, 3)
        is_random = jax.random.uniform(draw_key, raw.shape) < self.random_share
        tokens = masking.random_tokens(token_key, raw.shape[0], vocabulary)
        shown = jnp.where(is_random, tokens, mask_token_id(vocabulary))
        inputs, targets = mask_tokens(raw, self.noise_mask(noise_key, raw), vocabulary, shown)
        return {"inputs": inputs, "targets": targets}
