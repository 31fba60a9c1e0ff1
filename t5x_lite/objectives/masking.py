"""Which positions of a row are hidden, and what the model sees there: one row at a time, with static shapes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.tokenizers.vocabulary import Vocabulary


class Spans(NamedTuple):
    """Hidden spans of a row, no two of them adjacent."""

    number: Int[Array, "L"]
    """The number of each position's span, counted from 0 in the order they were drawn; -1 outside."""
    start: Int[Array, "L"]
    """First position of that span; 0 outside."""
    end: Int[Array, "L"]
    """Last position of that span; 0 outside."""


def mask_counts(max_length: int, rate: float) -> Int[np.ndarray, "L1"]:
    """The hidden positions of a row of 0, 1, ..., `max_length` ids: `round(rate * length)`, at least one.

    >>> mask_counts(20, 0.15)[[0, 1, 10, 20]].tolist()
    [0, 1, 2, 3]
    """
    return np.array([0, *(max(1, round(rate * length)) for length in range(1, max_length + 1))], np.int32)


def is_special(ids: Int[Array, "L"], vocabulary: Vocabulary) -> Bool[Array, "L"]:
    """True for padding, separators and every other id that is not text."""
    return (ids[:, None] == jnp.asarray(vocabulary.special_ids)[None, :]).any(axis=1)


def segments_of(
    ids: Int[Array, "*batch L"], separator_id: int, pad_id: int, separators: int = 1
) -> Int[Array, "*batch L"]:
    """0 up to the first separator, 1 after it; 0 in padding and in rows without a separator.

    Args:
      separators: how many stand between two texts; all of them are in the first segment.

    >>> segments_of(jnp.array([3, 10, 4, 11, 4, 0]), 4, 0).tolist()
    [0, 0, 0, 1, 1, 0]
    >>> segments_of(jnp.array([3, 10, 4, 4, 11, 4, 0]), 4, 0, separators=2).tolist()
    [0, 0, 0, 0, 1, 1, 0]
    """
    is_separator = ids == separator_id
    before = jnp.cumsum(is_separator, axis=-1) - is_separator
    return ((before >= separators) & (ids != pad_id)).astype(ids.dtype)


def swap_segments(ids: Int[Array, "L"], middle: Int[Array, ""] | int, end: Int[Array, ""] | int) -> Int[Array, "L"]:
    """A row whose segments A and B are exchanged: `mark A mark B mark`, the last two marks at `middle` and `end`.

    >>> swap_segments(jnp.array([20, 7, 21, 8, 9, 22, 0]), 2, 5).tolist()
    [20, 8, 9, 21, 7, 22, 0]
    """
    index, new_middle = jnp.arange(len(ids)), end - middle
    source = jnp.where(index == new_middle, middle, index - new_middle)
    source = jnp.where(index < new_middle, index + middle, source)
    return ids[jnp.where((index == 0) | (index >= end), index, source)]


def word_starts(ids: Int[Array, "L"], candidates: Bool[Array, "L"], vocabulary: Vocabulary) -> Bool[Array, "L"]:
    """The first token of every word: what begins one by itself, and what follows on a special id."""
    if not vocabulary.marks_words:
        return candidates
    continues = jnp.asarray(vocabulary.continues_word())[ids]
    return candidates & ~(continues & jnp.pad(candidates[:-1], (1, 0)))


def choose_tokens(key: Key[Array, ""], candidates: Bool[Array, "L"], count: Int[Array, ""]) -> Bool[Array, "L"]:
    """`count` of the candidates (all, if there are fewer), every such subset equally likely."""
    scores = jnp.where(candidates, jax.random.uniform(key, candidates.shape), 2.0)
    rank = jnp.argsort(jnp.argsort(scores))
    return candidates & (rank < count)


