"""Texts written from left to right: greedily, or by sampling."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding.methods import BLOCK, DecodingStart, Method, best_tokens, in_blocks
from t5x_lite.validation import Positive, Range


@dataclass(frozen=True)
class Greedy(Method):
    """The most likely next token again and again."""

    num_results: ClassVar[int] = 1

    def write(self, start: DecodingStart) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
        return write_left_to_right(lambda logits, index: best_tokens(logits, 1)[1][:, 0], 1, start)


@dataclass(frozen=True)
class Sampling(Method):
    """Tokens drawn from softmax(logits / temperature), from the `top_k` most likely tokens alone, and of these from the
    fewest whose probabilities add up to `top_p` (Fan et al. 2018; Holtzman et al. 2020)."""

    temperature: Annotated[float, Range(gt=0, lt=math.inf, remedy="choose e.g. 0.7, or greedy decoding")] = 1.0
    """Divides the logits: below 1 likely tokens become likelier, above 1 all become more alike."""
    top_k: Annotated[int, Range(ge=0, remedy="choose e.g. 50, or 0 for all tokens")] = 0
    """Tokens to choose from; 0 means all."""
    top_p: Annotated[float, Range(gt=0, le=1, remedy="choose e.g. 0.9, or 1 for all tokens")] = 1.0
    """Their share of the probability, in (0, 1]; 1 means all."""
    num_results: Positive = 1
    """Texts drawn for each input, independently."""

    def write(self, start: DecodingStart) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
        if start.key is None:
            raise ValueError("sampling needs a key")
        texts = jnp.arange(self.num_results)
        fold_in_each = jax.vmap(jax.random.fold_in, (None, 0))
        row_keys = fold_in_each(start.key, start.rows)
        keys = jax.vmap(fold_in_each, (0, None))(row_keys, texts).reshape(-1)

        def choose(logits: Float[Array, "R V"], index: Int[Array, ""]) -> Int[Array, "R"]:
            uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, index)))(keys)
            return sample_tokens(self, logits, uniform)

        return write_left_to_right(choose, self.num_results, start)


def write_left_to_right(
    choose: Callable[[Array, Array], Array], num_results: int, start: DecodingStart
) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
    """(ids, scores) of texts whose next tokens [R] are `choose(logits, index)`, of logits [R V]; for `Method.write`."""
    constraints, batch_size = start.constraints, len(start.start_ids)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        index, _, _, _, ended, _ = carry
        return (index < start.max_length) & ~ended.all()

    def next_token(carry: tuple) -> tuple:
        index, last, ids, scores, ended, cache = carry
        logits, cache = start.step(last[:, None], cache, index)
        logits, log_z = constraints.apply(logits[:, 0], index, start.max_length)
        chosen = choose(logits, index).astype(jnp.int32)
        log_probability = (jnp.take_along_axis(logits, chosen[:, None], axis=1) - log_z)[:, 0]
        scores += jnp.where(ended, 0.0, log_probability)
        token = jnp.where(ended, constraints.pad_id, chosen)
        ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], index, axis=1)
        return index + 1, token, ids, scores, ended | constraints.ends(chosen), cache

    sequences = batch_size * num_results
    begin = (
        jnp.int32(0),
        jnp.repeat(start.start_ids.astype(jnp.int32), num_results),
        jnp.full((sequences, constraints.max_length), constraints.pad_id, jnp.int32),
        jnp.zeros(sequences),
        jnp.zeros(sequences, bool),
        start.cache.repeat(num_results),
    )
    _, _, ids, scores, _, _ = jax.lax.while_loop(unfinished, next_token, begin)
    return ids.reshape(batch_size, num_results, -1), scores.reshape(batch_size, num_results)


_MANY = 1024  # tokens, which nearly always hold `top_p` of the probability


def sample_tokens(method: Sampling, logits: Float[Array, "R V"], uniform: Float[Array, "R"]) -> Int[Array, "R"]:
    """A token for each row as `method` says, given a number from [0, 1) for each."""
    logits = logits / method.temperature
    size = logits.shape[1]
    highest = logits.max(axis=-1, keepdims=True)
    weights = jnp.exp(logits - highest)
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
    rest = total - jnp.exp(best_tokens(logits, _MANY)[0] - highest).sum(axis=-1, keepdims=True)
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
    point = uniform[:, None] * sums.sum(axis=-1, keepdims=True)
    block, before = _pass(sums, point)
    inside = jnp.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    index, _ = _pass(inside, point - before)
    return (block * BLOCK + index)[:, 0]


def _pass(weights: Float[Array, "R C"], point: Float[Array, "R 1"]) -> tuple[Int[Array, "R 1"], Float[Array, "R 1"]]:
    """The index at which the sum of weights passes `point`, and the sum before it."""
    sums = jnp.cumsum(weights, axis=-1)
    # Where rounding lets none pass, the last with a weight.
    passed = (sums > point) | (sums >= sums[:, -1:])
    index = jnp.argmax(passed, axis=-1, keepdims=True)
    return index, jnp.take_along_axis(sums - weights, index, axis=1)
