"""MASS: masked sequence to sequence pretraining (Song et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Row
from t5x_lite.objectives.losses import most_likely
from t5x_lite.objectives.t5_denoising import mask_token_id
from t5x_lite.objectives.text_to_text import StreamDenoising, closed
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Share


@dataclass(frozen=True)
class MaskedSequenceToSequence(StreamDenoising):
    """The encoder reads a row in which one span is hidden, and the decoder writes the span, which is all that it sees
    of the row, at the positions that the span has there (Song et al. 2019, section 3.2).

    Features are `inputs` [B M], a row and its EOS; of the span `targets` [B L], `decoder_inputs` [B L], the token
    before each target, and `decoder_positions` [B L]. All spans of that length are equally likely.
    """

    input_length: int = 512
    """Ids of the input, EOS included; filled exactly."""
    span_share: Share = 0.5
    """Of a row, that is hidden (k / m)."""
    mask_share: Share = 0.8
    """Of the hidden tokens, that are shown as the mask token (section 4.1)."""
    random_share: Share = 0.1
    """Of the hidden tokens, that are shown as another one, drawn at random; the rest is shown as it is."""

    asks_for_text: ClassVar[bool] = False  # what is written depends on where it stands
    pads_inputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_share + self.random_share > 1:
            raise InputError(
                f"mask_share={self.mask_share} and random_share={self.random_share} are more than 1 together; choose "
                "e.g. 0.8 and 0.1"
            )

    @property
    def target_length(self) -> int:
        """Ids of the span."""
        return max(1, round(self.span_share * self.raw_length))

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        mask_token_id(vocabulary)
        return super().for_vocabulary(vocabulary)

    def check_model(self, model: ModelConfig) -> None:
        super().check_model(model)
        if model.architecture != "encoder-decoder" or not model.packs_rows:
            raise InputError(
                f"model is a {type(model).__name__}, whose decoder does not begin at any position; "
                "MaskedSequenceToSequence trains T5Config, TransformerConfig or BartConfig"
            )

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to a row of features."""
        self.check_row(row)
        raw, vocabulary, length = row["ids"], self.known_vocabulary, self.target_length
        start_key, hide_key = jax.random.split(key)
        start = jax.random.randint(start_key, (), 0, self.raw_length - length + 1)
        index = jnp.arange(self.raw_length)
        hidden = (index >= start) & (index < start + length)
        shares, mask_id = (self.mask_share, self.random_share), mask_token_id(vocabulary)
        shown = masking.hide(hide_key, raw, hidden, vocabulary, *shares, mask_id=mask_id)
        # Of a span in front of the row the token before the first is the start id, which the model knows.
        before = jnp.pad(raw, (1, 0), constant_values=-1)
        return {
            "inputs": closed(shown, vocabulary),
            "targets": jax.lax.dynamic_slice(raw, (start,), (length,)),
            "decoder_inputs": jax.lax.dynamic_slice(before, (start,), (length,)),
            "decoder_positions": start + jnp.arange(length),
        }

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        features = self.corrupt(key, {"ids": raw})
        return features["inputs"], features["targets"]

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> LazyLogits:
        before = features["decoder_inputs"]
        before = jnp.where(before < 0, self._start_id(model), before)
        positions = features["decoder_positions"]
        return model.scores(features["inputs"], before, decoder_positions=positions, deterministic=key is None)

    def predict(self, module: nn.Module, params: object, features: Features) -> Int[Array, "B T"]:
        """The likeliest token of the span at each of its positions, given those before it."""
        return most_likely(self.apply(module, params, features).dense())