def choose_words(
    key: Key[Array, ""], candidates: Bool[Array, "L"], starts: Bool[Array, "L"], count: Int[Array, ""]
) -> Bool[Array, "L"]:
    """Whole words in random order, each that still fits into `count` tokens, so `count` tokens or a few less."""
    word, lengths = _words(candidates, starts)
    scores = jnp.where(lengths > 0, jax.random.uniform(key, lengths.shape), 2.0)
    order = jnp.argsort(scores)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        turn, total, _ = carry
        return (turn < starts.sum()) & (total < count)

    def next_word(carry: tuple) -> tuple:
        turn, total, taken = carry
        length = lengths[order[turn]]
        fits = total + length <= count
        return turn + 1, total + jnp.where(fits, length, 0), taken.at[order[turn]].set(fits)

    start = (jnp.int32(0), jnp.int32(0), jnp.zeros(starts.shape, bool))
    taken = jax.lax.while_loop(unfinished, next_word, start)[2]
    return candidates & taken[word]


def choose_spans(
    key: Key[Array, ""],
    candidates: Bool[Array, "L"],
    starts: Bool[Array, "L"],
    count: Int[Array, ""],
    length_shares: tuple[float, ...],
) -> Spans:
    """Spans of whole words until `count` tokens are hidden.

    Lengths in words are drawn independently, 1 with probability `length_shares[0]` and so on; then each span gets one
    of the positions, all equally likely, where it covers only candidates and touches no other span. A span is shorter
    where no gap is long enough, and the last one of a row is cut to the words that fit into `count`: in long rows this
    does not matter, in rows with room for a few spans short ones become more frequent.
    """
    length = candidates.shape[0]
    index = jnp.arange(length)
    word, word_lengths = _words(candidates, starts)
    first_token = jnp.cumsum(word_lengths) - word_lengths  # of a word, counted in candidates
    num_words = starts.sum()
    # A special id between two words keeps a span from reaching over it.
    position_of_start = jnp.nonzero(starts, size=length, fill_value=length - 1)[0]
    run = jnp.cumsum(~candidates)[position_of_start]
    ends_run = run != jnp.pad(run[1:], (0, 1), constant_values=-1)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        _, total, _, open_ = carry
        return open_ & (total < count)

    def next_span(carry: tuple) -> tuple:
        turn, total, taken, _ = carry
        length_key, start_key = jax.random.split(jax.random.fold_in(key, turn))
        size = 1 + jax.random.choice(length_key, len(length_shares), p=jnp.asarray(length_shares, jnp.float32))
        # Words in or next to a span are not free.
        near = jnp.pad(taken >= 0, 1)
        free = (index < num_words) & ~(near[:-2] | near[1:-1] | near[2:])
        end_of_free = jnp.where(free, jnp.where(ends_run, index + 1, length), index)
        room = jax.lax.cummin(end_of_free, reverse=True) - index
        room = jnp.where(free & (word_lengths <= count - total), room, 0)
        size = jnp.minimum(size, room.max())
        span_start = jnp.argmax(jnp.where(room >= size, jax.random.uniform(start_key, (length,)), -1.0))
        covers = (span_start + index).clip(0, length - 1)
        tokens = first_token[covers] + word_lengths[covers]
        size = ((tokens - first_token[span_start] <= count - total) & (index < size)).sum()
        covered = (index >= span_start) & (index < span_start + size)
        total = total + jnp.where(covered, word_lengths, 0).sum()
        return turn + 1, total, jnp.where(covered, turn, taken), size > 0

    start = (jnp.int32(0), jnp.int32(0), jnp.full(length, -1, jnp.int32), jnp.bool_(True))
    _, _, taken, _ = jax.lax.while_loop(unfinished, next_span, start)
    number = jnp.where(candidates, taken[word], -1)
    return Spans(number, *_bounds(number))


