"""T5's objectives beside span corruption (Raffel et al. 2020, section 3.3): token noise, deshuffling, prefixes."""

from dataclasses import dataclass
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.objectives import masking
from t5x_lite.objectives.span_corruption import Noise, replace_spans
from t5x_lite.objectives.text_to_text import StreamDenoising, closed, kept_ids
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Share


@dataclass(frozen=True)
class TokenNoise(Noise):
    """Noise tokens lie anywhere in a row, each set of them as likely as any other.

    A row has exactly `num_noise_tokens` of them, where the paper's code draws for each token whether it is one. Special
    ids, such as the EOS between two documents, are none; a row of hardly any text has as much noise as it has text.
    """

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
    """(inputs, targets) of one row under a noise mask: each noise token replaced by another, and the row as it was,
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
class MassStyleDenoising(TokenNoise):
    """15 % of the tokens are shown as the mask token; the target is the whole original text."""

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""

    pads_inputs: ClassVar[bool] = False

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        mask_token_id(vocabulary)
        return super().for_vocabulary(vocabulary)

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        return mask_tokens(raw, self.noise_mask(key, raw), self.known_vocabulary)


@dataclass(frozen=True)
class BertStyleDenoising(MassStyleDenoising):
    """15 % of the tokens are shown as the mask token or as a random one; the target is the whole original text."""

    random_share: Share = 0.1
    """Share of the noise tokens shown as another token, drawn at random; the rest is shown as the mask token."""

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        vocabulary = self.known_vocabulary
        noise_key, draw_key, token_key = jax.random.split(key, 3)
        is_random = jax.random.uniform(draw_key, raw.shape) < self.random_share
        tokens = masking.random_tokens(token_key, raw.shape[0], vocabulary)
        shown = jnp.where(is_random, tokens, mask_token_id(vocabulary))
        return mask_tokens(raw, self.noise_mask(noise_key, raw), vocabulary, shown)


@dataclass(frozen=True)
class DropTokens(TokenNoise):
    """The input is the row without its noise tokens, the target the noise tokens alone.

    >>> DropTokens(512).raw_length, DropTokens(512).target_length
    (601, 91)
    """

    input_length: int = 512
    """Ids of the input, EOS included; filled exactly."""

    pads_inputs: ClassVar[bool] = False
    targets_are_text: ClassVar[bool] = False

    def input_size(self, raw_length: int) -> int:
        return raw_length - self.noise_in(raw_length) + 1

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + 1

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        noise = self.noise_mask(key, raw)
        return drop_tokens(raw, noise, self.known_vocabulary, self.input_length, self.target_length)


def drop_tokens(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, input_length: int, target_length: int
) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
    """(inputs, targets) of one row under a noise mask, each closed by EOS, and padded or cut to its length.

    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> inputs, targets = drop_tokens(jnp.arange(10, 21), noise, Vocabulary(size=22), 9, 4)
    >>> [" ".join(words[i - 10] for i in side.tolist() if i > 1) for side in (inputs, targets)]
    ['Thank you me to your party week .', 'for inviting last']
    """
    sides = ((~noise, input_length), (noise, target_length))
    return tuple(kept_ids(raw, kept, vocabulary.eos_id, vocabulary.pad_id, length) for kept, length in sides)


@dataclass(frozen=True)
class ReplaceSpans(TokenNoise):
    """Adjacent noise tokens become one sentinel in the input, and adjacent other tokens one in the target ("i.i.d.
    noise, replace spans" in table 3), see `replace_spans`.

    The number of spans differs from row to row, so rows end with padding.
    """

    input_length: int = 512
    """Ids of the input at most, sentinels and EOS included."""

    targets_are_text: ClassVar[bool] = False

    @property
    def most_sentinels(self) -> int:
        """Of either side, in a row with as few neighbours among noise or other tokens as possible."""
        return max(min(self.num_noise_tokens, self._num_kept + 1), self._most_kept_spans)

    @property
    def _num_kept(self) -> int:
        return self.raw_length - self.num_noise_tokens

    @property
    def _most_kept_spans(self) -> int:
        return min(self._num_kept, self.num_noise_tokens + 1)

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + self._most_kept_spans + 1

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        if self.most_sentinels > vocabulary.num_sentinels:
            raise InputError(
                f"input_length={self.input_length} with noise_density={self.noise_density} takes up to "
                f"{self.most_sentinels} sentinels but the tokenizer has {vocabulary.num_sentinels}; raise "
                "tokenizer.extra_ids"
            )
        return super().for_vocabulary(vocabulary)

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        noise = self.noise_mask(key, raw)
        return replace_spans(raw, noise, self.known_vocabulary, self.input_length, self.target_length)


@dataclass(frozen=True)
class Deshuffling(StreamDenoising):
    """The input is the row in random order, the target the row as it was. Special ids, such as the EOS between two
    documents, stay where they are."""

    input_length: int = 512
    """Ids of the input and of the target, EOS included; both filled exactly."""

    pads_inputs: ClassVar[bool] = False

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        vocabulary = self.known_vocabulary
        return closed(raw[self.order(key, raw)], vocabulary), closed(raw, vocabulary)

    def order(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Int[Array, "R"]:
        """The position that each id of the input has in the row; all orders of the text are equally likely."""
        text, index = ~masking.is_special(raw, self.known_vocabulary), jnp.arange(raw.shape[0])
        # Both list the positions of the text, then the others in their order.
        positions = jnp.argsort(~text, stable=True)
        shuffled = jnp.argsort(jnp.where(text, jax.random.uniform(key, raw.shape), 2.0), stable=True)
        return index.at[positions].set(shuffled)


@dataclass(frozen=True)
class PrefixLanguageModel(StreamDenoising):
    """A row is cut at a random position, all equally likely: input and target are what is before and after it, neither
    empty, each padded."""

    input_length: int = 512
    """Ids of a raw row, and of the input and the target at most, EOS included."""

    def input_size(self, raw_length: int) -> int:
        return raw_length  # at least one id is the target's

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        first_target = jax.random.randint(key, (), 1, raw.shape[0])
        in_target = jnp.arange(raw.shape[0]) >= first_target
        return drop_tokens(raw, in_target, self.known_vocabulary, self.input_length, self.target_length)
