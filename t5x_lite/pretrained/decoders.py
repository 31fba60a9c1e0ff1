"""A decoder and an encoder-decoder in a notebook."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
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
from t5x_lite.pretrained.batches import Row, apply_model, named_texts, pad_rows
from t5x_lite.pretrained.text_model import PretrainedTextModel, Prompt
from t5x_lite.tokenizers.base import format_tokens


@dataclass(frozen=True)
class PretrainedDecoder(PretrainedTextModel):
    """GPT, GPT-2, GPT-3 and T5's decoder: calling it gives logits, `generate` gives text, `score` rates texts.

    There are two kinds. One goes on from where the prompt breaks off: what `generate` returns is the continuation,
    blanks included, and the answers given to `score` are not closed. The other was trained to read a text and to write
    another one: its prompt is closed by EOS, and so are its answers. Of our runs the objective says which it is; of
    other checkpoints the family: GPTs go on, T5's decoders answer. Without any token a prompt is an EOS.
    """

    def __call__(
        self, texts: str | list[str] | Int[Array, "B L"], *, valid: Bool[Array, "B L"] | None = None
    ) -> Float[Array, "B L V"]:
        """Logits of what follows each token, given those before it.

        Texts are padded behind to the longest. Of ids, `valid` says which are no padding; without it all are none.
        Behind padding the logits mean nothing.
        """
        is_text = isinstance(texts, str) or (isinstance(texts, list | tuple) and isinstance((*texts, "")[0], str))
        if is_text:
            rows = [Row(self._prompt_ids(text)) for text in named_texts(texts).values()]
            texts, _, valid = pad_rows(rows, self._vocabulary.pad_id)
        ids = jnp.asarray(texts)
        valid = jnp.ones(ids.shape, bool) if valid is None else jnp.asarray(valid)
        return apply_model(self.module, self.params, ids, inputs_valid=valid)

    @property
    def is_text_to_text(self) -> bool:
        """Whether it reads a text and writes another one, rather than going on from where the text breaks off."""
        if self.experiment is not None:
            return self.experiment.objective.asks_for_text
        return self.config.answers_prompts

    def _prompt_ids(self, text: str) -> list[int]:
        ids = self._tokenizer().encode(text)
        return ids if ids and not self.is_text_to_text else [*ids, self._vocabulary.eos_id]

    def _answer_ids(self, text: str) -> list[int]:
        ids = self._tokenizer().encode(text)
        return [*ids, self._vocabulary.eos_id] if self.is_text_to_text else ids

    def _answer(self, prompt_ids: list[int], ids: list[int], prompt: Prompt) -> str:
        if self.is_text_to_text or prompt.stop:
            return super()._answer(prompt_ids, ids, prompt)
        # A tokenizer may leave out the blank with which a text begins, but not one inside it.
        before, whole = (self._tokenizer().decode(some) for some in (prompt_ids, [*prompt_ids, *ids]))
        return whole.removeprefix(before)

    def _attention(self, name: str, ids: list[int], answer: list[int] | None, max_length: int) -> AttentionMaps:
        answer = answer or []
        # What closes an answer is written and not read.
        read = [*ids, *(answer[:-1] if self.is_text_to_text else answer)]
        self._check_positions(name, len(read))
        words, pad_id = format_tokens(self._tokenizer(), read), self._vocabulary.pad_id
        if not (self.config.full_prefix and answer):
            whole = padded_row(Row(read), pad_id, self.config.max_length)
            sown = sown_weights(self.module, self.params, whole.ids, inputs_valid=whole.valid)
            weights, start = self_weights(sown["decoder"]), 0
        else:
            # The inputs see each other whole and their last id, which begins the answer, does not count among them.
            inputs, behind = (padded_row(Row(part), pad_id, None) for part in (ids[:-1], read[len(ids) - 1 :]))
            sown = sown_weights(self.module, self.params, inputs.ids, behind.ids, inputs_valid=inputs.valid)
            weights, start = self_weights(sown["decoder"]), inputs.ids.shape[1] - len(ids) + 1  # behind their padding
        kind = "prefix" if self.config.full_prefix else "causal"
        return AttentionMaps((make_map(kind, words, words, weights[..., start:, start:]),))

    def _check_positions(self, name: str, length: int) -> None:
        most = self.config.max_length
        if most is not None and length > most:
            raise InputError(
                f"{name} has {length} tokens, its answer included, and the model has positions for {most}; shorten it"
            )

    def _row(self, name: str, ids: list[int], valid: list[bool] | None = None) -> Row:
        ids = [token for token, is_valid in zip(ids, valid or [True] * len(ids), strict=True) if is_valid]
        ids = ids or [self._vocabulary.eos_id]
        return Row(ids[:-1], start_id=ids[-1], name=name)

    def _check_room(self, row: Row, max_length: int) -> None:
        room = self._room(len(row.ids))
        if room is not None and max_length > room:
            remedy = "shorten it" if room < 1 else f"choose max_length={room} or less"
            raise InputError(
                f"{row.name} has {len(row.ids) + 1} tokens, and with max_length={max_length} more it exceeds the "
                f"{self.config.max_length} positions of the model; {remedy}"
            )

    def _room(self, num_inputs: int) -> int | None:
        # The last token of the prompt is the first that the decoder reads, and the last one written is not read.
        most = self.config.max_length
        return None if most is None else most - num_inputs

    def _longest_inputs(self, max_length: int) -> int | None:
        return self._room(max_length)


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
        decoder_inputs = shift_right(target_ids, self._start_id)
        return apply_model(self.module, self.params, input_ids, decoder_inputs, inputs_valid=valid)

    def _ids(self, texts: list[str] | Int[Array, "B L"], ids_of: Callable[[str], list[int]]) -> Int[Array, "B L"]:
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return jnp.asarray(texts)
        rows = [Row(ids_of(text)) for text in named_texts(texts).values()]
        return jnp.asarray(pad_rows(rows, self._vocabulary.pad_id).ids)

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
        inputs, behind = (padded_row(Row(side), pad_id, most) for side in (ids, read))
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
        return Row(ids, valid=valid, start_id=self._start_id, name=name)

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
