"""BART's noises, each a pure function of a text (Lewis et al. 2020, section 2.2).

A text is an array `ids` [T] of which the first `size` ids count; what is behind them means nothing.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.objectives import masking


def in_order_of(ids: Int[Array, "T"], sentences: Int[Array, "T"], rank: Float[Array, "S"]) -> Int[Array, "T"]:
    """The text with its sentences in ascending order of their ranks.

    Args:
      sentences: the number of each id's sentence, from 1; 0 for what is no text, which goes to the end.
      rank: of sentence 1, 2, ...

    >>> in_order_of(jnp.array([10, 11, 12, 13, 3]), jnp.array([1, 1, 2, 3, 0]), jnp.array([0.7, 0.9, 0.2])).tolist()
    [13, 10, 11, 12, 3]
    """
    place = jnp.where(sentences > 0, rank[(sentences - 1).clip(0)], jnp.inf)
    return ids[jnp.argsort(place, stable=True)]


def rotate(ids: Int[Array, "T"], size: Int[Array, ""] | int, first: Int[Array, ""] | int) -> Int[Array, "T"]:
    """The text beginning with its id number `first`; those before it follow on the last one.

    >>> rotate(jnp.array([10, 11, 12, 13, 3]), 4, 1).tolist()
    [11, 12, 13, 10, 3]
    """
    index = jnp.arange(ids.shape[0])
    return ids[jnp.where(index < size, (index + first) % jnp.maximum(size, 1), index)]


def infill(ids: Int[Array, "T"], slots: Int[Array, "T"], mask_id: int) -> tuple[Int[Array, "T"], Bool[Array, "T"]]:
    """(the text with each span replaced by one mask, where the masks are).

    `slots` says what stands at each place of the result: -1 an id of the text, n >= 0 a mask for the next n of them.

    >>> ids, is_mask = infill(jnp.array([10, 11, 12, 13, 14]), jnp.array([-1, 2, -1, 0, -1]), 99)
    >>> ids.tolist()
    [10, 99, 13, 99, 14]
    """
    is_mask = slots >= 0
    taken = jnp.where(is_mask, slots, 1)
    source = (jnp.cumsum(taken) - taken).clip(0, ids.shape[0] - 1)
    return jnp.where(is_mask, mask_id, ids[source]).astype(ids.dtype), is_mask


def random_slots(
    key: Key[Array, ""], lengths: Int[Array, "K"], size: Int[Array, ""], places: int
) -> tuple[Int[Array, "places"], Int[Array, ""]]:
    """(slots for `infill`, how many of them there are): spans of these lengths anywhere in a text of `size` ids.

    Spans do not overlap; every arrangement of spans and ids is equally likely. Lengths below 0 are no spans.
    """
    choose_key, order_key = jax.random.split(key)
    used = lengths >= 0
    num_spans = used.sum()
    total = size - jnp.where(used, lengths, 0).sum() + num_spans
    is_span = masking.choose_tokens(choose_key, jnp.arange(places) < total, num_spans)
    # In random order, since the last one that was drawn may have been cut.
    order = jnp.argsort(jnp.where(used, jax.random.uniform(order_key, lengths.shape), 2.0))
    number = (jnp.cumsum(is_span) - 1).clip(0, lengths.shape[0] - 1)
    return jnp.where(is_span, lengths[order][number], -1), total


def cut_lengths(drawn: Int[Array, "K"], count: Int[Array, ""] | int, room: Int[Array, ""] | int) -> Int[Array, "K"]:
    """Of the drawn lengths those that hide `count` ids in all, the last of them cut to what is left; -1 for the others.

    An empty span makes a text longer by its mask. Those that would take more than `room` places beyond the ids that the
    other spans make free are left out.

    >>> cut_lengths(jnp.array([3, 0, 2, 4, 0, 1]), 6, 9).tolist()
    [3, 0, 2, 1, -1, -1]
    """
    before = jnp.cumsum(drawn) - drawn
    # What all draws together do not reach, the last one takes: once in many millions of rows.
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
