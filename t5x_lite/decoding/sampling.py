"""Drawing a token from the better part of a distribution, with one random number."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t5x_lite.decoding.best_tokens import BLOCK, best_tokens, in_blocks
from t5x_lite.decoding.methods import Sampling

_MANY = 1024  # tokens, among which are those that hold `top_p` of the probability nearly always


def sample_tokens(method: Sampling, logits: Float[Array, "R V"], uniform: Float[Array, "R"]) -> Int[Array, "R"]:
    """A token for each row as `method` says, given a number from [0, 1) for each."""
    logits = logits / method.temperature
    size = logits.shape[1]
    weights = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
    number = min(method.top_k or size, size)
    if number == size and method.top_p == 1.0:
        return draw(weights, uniform)
    total = weights.sum(axis=-1, keepdims=True)

    def draw_from_best(count: int) -> Int[Array, "R"]:
        values, ids = best_tokens(logits, count)
        best = jnp.exp(values - values[:, :1])
        if method.top_p < 1.0:
            share = method.top_p * (total if number == size else best.sum(axis=-1, keepdims=True))
            best = jnp.where(jnp.cumsum(best, axis=-1) - best < share, best, 0.0)
        return jnp.take_along_axis(ids, draw(best, uniform)[:, None], axis=1)[:, 0]

    if number < size or size <= _MANY:
        return draw_from_best(number)
    # Sorting them all takes longer than the model does.
    rest = total - jnp.exp(best_tokens(logits, _MANY)[0] - logits.max(axis=-1, keepdims=True)).sum(
        axis=-1, keepdims=True
    )
    few = (rest < (1.0 - method.top_p) * total).all()
    return jax.lax.cond(few, lambda: draw_from_best(_MANY), lambda: draw_from_best(size))


def draw(weights: Float[Array, "R C"], uniform: Float[Array, "R"]) -> Int[Array, "R"]:
    """For each row an index with probability in proportion to its weight: where the sum of weights passes the share
    `uniform` of the whole. One of weight 0 is never drawn.

    >>> draw(jnp.array([[1.0, 0.0, 3.0]] * 3), jnp.array([0.0, 0.24, 0.26])).tolist()
    [0, 0, 2]
    """
    blocks = in_blocks(weights, fill=0.0)
    sums = blocks.sum(axis=-1)
    place = uniform[:, None] * sums.sum(axis=-1, keepdims=True)
    block, before = _pass(sums, place)
    inside = jnp.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    index, _ = _pass(inside, place - before)
    return (block * BLOCK + index)[:, 0]


def _pass(weights: Float[Array, "R C"], place: Float[Array, "R 1"]) -> tuple[Int[Array, "R 1"], Float[Array, "R 1"]]:
    """The index at which the sum of weights passes `place`, and the sum before it."""
    sums = jnp.cumsum(weights, axis=-1)
    # Where rounding lets none pass, the last with a weight.
    passed = (sums > place) | (sums >= sums[:, -1:])
    index = jnp.argmax(passed, axis=-1, keepdims=True)
    return index, jnp.take_along_axis(sums - weights, index, axis=1)
