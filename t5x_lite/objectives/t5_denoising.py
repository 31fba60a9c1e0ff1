"""T5's objectives whose noise is drawn token by token (Raffel et al. 2020, section 3.3)."""

import bisect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.layouts.text import Stream
from t5x_lite.errors import InputError
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features, Row
from t5x_lite.objectives.span_corruption import replace_spans
from t5x_lite.objectives.text_to_text import TextToText, closed, kept_ids
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Density, Share


@dataclass(frozen=True)
class TokenNoise(TextToText):
    """Noise tokens lie anywhere in a row, each set of them as likely as any other.

    A row has exactly `num_noise_tokens` of them, where the paper's code draws for each token whether it is one. Special
    ids, such as the EOS between two documents, are none; a row of hardly any text has as much noise as it has text.
    """

    noise_density: Density = 0.15
    """Share of the raw ids that is noise."""

    @property
    def layout(self) -> Stream:
        return Stream(self.raw_length)

    @property
    def raw_length(self) -> int:
        """The most raw ids that can become an input of `input_length`."""
        return self.input_length - 1

    @property
    def num_noise_tokens(self) -> int:
        return self._noise_in(self.raw_length)

    def _noise_in(self, length: int) -> int:
        """Noise tokens in `length` raw ids: at least one, and not all."""
        return min(max(round(length * self.noise_density), 1), length - 1)

    def noise_mask(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Bool[Array, "R"]:
        """Which raw ids are noise."""
        text = ~masking.is_special(raw, self.known_vocabulary)
        return masking.choose_tokens(key, text, jnp.int32(self.num_noise_tokens))


def mask_token_id(vocabulary: Vocabulary) -> int:
    """The vocabulary's mask token, or the first sentinel where it has none, as T5's have."""
    if vocabulary.mask_id is not None:
        return vocabulary.mask_id
    if not vocabulary.num_sentinels:
        raise InputError("the tokenizer has no mask token and no sentinels; set tokenizer.extra_ids to 1 or more")
    return vocabulary.sentinel_id(0)


def mask_tokens(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, shown: Int[Array, "R"] | None = None
) -> tuple[Int[Array, "R1"], Int[Array, "R1"]]:
    """(inputs, targets) of one row under a noise mask: a token in the place of each noise token, and the row as it was,
    both closed by EOS. `shown` says which token at each position; None means the mask token everywhere.

    The row "MASS-style" of the paper's table 3:

    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> inputs, targets = mask_tokens(jnp.arange(10, 21), noise, Vocabulary(size=22, mask_id=21))
    >>> " ".join("<M>" if i == 21 else words[i - 10] for i in inputs.tolist() if i > 1)
    'Thank you <M> <M> me to your party <M> week .'
    >>> " ".join(words[i - 10] for i in targets.tolist() if i > 1)
    'Thank you for inviting me to your party last week .'
    """
    shown = jnp.int32(mask_token_id(vocabulary)) if shown is None else shown
    return closed(jnp.where(noise, shown, raw).astype(raw.dtype), vocabulary), closed(raw, vocabulary)


@dataclass(frozen=True)
class BertStyleDenoising(TokenNoise):
    """15 % of the tokens are shown as the mask token or as a random one; the target is the whole original text.

    How many tokens are noise is exact; which of them is shown as what is drawn for each.
    """

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""
    random_share: Share = 0.1
    """Share of the noise tokens shown as another token, drawn at random; the rest is shown as the mask token."""

    pads_inputs: ClassVar[bool] = False

    @property
    def target_length(self) -> int:
        return self.input_length

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        mask_token_id(vocabulary)
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(row)
        ids = row["ids"]
        vocabulary = self.known_vocabulary
        noise_key, draw_key, token_key = jax.random.split(key, 3)
        is_random = jax.random.uniform(draw_key, ids.shape) < self.random_share
        tokens = masking.random_tokens(token_key, ids.shape[0], vocabulary)
        shown = jnp.where(is_random, tokens, mask_token_id(vocabulary))
        inputs, targets = mask_tokens(ids, self.noise_mask(noise_key, ids), vocabulary, shown)
        return {"inputs": inputs, "targets": targets}


@dataclass(frozen=True)
class DropTokens(TokenNoise):
    """The input is the row without its noise tokens, the target the noise tokens alone."""

    input_length: int = 512
    """Ids of the input, EOS included; filled exactly."""

    pads_inputs: ClassVar[bool] = False
    targets_are_text: ClassVar[bool] = False

    @cached_property
    def raw_length(self) -> int:
        """The most raw ids of which `input_length - 1` are left.

        >>> objective = DropTokens(512)
        >>> objective.raw_length, objective.target_length
        (601, 91)
        """
        # What is left never gets less as a row grows.
        bound = math.ceil((self.input_length + 1) / (1.0 - self.noise_density)) + 2
        return bisect.bisect_right(range(2, bound), self.input_length - 1, key=lambda n: n - self._noise_in(n)) + 1

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + 1

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` [input_length] and `targets` [target_length]."""
        self.check_row(row)
        ids = row["ids"]
        noise, lengths = self.noise_mask(key, ids), (self.input_length, self.target_length)
        inputs, targets = drop_tokens(ids, noise, self.known_vocabulary, *lengths)
        return {"inputs": inputs, "targets": targets}


def drop_tokens(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, input_length: int, target_length: int
) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
    """(inputs, targets) of one row under a noise mask, each closed by EOS, and padded or cut to its length.

    >>> import jax.numpy as jnp
    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> inputs, targets = drop_tokens(jnp.arange(10, 21), noise, Vocabulary(size=22), 9, 4)
    >>> [" ".join(words[i - 10] for i in side.tolist() if i > 1) for side in (inputs, targets)]
    ['Thank you me to your party week .', 'for inviting last']
    """
    return kept_ids(raw, ~noise, vocabulary, input_length), kept_ids(raw, noise, vocabulary, target_length)


@dataclass(frozen=True)
class ReplaceSpans(TokenNoise):
    """Noise tokens that stand together become one sentinel in the input; the target lists each sentinel and what it
    stands for ("i.i.d. noise, replace spans" in table 3).

    The number of spans differs from row to row, so rows end with padding.
    """

    input_length: int = 512
    """Ids of the input at most, sentinels and EOS included."""

    targets_are_text: ClassVar[bool] = False

    @property
    def most_sentinels(self) -> int:
        """Sentinels in a row where no two noise tokens stand together, the one that closes the target included."""
        noise = self.num_noise_tokens
        return min(noise, self.raw_length - noise) + 1

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + self.most_sentinels + 1

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        if self.most_sentinels > vocabulary.num_sentinels:
            raise InputError(
                f"input_length={self.input_length} with noise_density={self.noise_density} takes up to "
                f"{self.most_sentinels} sentinels but the tokenizer has {vocabulary.num_sentinels}; raise "
                "tokenizer.extra_ids"
            )
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` [input_length] and `targets` [target_length]."""
        self.check_row(row)
        ids = row["ids"]
        noise, lengths = self.noise_mask(key, ids), (self.input_length, self.target_length)
        inputs, targets = replace_spans(ids, noise, self.known_vocabulary, *lengths)
        return {"inputs": inputs, "targets": targets}


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

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(row)
        ids = row["ids"]
        inputs, targets = mask_tokens(ids, self.noise_mask(key, ids), self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}


@dataclass(frozen=True)
class Deshuffling(TextToText):
    """The input is the row in random order, the target the row as it was. Special ids, such as the EOS between two
    documents, stay where they are."""

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""

    pads_inputs: ClassVar[bool] = False

    @property
    def layout(self) -> Stream:
        return Stream(self.input_length - 1)

    @property
    def target_length(self) -> int:
        return self.input_length

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` and `targets` [input_length]."""
        self.check_row(row)
        ids = row["ids"]
        inputs, targets = reorder(ids, self.order(key, ids), self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}

    def order(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Int[Array, "R"]:
        """Which raw id stands at each place; all orders of the text are equally likely."""
        text, index = ~masking.is_special(raw, self.known_vocabulary), jnp.arange(raw.shape[0])
        # Both list the positions of the text, then the others in their order.
        positions = jnp.argsort(~text, stable=True)
        shuffled = jnp.argsort(jnp.where(text, jax.random.uniform(key, raw.shape), 2.0), stable=True)
        return index.at[positions].set(shuffled)


def reorder(
    raw: Int[Array, "R"], order: Int[Array, "R"], vocabulary: Vocabulary
) -> tuple[Int[Array, "R1"], Int[Array, "R1"]]:
    """(inputs, targets): the row in another order, and the row, both closed by EOS.

    >>> inputs, targets = reorder(jnp.array([10, 11, 12]), jnp.array([2, 0, 1]), Vocabulary(size=20))
    >>> inputs.tolist(), targets.tolist()
    ([12, 10, 11, 1], [10, 11, 12, 1])
    """
    return closed(raw[order], vocabulary), closed(raw, vocabulary)