def hide(
    key: Key[Array, ""],
    ids: Int[Array, "L"],
    chosen: Bool[Array, "L"],
    vocabulary: Vocabulary,
    mask_share: float,
    random_share: float,
    group: Int[Array, "L"] | None = None,
    mask_id: int | None = None,
) -> Int[Array, "L"]:
    """The row with the mask token, a random token or the token itself at the chosen positions (BERT, section 3.1).

    Which of the three is drawn for each position, or once for all positions of the same `group`. `mask_id` is that of
    the mask token where the vocabulary has none.
    """
    mask_id = vocabulary.mask_id if mask_id is None else mask_id
    draw_key, token_key = jax.random.split(key)
    draw = jax.random.uniform(draw_key, ids.shape)
    draw = draw if group is None else draw[group]
    tokens = random_tokens(token_key, ids.shape[0], vocabulary).astype(ids.dtype)
    shown = jnp.where(draw < mask_share, mask_id, jnp.where(draw < mask_share + random_share, tokens, ids))
    return jnp.where(chosen, shown, ids)


def random_tokens(key: Key[Array, ""], length: int, vocabulary: Vocabulary) -> Int[Array, "L"]:
    """Ids that are neither special nor sentinels, all equally likely."""
    last_sentinel = vocabulary.first_sentinel_id - vocabulary.num_sentinels + 1
    ranges = [(special_id, 1) for special_id in vocabulary.special_ids] + [(last_sentinel, vocabulary.num_sentinels)]
    tokens = jax.random.randint(key, (length,), 0, vocabulary.size - sum(size for _, size in ranges))
    for start, size in sorted(ranges):
        tokens += size * (tokens >= start)
    return tokens


def content_key(ids: Int[Array, "R"]) -> Key[Array, ""]:
    """A key that depends on the ids of a row alone."""
    factors = np.random.default_rng(0).integers(1 << 31, size=ids.shape[0], dtype=np.uint32) * 2 + 1
    digest = ((ids.astype(jnp.uint32) + 1) * jnp.asarray(factors)).sum()
    return jax.random.fold_in(jax.random.key(0), digest)


def geometric_shares(p: float, longest: int) -> tuple[float, ...]:
    """The probabilities of lengths 1 .. `longest` of a geometric distribution without its tail.

    SpanBERT's (Joshi et al. 2020, section 3.1), whose mean the paper gives as 3.8:

    >>> shares = geometric_shares(0.2, 10)
    >>> round(sum((index + 1) * share for index, share in enumerate(shares)), 1)
    3.8
    """
    weights = p * (1.0 - p) ** np.arange(longest)
    return tuple((weights / weights.sum()).tolist())


def harmonic_shares(longest: int) -> tuple[float, ...]:
    """Probabilities of lengths 1 .. `longest` in proportion to 1 / length (Lan et al. 2020, equation 2)."""
    weights = 1.0 / np.arange(1, longest + 1)
    return tuple((weights / weights.sum()).tolist())


def _words(candidates: Bool[Array, "L"], starts: Bool[Array, "L"]) -> tuple[Int[Array, "L"], Int[Array, "L"]]:
    """(word of each position, tokens of each word); positions before the first word count as of word 0."""
    length = candidates.shape[0]
    word = (jnp.cumsum(starts) - 1).clip(0)
    return word, jnp.zeros(length, jnp.int32).at[word].add(candidates.astype(jnp.int32))


def _bounds(number: Int[Array, "L"]) -> tuple[Int[Array, "L"], Int[Array, "L"]]:
    index, length = jnp.arange(number.shape[0]), number.shape[0]
    inside = number >= 0
    first = inside & (number != jnp.pad(number[:-1], (1, 0), constant_values=-1))
    last = inside & (number != jnp.pad(number[1:], (0, 1), constant_values=-1))
    start = jax.lax.cummax(jnp.where(first, index, 0))
    end = jax.lax.cummin(jnp.where(last, index, length), reverse=True)
    return jnp.where(inside, start, 0), jnp.where(inside, end, 0)
