"""BART's objective: a text is damaged in one way or several, and the whole of it asked for (Lewis et al. 2020)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.sentence_marks import MarkedSentences
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import bart_noise, masking
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.text_to_text import TextToText

_RATES = ("mask_rate", "deletion_rate", "infilling_rate")


@dataclass(frozen=True)
class BartDenoising(TextToText):
    """The noises of section 2.2; the defaults are the recipe of section 5.1: infilling and sentence permutation.

    They are applied in this order: sentences are permuted, the text is rotated, spans become masks, single ids become
    masks, single ids are deleted. Rates are shares of a row's text, `<s>` and `</s>` apart, and are kept exactly:
    round(rate * ids) of them, at least one. No id is damaged twice.
    """

    input_length: int = 512
    """Ids of a row, of the input and of the target, special ones and padding included."""
    mask_rate: float = 0.0
    """Token masking: share of the ids that become the mask token, each for itself."""
    deletion_rate: float = 0.0
    """Token deletion: share of the ids that are left out."""
    infilling_rate: float = 0.3
    """Text infilling: share of the ids in spans, each of which becomes a single mask token."""
    mean_span_length: float = 3.0
    """Ids in such a span, on average; lengths are Poisson, and where one is 0 a mask is inserted."""
    permute_sentences: bool = True
    """Sentence permutation: a row's sentences stand in random order."""
    rotate: bool = False
    """Document rotation: a row begins with a random one of its ids, and those before it stand at its end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _RATES:
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name}={getattr(self, name)} is not in [0, 1); choose e.g. 0.3")
        rates = [getattr(self, name) for name in _RATES]
        if sum(rates) >= 1.0:
            raise InputError(f"{', '.join(_RATES)} are {sum(rates):g} together; choose rates that leave some text")
        if not any(rates) and not self.permute_sentences and not self.rotate:
            raise InputError("infilling_rate=0.0 and no other noise leaves the text as it is; choose e.g. 0.3")
        if not self.mean_span_length >= 1.0:
            raise InputError(f"mean_span_length={self.mean_span_length} is below 1; choose e.g. 3.0")

    @property
    def row_format(self) -> MarkedSentences:
        return MarkedSentences(self.input_length)

    @property
    def target_length(self) -> int:
        return self.input_length

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        for role in ("mask", "cls", "sep"):
            if getattr(vocabulary, f"{role}_id") is None:
                raise InputError(
                    f"the tokenizer has no {role} token, which BartDenoising needs; use ByteLevelBPE, WordPiece or "
                    "SentencePiece with layout albert or xlm-roberta"
                )
        return super().for_vocabulary(vocabulary)

    @property
    def _room(self) -> int:
        """Ids of text in a row."""
        return self.input_length - 2

    @cached_property
    def _counts(self) -> dict[str, Int[np.ndarray, "L1"]]:
        """By rate, how many ids it takes of a text of 0, 1, ... ids."""
        rates = {name: getattr(self, name) for name in _RATES}
        return {name: masking.mask_counts(self._room, rate) * (rate > 0) for name, rate in rates.items()}

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """A row `<s> text </s>` and its sentences' numbers to `inputs` and `targets`, which is the row as it was."""
        self.check_row(raw)
        vocabulary, row = self.known_vocabulary, raw[: self.input_length]
        text, sentences = row[1:-1], raw[self.input_length + 1 : -1]
        size = (sentences > 0).sum()
        order_key, rotation_key, span_key, token_key = jax.random.split(key, 4)
        if self.permute_sentences:
            text = bart_noise.in_order_of(text, sentences, jax.random.uniform(order_key, sentences.shape))
        if self.rotate:
            first = jax.random.randint(rotation_key, (), 0, jnp.maximum(size, 1))
            text = bart_noise.rotate(text, size, first)
        counts = {name: jnp.asarray(count)[size] for name, count in self._counts.items()}
        slots, length = self.slots(span_key, size, counts["infilling_rate"])
        text, is_mask = bart_noise.infill(text, slots, vocabulary.mask_id)

        # Masked and deleted ids are one random choice, so that none is both.
        mask_key, deletion_key = jax.random.split(token_key)
        is_text = (jnp.arange(self._room) < length) & ~is_mask
        masked = masking.choose_tokens(mask_key, is_text, counts["mask_rate"])
        deleted = masking.choose_tokens(deletion_key, is_text & ~masked, counts["deletion_rate"])
        text = jnp.where(masked, vocabulary.mask_id, text)
        kept = (jnp.arange(self._room) < length) & ~deleted
        return {"inputs": self._framed(text, kept), "targets": row}

    def slots(
        self, key: Key[Array, ""], size: Int[Array, ""], count: Int[Array, ""]
    ) -> tuple[Int[Array, "T"], Int[Array, ""]]:
        """Where the spans lie that become masks: see `bart_noise.random_slots`."""
        if not self.infilling_rate:
            return jnp.full(self._room, -1), size
        length_key, place_key = jax.random.split(key)
        draws = bart_noise.num_draws(int(self._counts["infilling_rate"][-1]), self.mean_span_length)
        drawn = bart_noise.poisson_lengths(length_key, draws, self.mean_span_length)
        lengths = bart_noise.cut_lengths(drawn, count, self._room - size)
        return bart_noise.random_slots(place_key, lengths, size, self._room)

    def _framed(self, text: Int[Array, "T"], kept: Bool[Array, "T"]) -> Int[Array, "L"]:
        """`<s>`, the ids that are kept, `</s>`, padding."""
        vocabulary = self.known_vocabulary
        row = jnp.full(self.input_length, vocabulary.pad_id, text.dtype).at[0].set(vocabulary.cls_id)
        place = jnp.where(kept, jnp.cumsum(kept), self.input_length)
        return row.at[place].set(text, mode="drop").at[1 + kept.sum()].set(vocabulary.sep_id)
