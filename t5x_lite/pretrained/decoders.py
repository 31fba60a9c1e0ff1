"""A decoder and an encoder-decoder in a notebook."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.objectives.losses import not_padding, shift_right
from t5x_lite.pictures.attention import AttentionMap, AttentionMaps, make_map, sown_weights
from t5x_lite.pretrained.batches import Row, apply_model, check_ids, named_texts, pad_rows, padded_row
from t5x_lite.pretrained.text_model import Answer, Examples, PretrainedTextModel, Prompt, choose_method
from t5x_lite.tokenizers.base import format_tokens


@dataclass(frozen=True, repr=False)
class PretrainedDecoder(PretrainedTextModel):
    """GPT, GPT-2, GPT-3 and T5's decoder: calling it gives logits, `generate` gives text, `score` rates texts.

    A language model continues its prompt: `generate` returns the continuation, blanks included, and the answers given
    to `score` are not closed. A text-to-text model answers its prompt: the prompt is closed by EOS, and so are its
    answers. The objective of a run says which it is, or the family of other checkpoints: GPTs continue, T5's decoders
    answer. A prompt without tokens is an EOS.
    """

    def __call__(
        self, texts: str | list[str] | Int[Array, "B L"], *, valid: Bool[Array, "B L"] | None = None
    ) -> Float[Array, "B L V"]:
        """Logits of the token after each token.

        Texts are padded at their ends to the longest. `valid` is false where ids are padding, by default nowhere; the
        logits there mean nothing.
        """
        is_text = isinstance(texts, str) or (isinstance(texts, list | tuple) and isinstance((*texts, "")[0], str))
        if is_text:
            rows = [Row(self._prompt_ids(text)) for text in named_texts(texts).values()]
            texts, _, valid = pad_rows(rows, self._vocabulary.pad_id)
        ids = jnp.asarray(check_ids(texts, self.config.vocab_size))
        valid = jnp.ones(ids.shape, bool) if valid is None else jnp.asarray(valid)
        return apply_model(self.module, self.params, ids, inputs_valid=valid)

    def _rows(self, texts: Any) -> list[Row]:
        tokenizer, most, rows = self._tokenizer(), self.config.max_length, []
        for name, text in named_texts(texts, pairs=True).items():
            parts = (text,) if isinstance(text, str) else text
            ids = [token_id for part in parts for token_id in tokenizer.encode(part)]
            if not ids:
                raise InputError(f"{name}={text!r} holds no token; leave it out, or give it some text")
            if most is not None and len(ids) > most:
                raise InputError(f"{name} has {len(ids)} tokens, and the model has positions for {most}; shorten it")
            rows.append(Row(ids))
        return rows

    def _rows_to_encode(self, texts: str | list[str]) -> list[Row]:
        return self._rows(texts)

    @property
    def is_text_to_text(self) -> bool:
        """Whether it answers a text with another one, rather than continuing it."""
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
        answer, most, pad_id = answer or [], self.config.max_length, self._vocabulary.pad_id
        # The EOS that closes an answer is generated and not read.
        read = [*ids, *(answer[:-1] if self.is_text_to_text else answer)]
        if most is not None and len(read) > most:
            raise InputError(
                f"{name} has {len(read)} tokens, its answer included, and the model has positions for {most}; "
                "shorten it"
            )
        rows, start = [padded_row(Row(read), pad_id, most)], 0
        if self.config.full_prefix and answer:
            # The inputs see each other whole and their last id, which begins the answer, does not count among them.
            rows = [padded_row(Row(part), pad_id, None) for part in (ids[:-1], read[len(ids) - 1 :])]
            start = rows[0].ids.shape[1] - len(ids) + 1  # after their padding
        sown = sown_weights(self.module, self.params, *(row.ids for row in rows), inputs_valid=rows[0].valid)
        words, kind = format_tokens(self._tokenizer(), read), "prefix" if self.config.full_prefix else "causal"
        return AttentionMaps((make_map(kind, words, words, sown["decoder"], start=start),))

    def _row(self, name: str, ids: list[int], max_length: int, valid: list[bool] | None = None) -> Row:
        ids = list(itertools.compress(ids, valid or itertools.repeat(True))) or [self._vocabulary.eos_id]
        room = self._room(len(ids) - 1)
        if room is not None and max_length > room:
            remedy = "shorten it" if room < 1 else f"choose max_length={room} or less"
            raise InputError(
                f"{name} has {len(ids)} tokens, and with max_length={max_length} more it exceeds the "
                f"{self.config.max_length} positions of the model; {remedy}"
            )
        return Row(ids[:-1], start_id=ids[-1])

    def _room(self, length: int) -> int | None:
        # The last token of the prompt is the first that the decoder reads, and the last generated one is not read.
        return None if self.config.max_length is None else self.config.max_length - length


@dataclass(frozen=True, repr=False)
class PretrainedEncoderDecoder(PretrainedTextModel):
    """T5, Transformer, Marian, BART: calling it gives logits, `generate` gives text, `score` rates texts, `fill_blanks`
    fills blanks in them where the tokenizer has sentinels.

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

    @property
    def abilities(self) -> tuple[str, ...]:
        return *super().abilities, *(["fill_blanks"] if self._vocabulary.num_sentinels else [])

    def fill_blanks(
        self,
        texts: str | list[str],
        *,
        max_length: int = 64,
        seed: int = 0,
        scores: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], Any] | None = None,
        **options: Any,
    ) -> Any:
        """Texts with their blanks `<extra_id_0>`, `<extra_id_1>`, ... filled in, by a T5 that learned span corruption
        (Raffel et al. 2020, section 3.1.4).

        An answer ends where the model would go on to a blank that its text does not have: it was trained on rows with
        more of them. The unknown token is not written. One text gives one filled text, a list of texts a list of them;
        with `num_results` above 1 each is itself a list, best first for beam search. With `scores` each comes as an
        `Answer`.

        Args:
          texts: with one blank or more, numbered from 0 in their order.
          max_length: tokens of all blanks of a text together, the marks before them included.
          seed: of the sampling: the sample for a text depends on it and on the text's index among those with as many
            blanks.
          batch_size, progress, options: those of `generate`.

        Raises `InputError` for a text without blanks or with other numbers, and where `generate` does.
        """
        method, named, vocabulary = choose_method(**options), named_texts(texts), self._vocabulary
        if not vocabulary.num_sentinels:
            raise InputError("the tokenizer has no <extra_id_0> for blanks; load a model that learned span corruption")
        prompts = [self._prompt_ids(text) for text in named.values()]
        counts = [self._count_blanks(name, ids) for name, ids in zip(named, prompts, strict=True)]
        rows = [self._row(name, ids, max_length) for name, ids in zip(named, prompts, strict=True)]
        answers: list[Any] = [None] * len(rows)
        suppressed_ids = (vocabulary.unk_id,) if vocabulary.unk_id != vocabulary.eos_id else ()
        for count in sorted({*counts}):
            indices = [index for index, other in enumerate(counts) if other == count]
            further = map(vocabulary.sentinel_id, range(count, vocabulary.num_sentinels))
            stop_ids = tuple(one for one in further if self._blank_number(one) is not None)
            chosen = [rows[index] for index in indices]
            decoded = self._decode(chosen, method, max_length, seed, batch_size, progress, stop_ids, suppressed_ids)
            for index, (ids, values) in zip(indices, decoded, strict=True):
                results = [self._filled(prompts[index], one.tolist()) for one in ids]
                if scores:
                    results = [Answer(text, float(value)) for text, value in zip(results, values, strict=True)]
                answers[index] = results if method.num_results > 1 else results[0]
        return answers[0] if isinstance(texts, str) else answers

    def _count_blanks(self, name: str, ids: list[int]) -> int:
        numbers = [number for one in ids if (number := self._blank_number(one)) is not None]
        if not numbers:
            raise InputError(f"{name} has no blank; write <extra_id_0> where something is to be filled in")
        if numbers != [*range(len(numbers))]:
            marks = ", ".join(f"<extra_id_{number}>" for number in numbers)
            raise InputError(f"{name} has the blanks {marks}; number them from <extra_id_0> on, in their order")
        return len(numbers)

    def _blank_number(self, token_id: int) -> int | None:
        """The number of the blank that an id marks; None for text, which most of ByT5's sentinels are too."""
        number = self._vocabulary.sentinel_number(token_id)
        is_mark = number is not None and self._tokenizer().decode([token_id]).strip() == f"<extra_id_{number}>"
        return number if is_mark else None

    def _filled(self, prompt_ids: list[int], ids: list[int]) -> str:
        """The text of a prompt with what an answer says of each blank in the place of its mark."""
        number_of, said, current = self._blank_number, {}, None
        for one in ids:
            if (number := number_of(one)) is not None:
                current = number
            else:
                said.setdefault(current, []).append(one)
        filled = [[one] if (number := number_of(one)) is None else said.get(number, []) for one in prompt_ids]
        return self._tokenizer().decode([*itertools.chain(*filled)])

    def _ids(self, texts: list[str] | Int[Array, "B L"], ids_of: Callable[[str], list[int]]) -> Int[Array, "B L"]:
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return jnp.asarray(check_ids(texts, self.config.vocab_size))
        rows = [Row(ids_of(text)) for text in named_texts(texts).values()]
        return jnp.asarray(pad_rows(rows, self._vocabulary.pad_id).ids)

    def _prompt(self, text: str, examples: Examples, template: str | None) -> Prompt:
        for name, value in {"examples": list(examples) or None, "template": template}.items():
            if value is not None:
                raise InputError(
                    f"{name}={value!r:.60} is for decoders, which continue a prompt, and {type(self.config).__name__} "
                    "is an encoder-decoder, which answers a text as it was trained to; give the text alone"
                )
        return Prompt(text)

    def _prompt_ids(self, text: str) -> list[int]:
        return self._closed(self._tokenizer().encode(text))

    def _rows_to_encode(self, texts: str | list[str]) -> list[Row]:
        return [self._row(name, self._prompt_ids(text), 1) for name, text in named_texts(texts).items()]

    def _answer_ids(self, text: str) -> list[int]:
        return self._closed(self._tokenizer().target_side.encode(text))

    def _closed(self, ids: list[int]) -> list[int]:
        begins_with_cls = self.config.texts_begin_with_cls and self.experiment is None
        start = [self._vocabulary.cls_id] if begins_with_cls and self._vocabulary.cls_id is not None else []
        return [*start, *ids, self._vocabulary.eos_id]

    @property
    def _start_id(self) -> int:
        if self.generation.start_id is not None:
            return self.generation.start_id
        return self.config.decoder_start_id(pad_id=self._vocabulary.pad_id, eos_id=self._vocabulary.eos_id)

    def _attention(self, name: str, ids: list[int], answer: list[int] | None, max_length: int) -> AttentionMaps:
        if getattr(self.config, "attention", None) == "none":
            self._refuse("attention")
        eos_id, pad_id, tokenizer = self._vocabulary.eos_id, self._vocabulary.pad_id, self._tokenizer()
        self._row(name, ids, max_length if answer is None else len(answer))  # raises where there is no room
        if answer is None:
            answer = self.generate_ids([ids], max_length=max_length)[0].tolist()
            answer = answer[: answer.index(eos_id) + 1] if eos_id in answer else [*answer, eos_id]
        read = [self._start_id, *answer[:-1]]  # the EOS that closes the answer is generated and not read
        sources, targets = format_tokens(tokenizer, ids), format_tokens(tokenizer.target_side, read)
        inputs, outputs = (padded_row(Row(side), pad_id, self.config.max_length) for side in (ids, read))
        sown = sown_weights(self.module, self.params, inputs.ids, outputs.ids, inputs_valid=inputs.valid)
        decoder = sown["decoder"]
        if "alignment" in decoder:
            weights = np.asarray(decoder["alignment"][-1])[None, :, : len(targets), : len(sources)]
            return AttentionMaps((AttentionMap("cross", targets, sources, weights),))
        return AttentionMaps(
            (
                # Stacks that share their layers sow under one name, the encoder first.
                make_map("encoder", sources, sources, sown.get("encoder", decoder), call=0),
                make_map("decoder", targets, targets, decoder),
                make_map("cross", targets, sources, decoder, "cross_attention"),
            )
        )

    def _row(self, name: str, ids: list[int], max_length: int, valid: list[bool] | None = None) -> Row:
        most = self.config.max_length
        if most is not None and len(ids) > most:
            raise InputError(
                f"{name} has {len(ids)} tokens, EOS included, and the model has positions for {most}; cut it into "
                "shorter texts"
            )
        if most is not None and max_length > most:
            raise InputError(
                f"max_length={max_length} exceeds the {most} positions of the model; choose {most} or less"
            )
        return Row(ids, valid=valid, start_id=self._start_id)

    def _room(self, length: int) -> int | None:
        return self.config.max_length
