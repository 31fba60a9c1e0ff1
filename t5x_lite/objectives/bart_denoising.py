"""BART's noises, each a pure function of a text (Lewis et al. 2020, section 2.2).

A text is an array `ids` [T] of which the first `size` ids count.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.layouts.text import NumberedSentences
from t5x_lite.errors import InputError
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features, Row
from t5x_lite.objectives.text_to_text import SpanLength, TextToText, kept_ids
from t5x_lite.validation import Rate


def in_order_of(ids: Int[Array, "T"], sentences: Int[Array, "T"], rank: Float[Array, "S"]) -> Int[Array, "T"]:
    """The text with its sentences in ascending order of their ranks.

    Args:
      sentences: the number of each id's sentence, from 1; 0 for what is not text, which goes to the end.
      rank: of sentence 1, 2, ...

    >>> in_order_of(jnp.array([10, 11, 12, 13, 3]), jnp.array([1, 1, 2, 3, 0]), jnp.array([0.7, 0.9, 0.2])).tolist()
    [13, 10, 11, 12, 3]
    """
    position = jnp.where(sentences > 0, rank[(sentences - 1).clip(0)], jnp.inf)
    return ids[jnp.argsort(position, stable=True)]


def rotate(ids: Int[Array, "T"], size: Int[Array, ""] | int, first: Int[Array, ""] | int) -> Int[Array, "T"]:
    """The text from its id number `first` on, followed by the ids before it.

    >>> rotate(jnp.array([10, 11, 12, 13, 3]), 4, 1).tolist()
    [11, 12, 13, 10, 3]
    """
    index = jnp.arange(ids.shape[0])
    return ids[jnp.where(index < size, (index + first) % jnp.maximum(size, 1), index)]


def infill(ids: Int[Array, "T"], slots: Int[Array, "T"], mask_id: int) -> tuple[Int[Array, "T"], Bool[Array, "T"]]:
    """(the text with each span replaced by one mask, where the masks are).

    `slots` has each position of the result: -1 for an id of the text, n >= 0 for a mask instead of the next n of them.

    >>> ids, is_mask = infill(jnp.array([10, 11, 12, 13, 14]), jnp.array([-1, 2, -1, 0, -1]), 99)
    >>> ids.tolist()
    [10, 99, 13, 99, 14]
    """
    is_mask = slots >= 0
    taken = jnp.where(is_mask, slots, 1)
    source = (jnp.cumsum(taken) - taken).clip(0, ids.shape[0] - 1)
    return jnp.where(is_mask, mask_id, ids[source]).astype(ids.dtype), is_mask


def random_slots(
    key: Key[Array, ""], lengths: Int[Array, "K"], size: Int[Array, ""], num_positions: int
) -> tuple[Int[Array, "num_positions"], Int[Array, ""]]:
    """(slots for `infill`, their number): spans of these lengths in a text of `size` ids, all arrangements of spans and
    ids equally likely. Lengths below 0 are ignored."""
    choose_key, order_key = jax.random.split(key)
    used = lengths >= 0
    num_spans = used.sum()
    total = size - jnp.where(used, lengths, 0).sum() + num_spans
    is_span = masking.choose_tokens(choose_key, jnp.arange(num_positions) < total, num_spans)
    # In random order, since the last one that was drawn may be shorter.
    order = jnp.argsort(jnp.where(used, jax.random.uniform(order_key, lengths.shape), 2.0))
    number = (jnp.cumsum(is_span) - 1).clip(0, lengths.shape[0] - 1)
    return jnp.where(is_span, lengths[order][number], -1), total


def cut_lengths(drawn: Int[Array, "K"], count: Int[Array, ""] | int, room: Int[Array, ""] | int) -> Int[Array, "K"]:
    """Those of the drawn lengths that hide `count` ids in all, the last one shortened; -1 for the others.

    An empty span makes a text longer by its mask; those for which there is no room, which is `room` tokens and what the
    other spans save, are left out.

    >>> cut_lengths(jnp.array([3, 0, 2, 4, 0, 1]), 6, 9).tolist()
    [3, 0, 2, 1, -1, -1]
    """
    before = jnp.cumsum(drawn) - drawn
    # The last one takes what all draws together do not reach: once in many millions of rows.
    drawn = drawn.at[-1].set(jnp.maximum(drawn[-1], count - before[-1]))
    lengths = jnp.where(before < count, jnp.minimum(drawn, count - before), -1)
    free = room + count - (lengths > 0).sum()
    is_empty = lengths == 0
    return jnp.where(is_empty & (jnp.cumsum(is_empty) > free), -1, lengths)


def poisson_lengths(key: Key[Array, ""], num: int, mean: float) -> Int[Array, "num"]:
    """Independent draws from the Poisson distribution."""
    longest = math.ceil(mean + 10 * math.sqrt(mean) + 10)
    log_shares = [length * math.log(mean) - mean - math.lgamma(length + 1) for length in range(longest)]
    below = np.cumsum(np.exp(log_shares)).astype(np.float32)
    return jnp.searchsorted(jnp.asarray(below), jax.random.uniform(key, (num,)), side="right").astype(jnp.int32)


def num_draws(count: int, mean: float) -> int:
    """Draws from the Poisson distribution whose sum is below `count` less than once in a thousand million.

    >>> num_draws(150, 3.0)
    85
    """
    # By the normal distribution, whose error is on the safe side here: sums of means have z deviations to spare.
    z = 6.5
    return math.ceil(((z + math.sqrt(z * z + 4 * count)) / 2) ** 2 / mean)


@dataclass(frozen=True)
class BartDenoising(TextToText):
    """The noises of section 2.2; the defaults are the recipe of section 5.1: infilling and sentence permutation.

    They are applied in this order: sentences are permuted, the text is rotated, spans become masks, single ids become
    masks, single ids are deleted. Rates are shares of a row's text, `<s>` and `</s>` apart, and are kept exactly:
    round(rate * ids) of them, at least one. No id is damaged twice.
    """

    input_length: int = 512
    """Ids of a row, of the input and of the target, special ones and padding included."""
    mask_rate: Rate = 0.0
    """Token masking: share of the ids each of which becomes the mask token."""
    deletion_rate: Rate = 0.0
    """Token deletion: share of the ids that are left out."""
    infilling_rate: Rate = 0.3
    """Text infilling: share of the ids in spans, each of which becomes a single mask token."""
    mean_span_length: SpanLength = 3.0
    """Ids in such a span, on average; lengths are Poisson, and where one is 0 a mask is inserted."""
    permute_sentences: bool = True
    """Sentence permutation: a row's sentences are in random order."""
    rotate: bool = False
    """Document rotation: a row begins with a random one of its ids, and those before it move to its end."""

    roles: ClassVar[tuple[str, ...]] = ("mask", "cls", "sep")

    def __post_init__(self) -> None:
        super().__post_init__()
        rates = (self.mask_rate, self.deletion_rate, self.infilling_rate)
        if sum(rates) >= 1.0:
            names = "mask_rate, deletion_rate, infilling_rate"
            raise InputError(f"{names} are {sum(rates):g} together; choose rates that leave some text")
        if not any(rates) and not self.permute_sentences and not self.rotate:
            raise InputError("infilling_rate=0.0 and no other noise leaves the text as it is; choose e.g. 0.3")

    @property
    def layout(self) -> NumberedSentences:
        return NumberedSentences(self.input_length)

    @property
    def target_length(self) -> int:
        return self.input_length

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """A row `<s> text </s>` and its sentences' numbers to `inputs` and `targets`, which is the row as it was."""
        self.check_row(row)
        vocabulary, room = self.known_vocabulary, self.input_length - 2
        text, sentences = row["ids"][1:-1], row["sentences"][1:-1]
        size = (sentences > 0).sum()
        order_key, rotation_key, span_key, token_key = jax.random.split(key, 4)
        if self.permute_sentences:
            text = in_order_of(text, sentences, jax.random.uniform(order_key, sentences.shape))
        if self.rotate:
            first = jax.random.randint(rotation_key, (), 0, jnp.maximum(size, 1))
            text = rotate(text, size, first)
        is_mask, length = jnp.zeros(room, bool), size
        if self.infilling_rate:
            length_key, position_key = jax.random.split(span_key)
            counts = masking.mask_counts(room, self.infilling_rate)
            drawn = poisson_lengths(
                length_key, num_draws(int(counts[-1]), self.mean_span_length), self.mean_span_length
            )
            lengths = cut_lengths(drawn, jnp.asarray(counts)[size], room - size)
            slots, length = random_slots(position_key, lengths, size, room)
            text, is_mask = infill(text, slots, vocabulary.mask_id)

        # Masked and deleted ids are one random choice, so that none is both.
        mask_key, deletion_key = jax.random.split(token_key)
        is_text = jnp.arange(room) < length
        num_masked, num_deleted = (
            jnp.asarray(masking.mask_counts(room, rate) * (rate > 0))[size]
            for rate in (self.mask_rate, self.deletion_rate)
        )
        masked = masking.choose_tokens(mask_key, is_text & ~is_mask, num_masked)
        deleted = masking.choose_tokens(deletion_key, is_text & ~is_mask & ~masked, num_deleted)
        text = jnp.where(masked, vocabulary.mask_id, text)
        kept = is_text & ~deleted
        text = kept_ids(text, kept, vocabulary.sep_id, vocabulary.pad_id, self.input_length - 1)
        return {"inputs": jnp.pad(text, (1, 0), constant_values=vocabulary.cls_id), "targets": row["ids"]}
