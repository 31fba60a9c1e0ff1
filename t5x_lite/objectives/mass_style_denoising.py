"""The mask token in place of noise tokens, after MASS (Song et al. 2019; Raffel et al. 2020, section 3.3.2)."""

from dataclasses import dataclass
from typing import ClassVar, Self

from jaxtyping import Array, Int, Key

from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.token_noise import TokenNoise, mask_token_id, mask_tokens


@dataclass(frozen=True)
class MassStyleDenoising(TokenNoise):
    """15 % of the tokens are shown as the mask token; the target is the whole original text."""

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""

    pads_inputs: ClassVar[bool] = False

    @property
    def target_length(self) -> int:
        return self.input_length

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        mask_token_id(vocabulary)
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(raw)
        inputs, targets = mask_tokens(raw, self.noise_mask(key, raw), self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}
