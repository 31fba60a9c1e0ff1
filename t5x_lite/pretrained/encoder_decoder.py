"""An encoder-decoder in a notebook."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.objectives.losses import not_padding, shift_right
from t5x_lite.pretrained.attention import (
    AttentionMaps,
    cross_weights,
    make_map,
    padded_row,
    self_weights,
    sown_weights,
)
from t5x_lite.pretrained.prompts import named_texts
from t5x_lite.pretrained.text_model import PretrainedTextModel
from t5x_lite.pretrained.writing import Row, padded
from t5x_lite.tokenizers.base import format_tokens


@dataclass(frozen=True)
class PretrainedEncoderDecoder(PretrainedTextModel):
    """T5, Transformer, Marian, BART: calling it gives logits, `generate` gives text, `score` rates texts.

    Inputs and answers are closed by EOS, as in training; those of a published BART begin with <s> too.
    """

    def __call__(
        self, inputs: list[str] | Int[Array, "B M"], targets: list[str] | Int[Array, "B L"]
    ) -> Float[Array, "B L V"]:
        """Logits of each target token given the inputs and the targets before it.

        Texts are tokenized, closed by EOS and padded to the longest; of ids, those equal to the padding id count as
        padding.
        """
        input_ids, target_ids = self._ids(inputs, self._prompt_ids), self._ids(targets, self._answer_ids)
        valid = not_padding(input_ids, self._vocabulary.pad_id, self._vocabulary.eos_id)
        return _logits(self.module, self.params, input_ids, shift_right(target_ids, self._start_id), valid)

    def _ids(self, texts: list[str] | Int[Array, "B L"], ids_of: Callable[[str], list[int]]) -> Int[Array, "B L"]:
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return jnp.asarray(texts)
        rows = [self._row(name, ids_of(text)) for name, text in named_texts(texts).items()]
        return jnp.asarray(padded(rows, self._vocabulary.pad_id, max(len(row.ids) for row in rows))[0])

    def _prompt_ids(self, text: str) -> list[int]:
        return self._closed(self._tokenizer().encode(text))

    def _answer_ids(self, text: str) -> list[int]:
        return self._closed(self._tokenizer().target_side.encode(text))

    def _closed(self, ids: list[int]) -> list[int]:
        begins = self._vocabulary.cls_id if self.config.texts_begin_with_cls and self.experiment is None else None
        return [*([] if begins is None else [begins]), *ids, self._vocabulary.eos_id]

    @property
    def _start_id(self) -> int:
        if self.generation.start_id is not None:
            return self.generation.start_id
        return self.config.decoder_start_id(pad_id=self._vocabulary.pad_id, eos_id=self._vocabulary.eos_id)

    def _attention(self, name: str, ids: list[int], answer: list[int] | None, max_length: int) -> AttentionMaps:
        most, eos_id, pad_id = self._room(0), self._vocabulary.eos_id, self._vocabulary.pad_id
        self._check_room(self._row(name, ids), max_length if answer is None else len(answer))
        if answer is None:
            written = self.generate_ids([ids], max_length=max_length)[0].tolist()
            answer = written[: written.index(eos_id) + 1] if eos_id in written else [*written, eos_id]
        read = [self._start_id, *answer[:-1]]  # what closes the answer is written and not read
        tokenizer = self._tokenizer()
        sources, targets = format_tokens(tokenizer, ids), format_tokens(tokenizer.target_side, read)
        inputs, behind = (padded_row(side, pad_id, most) for side in (ids, read))
        sown = sown_weights(self.module, self.params, inputs.ids, behind.ids, inputs_valid=inputs.valid)
        # Stacks that share their layers sow into one place, the encoder first.
        encoder = sown.get("encoder", sown["decoder"])
        return AttentionMaps(
            (
                make_map("encoder", sources, sources, self_weights(encoder, 0)),
                make_map("decoder", targets, targets, self_weights(sown["decoder"])),
                make_map("cross", targets, sources, cross_weights(sown["decoder"])),
            )
        )

    def _row(self, name: str, ids: list[int], valid: list[bool] | None = None) -> Row:
        return Row(name, ids, self._start_id, valid)

    def _check_room(self, row: Row, max_length: int) -> None:
        most = self._room(0)
        if most is not None and len(row.ids) > most:
            raise InputError(
                f"{row.name} has {len(row.ids)} tokens, EOS included, and the model has positions for {most}; cut it "
                "into shorter texts"
            )
        if most is not None and max_length > most:
            raise InputError(
                f"max_length={max_length} exceeds the {most} positions of the model; choose {most} or less"
            )

    def _room(self, num_inputs: int) -> int | None:
        return getattr(self.config, "max_length", None)  # T5 has a bias instead of positions

    def _longest_inputs(self, max_length: int) -> int | None:
        return self._room(0)


@partial(jax.jit, static_argnums=0)
def _logits(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    decoder_inputs: Int[Array, "B L"],
    inputs_valid: Bool[Array, "B M"],
) -> Float[Array, "B L V"]:
    return module.apply({"params": params}, inputs, decoder_inputs, inputs_valid=inputs_valid)
