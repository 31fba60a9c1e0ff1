"""T5's span corruption (Raffel et al. 2020, section 3.1.4), and what it shares with the other noise of its table 3."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.columns import format_columns
from t5x_lite.errors import InputError
from t5x_lite.objectives.text_to_text import SpanLength, StreamDenoising, kept_ids
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Density


@dataclass(frozen=True)
class Noise(StreamDenoising):
    """Base of objectives that take an exact number of ids of a row as noise."""

    noise_density: Density = 0.15
    """Share of the raw ids that is noise."""

    @property
    def num_noise_tokens(self) -> int:
        return self.noise_in(self.raw_length)

    def noise_in(self, length: int) -> int:
        """Noise tokens in `length` raw ids: at least one, and not all."""
        return min(max(round(length * self.noise_density), 1), length - 1)


@dataclass(frozen=True)
class SpanCorruption(Noise):
    """Noise spans become one sentinel each in the input; the target lists each sentinel and its span (section 3.1.4).

    >>> objective = SpanCorruption(input_length=512)
    >>> objective.raw_length, objective.target_length, objective.num_noise_spans
    (568, 114, 28)
    """

    input_length: int = 512
    """Ids of the input, sentinels and EOS included; filled exactly."""
    mean_span_length: SpanLength = 3.0
    """Raw ids in a noise span, on average (3 for T5 and mT5, 20 for ByT5)."""

    targets_are_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._is_shortened:
            return
        # Where most is noise, there is at most one span for each id that is kept, and some lengths are impossible.
        if (length := self.input_size(self.raw_length)) != self.input_length:
            raise InputError(
                f"input_length={self.input_length} cannot be filled exactly with noise_density={self.noise_density}; "
                f"choose {length}"
            )

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        if self.num_noise_spans > vocabulary.num_sentinels:
            raise InputError(
                f"input_length={self.input_length} makes {self.num_noise_spans} noise spans but the tokenizer has "
                f"{vocabulary.num_sentinels} sentinels; raise tokenizer.extra_ids or mean_span_length"
            )
        return super().for_vocabulary(vocabulary)

    def input_size(self, raw_length: int) -> int:
        return raw_length - self.noise_in(raw_length) + self._spans_in(raw_length) + 1

    def target_size(self, raw_length: int) -> int:
        """Ids of the target of a row, EOS included."""
        return self.noise_in(raw_length) + self._spans_in(raw_length) + 1

    @property
    def raw_length(self) -> int:
        return self._longest - self._is_shortened

    @property
    def _is_shortened(self) -> bool:
        """Whether a row has one id less than would fit, as in the paper's code, so that the target is no longer than
        the input. Either may then end with a padding id."""
        return self.noise_density == 0.5 and self.target_size(self._longest) > self.input_length

    @property
    def pads_inputs(self) -> bool:
        return self.input_size(self.raw_length) < self.input_length

    @property
    def num_noise_spans(self) -> int:
        return self._spans_in(self.raw_length)

    @property
    def target_length(self) -> int:
        return self.input_length if self._is_shortened else self.target_size(self.raw_length)

    def _spans_in(self, length: int) -> int:
        noise = self.noise_in(length)
        return min(max(round(noise / self.mean_span_length), 1), length - noise)

    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        mask = self.noise_mask(key)
        return replace_spans(raw, mask, self.known_vocabulary, self.input_length, self.target_length)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The input, and a table of its blanks: the text that was there and what the model writes.

        What the model writes elsewhere, before the first sentinel or behind one that is not in the input, comes last.
        """
        vocabulary = tokenizer.vocabulary
        truths, answers = (spans_by_sentinel(row[name].tolist(), vocabulary) for name in ("targets", "answers"))
        blanks = [vocabulary.sentinel_number(token) for token in row["inputs"].tolist()]
        blanks = [number for number in blanks if number is not None]

        def text(spans: dict[int | None, list[int]], number: int | None) -> str:
            return tokenizer.decode(spans.get(number, [])).strip() or "(none)"

        rows = [(f"<extra_id_{number}>", text(truths, number), text(answers, number)) for number in blanks]
        elsewhere = [text(answers, number) for number, ids in answers.items() if number not in blanks and ids]
        rows += [("elsewhere", "", " ".join(elsewhere))] if elsewhere else []
        return f"input:  {tokenizer.decode(row['inputs'])}\n{format_columns(('blank', 'truth', 'model'), rows)}\n"

    def noise_mask(self, key: Key[Array, ""]) -> Bool[Array, "R"]:
        """Which raw ids are noise.

        Noise and non-noise are each cut at random into `num_noise_spans` non-empty spans, all cuts equally likely, and
        laid out in turns, non-noise first.
        """
        length, noise, spans = self.raw_length, self.num_noise_tokens, self.num_noise_spans
        noise_key, other_key = jax.random.split(key)
        noise_lengths = random_segmentation(noise_key, noise, spans)
        other_lengths = random_segmentation(other_key, length - noise, spans)
        ends = jnp.cumsum(jnp.stack([other_lengths, noise_lengths], axis=1).reshape(-1))
        # A position is noise if an odd number of spans end before it.
        passed = jnp.zeros(length, jnp.int32).at[ends[:-1]].set(1)
        return jnp.cumsum(passed) % 2 == 1


