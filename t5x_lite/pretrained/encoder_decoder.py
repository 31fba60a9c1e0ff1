"""An encoder-decoder in a notebook."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding import greedy_decode
from t5x_lite.errors import InputError
from t5x_lite.objectives.losses import shift_right
from t5x_lite.pretrained.base import Pretrained

_LENGTH_STEP = 32  # inputs are padded to a multiple of it, so that few lengths are compiled


@dataclass(frozen=True)
class PretrainedEncoderDecoder(Pretrained):
    """Calling it gives logits; `generate` gives text."""

    @property
    def abilities(self) -> tuple[str, ...]:
        return "generate", "generate_ids"

    def __call__(
        self, inputs: list[str] | Int[Array, "B M"], targets: list[str] | Int[Array, "B L"]
    ) -> Float[Array, "B L V"]:
        """Logits of each target token given the inputs and the targets before it.

        Texts are tokenized, closed by EOS and padded to the longest; of ids, those equal to the padding id count as
        padding.
        """
        input_ids, target_ids = self._ids(inputs), self._ids(targets)
        pad_id = self._vocabulary.pad_id
        return _logits(self.module, self.params, input_ids, shift_right(target_ids, pad_id), input_ids != pad_id)

    def generate(self, texts: list[str] | str, *, max_length: int = 128) -> list[str] | str:
        """The model's continuation of each text, greedily: for T5 the spans behind `<extra_id_0>`, `<extra_id_1>`, ...

        One text gives one text. `max_length` counts tokens.
        """
        if isinstance(texts, str):
            return self.generate([texts], max_length=max_length)[0]
        if max_length < 1:
            raise InputError(f"max_length={max_length} is too small; choose 1 or more")
        ids = self.generate_ids(self._encode(texts, _LENGTH_STEP), max_length=max_length)
        return [self.tokenizer.decode(row) for row in np.asarray(ids).tolist()]

    def generate_ids(
        self, inputs: Int[Array, "B M"], *, max_length: int = 128, inputs_valid: Bool[Array, "B M"] | None = None
    ) -> Int[Array, "B L"]:
        """Greedy decoding of ids; `inputs_valid` is by default true where the inputs are no padding."""
        vocabulary = self._vocabulary
        inputs = jax.numpy.asarray(inputs)
        return greedy_decode(
            self.module,
            self.params,
            inputs,
            max_length=max_length,
            inputs_valid=inputs != vocabulary.pad_id if inputs_valid is None else inputs_valid,
            start_id=vocabulary.pad_id,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
        )

    def _ids(self, texts: list[str] | Int[Array, "B L"]) -> Int[Array, "B L"]:
        is_text = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        return self._encode(texts, 1) if is_text else jax.numpy.asarray(texts)

    def _encode(self, texts: list[str], multiple: int) -> Int[Array, "B L"]:
        tokenizer = self._tokenizer()
        if not texts:
            raise InputError("texts=[] is empty; give one or more")
        rows = [[*tokenizer.encode(text), self._vocabulary.eos_id] for text in texts]
        length = -(-max(map(len, rows)) // multiple) * multiple
        padded = [row + [self._vocabulary.pad_id] * (length - len(row)) for row in rows]
        return jax.numpy.asarray(padded, jax.numpy.int32)


@partial(jax.jit, static_argnums=0)
def _logits(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    decoder_inputs: Int[Array, "B L"],
    inputs_valid: Bool[Array, "B M"],
) -> Float[Array, "B L V"]:
    return module.apply({"params": params}, inputs, decoder_inputs, inputs_valid=inputs_valid)
