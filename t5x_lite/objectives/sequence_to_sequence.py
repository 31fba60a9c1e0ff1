"""Text to text from pairs, such as translations (Sutskever et al. 2014, section 2)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int, Key

from t5x_lite.data.formats import TextPairs, TooLong
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.decoder import DecoderConfig
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.losses import segments_of
from t5x_lite.objectives.text_to_text import TextToText


@dataclass(frozen=True)
class SequenceToSequence(TextToText):
    """The likelihood of each target given its source, teacher forced. Pairs that share a row do not see each other."""

    input_length: int = 512
    """Ids of the sources of a row, an EOS after each included."""
    target_length: int = 512
    """Ids of the targets of a row, an EOS after each included."""
    packed: bool = True
    """Several pairs in a row, as many as fit; else one. Decoders take one."""
    too_long: TooLong = "error"
    """What becomes of a pair with a side over its length: error, skip or cut."""

    shortest: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_length < 2:
            raise InputError(f"target_length={self.target_length} is too short for a text and EOS; choose 2 or more")
        self.row_format  # noqa: B018 (checks its fields)

    @property
    def row_format(self) -> TextPairs:
        return TextPairs(self.input_length, self.target_length, packed=self.packed, too_long=self.too_long)

    def check_model(self, model: ModelConfig) -> None:
        super().check_model(model)
        if self.packed and isinstance(model, DecoderConfig):
            raise InputError(
                f"objective.packed=True does not go with a {type(model).__name__}, which reads inputs and targets as"
                " one sequence; set objective.packed to False"
            )

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`input_length + target_length` ids to `inputs` and `targets`; of packed rows also their segments."""
        self.check_row(raw)
        inputs, targets = raw[: self.input_length], raw[self.input_length :]
        features = {"inputs": inputs, "targets": targets}
        if not self.packed:
            return features
        pad_id, eos_id = self.known_vocabulary.pad_id, self.known_vocabulary.eos_id
        segments = {"inputs_segments": inputs, "decoder_segments": targets}
        return features | {name: segments_of(ids, pad_id, eos_id) for name, ids in segments.items()}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """What the model writes for each input, greedily; of packed rows for the first one of each."""
        return super().predict(module, params, self._first_pairs(features))

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """The first pair of each row, and what the model writes."""
        return super().samples(module, params, self._first_pairs(features))

    def _first_pairs(self, features: Features) -> Features:
        """Rows of one pair each."""
        if "inputs_segments" not in features:
            return features
        segments = {"inputs": "inputs_segments", "targets": "decoder_segments"}
        pad_id = self.known_vocabulary.pad_id
        return {side: jnp.where(features[of] == 1, features[side], pad_id) for side, of in segments.items()}
