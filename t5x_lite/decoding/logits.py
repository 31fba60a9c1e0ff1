"""Where a text begins and ends, and what may stand in it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding.methods import Sampling
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class GenerationConstraints:
    """What a method of decoding has to obey."""

    max_length: int
    """Tokens to write at most, EOS included."""
    eos_id: int | None
    """Ends a text; None: nothing does but the maximum length."""
    pad_id: int
    """Stands behind the end."""
    forced_first_id: int | None = None
    """What every text begins with, whatever the model says."""
    forced_last_id: int | None = None
    """What stands at the maximum length in a text that has not ended before."""
    suppressed_ids: tuple[int, ...] = ()
    """What never is written."""

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise InputError(f"max_length={self.max_length} is too small; choose 1 or more")

    def apply(
        self, logits: Float[Array, "R V"], index: Int[Array, ""]
    ) -> tuple[Float[Array, "R V"], Float[Array, "R 1"]]:
        """(logits, log of their normaliser) of the token at `index`, minus infinity where one may not be written.

        The normaliser is that of all tokens, so that probabilities are the model's own. A forced token has probability
        one.
        """
        log_z = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        if self.suppressed_ids:
            # Chosen for each place, not written into the few: a CPU would copy all logits before each writing.
            suppressed = np.isin(np.arange(logits.shape[1]), self.suppressed_ids)
            logits = jnp.where(suppressed, -jnp.inf, logits)
        for place, token in {0: self.forced_first_id, self.max_length - 1: self.forced_last_id}.items():
            if token is not None:
                alone = jnp.where(jnp.arange(logits.shape[1]) == token, 0.0, -jnp.inf)
                logits = jnp.where(index == place, alone[None, :], logits)
                log_z = jnp.where(index == place, 0.0, log_z)
        return logits, log_z

    def ends(self, tokens: Int[Array, "*shape"]) -> Bool[Array, "*shape"]:
        """Which tokens end their text."""
        return jnp.zeros(tokens.shape, bool) if self.eos_id is None else tokens == self.eos_id


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


BLOCK = 128
"""Scores whose maximum is taken first: only blocks with the largest maxima are looked into."""


def best_tokens(scores: Float[Array, "R V"], number: int) -> tuple[Float[Array, "R N"], Int[Array, "R N"]]:
    """(scores, ids) of the best, best first; of equal ones the smaller id comes first, as in `jax.lax.top_k`.

    A pass of maxima and a search in a few blocks takes a tenth of the time of `argmax` or `top_k` on a CPU.

    >>> best_tokens(jnp.array([[0.5, 3.0, 1.0, 2.0]]), 2)[1].tolist()
    [[1, 3]]
    """
    blocks = in_blocks(scores, fill=-jnp.inf)
    if number > blocks.shape[1]:
        return tuple(jax.lax.top_k(scores, number))
    # The best are in the blocks with the best maxima; in ascending order, so that equal scores keep theirs.
    _, chosen = jax.lax.top_k(blocks.max(axis=-1), number)
    chosen = jnp.sort(chosen, axis=-1)
    inside = jnp.take_along_axis(blocks, chosen[:, :, None], axis=1).reshape(len(scores), -1)
    best, places = jax.lax.top_k(inside, number)
    return best, jnp.take_along_axis(chosen, places // BLOCK, axis=1) * BLOCK + places % BLOCK


def in_blocks(scores: Float[Array, "R V"], *, fill: float) -> Float[Array, "R C _"]:
    """The scores in blocks of `BLOCK`, the last one filled up.

    >>> in_blocks(jnp.ones((2, 300)), fill=0.0).shape
    (2, 3, 128)
    """
    rows, size = scores.shape
    padded = jnp.pad(scores, ((0, 0), (0, -size % BLOCK)), constant_values=fill)
    return padded.reshape(rows, -1, BLOCK)