def spans_by_sentinel(ids: Sequence[int], vocabulary: Vocabulary) -> dict[int | None, list[int]]:
    """The ids behind each sentinel, by its number, up to EOS and without padding; None has those before the first.

    >>> spans_by_sentinel([7, 99, 8, 9, 98, 1, 0], Vocabulary(size=100, first_sentinel_id=99, num_sentinels=10))
    {None: [7], 0: [8, 9], 1: []}
    """
    spans: dict[int | None, list[int]] = {}
    number = None
    for token in ids:
        if token == vocabulary.eos_id:
            break
        if (sentinel := vocabulary.sentinel_number(token)) is not None:
            number = sentinel
            spans[number] = []
        elif token != vocabulary.pad_id:
            spans.setdefault(number, []).append(token)
    return spans


def random_segmentation(key: Key[Array, ""], num_items: int, num_segments: int) -> Int[Array, "S"]:
    """Lengths of `num_segments` non-empty segments of `num_items` items; every such segmentation is equally likely."""
    # The segments' first items: a random subset of the items but the first, drawn as the positions of the largest of
    # independent random numbers (which tie once in 40,000 rows of 500).
    order = jax.random.bits(key, (num_items - 1,)).astype(jnp.uint32)
    _, cuts = jax.lax.top_k(order, num_segments - 1)
    bounds = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.sort(cuts) + 1, jnp.full(1, num_items, jnp.int32)])
    return jnp.diff(bounds)


def replace_spans(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, input_length: int, target_length: int
) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
    """(inputs, targets) of one row under a noise mask, each closed by EOS and padded to its length.

    Each span of noise is one sentinel in the inputs, and each span of other text one in the targets; sentinels count
    down from the top of the vocabulary. Where the row ends with text that is not noise, one more sentinel closes the
    target, as in the paper's figure 2; where it begins with noise, so does the target, as in the paper's code.

    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> vocabulary = Vocabulary(size=100, first_sentinel_id=99, num_sentinels=10)
    >>> inputs, targets = replace_spans(jnp.arange(10, 21), noise, vocabulary, 11, 7)
    >>> render = lambda ids: " ".join(words[i - 10] if i < 21 else f"<{99 - i}>" for i in ids.tolist() if i > 1)
    >>> render(inputs)
    'Thank you <0> me to your party <1> week .'
    >>> render(targets)
    '<0> for inviting <1> last <2>'
    """
    sides = ((noise, input_length), (~noise, target_length))
    return tuple(_with_sentinels(raw, hidden, vocabulary, length) for hidden, length in sides)


def _with_sentinels(
    raw: Int[Array, "R"], hidden: Bool[Array, "R"], vocabulary: Vocabulary, length: int
) -> Int[Array, "length"]:
    """The row with one sentinel for each span that is hidden, closed by EOS and padded."""
    starts = hidden & ~jnp.pad(hidden[:-1], (1, 0))
    sentinels = (vocabulary.first_sentinel_id + 1 - jnp.cumsum(starts)).astype(raw.dtype)
    shown = jnp.where(starts, sentinels, raw)
    return kept_ids(shown, ~hidden | starts, vocabulary.eos_id, vocabulary.pad_id, length)
