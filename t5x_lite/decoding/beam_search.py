"""Beam search: the best texts of several beginnings that are kept side by side."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding.logits import GenerationConstraints, best_tokens
from t5x_lite.decoding.methods import BeamSearch
from t5x_lite.decoding.token_by_token import Step

NEVER = -jnp.inf
"""The log-probability of what does not exist."""


class Texts(NamedTuple):
    """Some texts of each input: beginnings by their log-probability, or ended ones by their score; best first."""

    ids: Int[Array, "B N L"]
    values: Float[Array, "B N"]

    def beside(self, others: "Texts") -> "Texts":
        """These and, behind them, others."""
        return Texts(*(jnp.concatenate(pair, axis=1) for pair in zip(self, others, strict=True)))

    def best(self, number: int) -> tuple["Texts", Int[Array, "B N"]]:
        """The best of them, and which they are."""
        values, places = jax.lax.top_k(self.values, number)
        return Texts(jnp.take_along_axis(self.ids, places[..., None], axis=1), values), places


class Candidates(NamedTuple):
    """Continuations of the beginnings, best first."""

    values: Float[Array, "B C"]
    """Their log-probabilities."""
    beams: Int[Array, "B C"]
    """What they continue."""
    tokens: Int[Array, "B C"]

    def texts(self, running: Texts, index: Int[Array, ""]) -> Texts:
        """Written out."""
        ids = jnp.take_along_axis(running.ids, self.beams[..., None], axis=1)
        return Texts(jax.lax.dynamic_update_slice_in_dim(ids, self.tokens[..., None], index, axis=2), self.values)


class State(NamedTuple):
    """What a step hands to the next one."""

    index: Int[Array, ""]
    last: Int[Array, "R"]
    running: Texts
    ended: Texts
    done: Bool[Array, "B"]
    """The inputs whose ended texts are final."""
    cache: Any


def search(
    step: Step, cache: Any, start_ids: Int[Array, "B"], method: BeamSearch, limits: GenerationConstraints
) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
    """(ids, scores) of the best texts: see `decode` and `BeamSearch`."""
    batch_size, beams = len(start_ids), method.num_beams
    ids = jnp.full((batch_size, beams, limits.max_length), limits.pad_id, jnp.int32)
    start = State(
        index=jnp.int32(0),
        last=jnp.repeat(start_ids.astype(jnp.int32), beams),
        # All begin alike, so only one of them counts.
        running=Texts(ids, jnp.where(jnp.arange(beams) == 0, 0.0, NEVER)[None].repeat(batch_size, axis=0)),
        ended=Texts(ids, jnp.full((batch_size, beams), NEVER)),
        done=jnp.zeros(batch_size, bool),
        cache=cache.repeat(beams),
    )
    last = jax.lax.while_loop(
        lambda state: (state.index < limits.max_length) & ~state.done.all(),
        partial(_advance, step, method, limits),
        start,
    )
    return last.ended.ids[:, : method.num_results], last.ended.values[:, : method.num_results]


def _advance(step: Step, method: BeamSearch, limits: GenerationConstraints, state: State) -> State:
    beams, length = method.num_beams, state.index + 1
    logits, cache = step(state.last[:, None], state.cache, state.index)
    logits, log_z = limits.apply(logits[:, 0], state.index)
    past = state.running.values.reshape(-1, 1) - log_z
    candidates = _candidates(logits, past, beams)

    ends = limits.ends(candidates.tokens)
    at_end = length == limits.max_length
    endings = candidates.texts(state.running, state.index)
    if not method.exhaustive_eos:
        eligible = (ends | at_end) & (jnp.arange(ends.shape[1]) < beams)[None]
    elif limits.eos_id is None:
        eligible = ends | at_end
    else:
        eligible = ~ends & at_end  # what ends with EOS comes from the other list
        every = _every_ending(logits, past, limits.eos_id, beams).texts(state.running, state.index)
        endings = endings.beside(every)
        eligible = jnp.pad(eligible, ((0, 0), (0, beams)), constant_values=True)
    eligible &= ~state.done[:, None]
    scores = jnp.where(eligible, endings.values / method.length_penalty(length.astype(jnp.float32)), NEVER)
    ended, _ = state.ended.beside(Texts(endings.ids, scores)).best(beams)

    going_on = candidates._replace(values=jnp.where(ends, NEVER, candidates.values))
    running, places = going_on.texts(state.running, state.index).best(beams)
    chosen = jnp.take_along_axis(candidates.beams, places, axis=1)
    rows = jnp.arange(len(chosen))[:, None] * beams + chosen
    last = jax.lax.dynamic_index_in_dim(running.ids, state.index, axis=2, keepdims=False)
    done = state.done | _cannot_improve(method, limits, length, running, ended)
    return State(length, last.reshape(-1), running, ended, done, cache.take(rows.reshape(-1)))


def _candidates(logits: Float[Array, "R V"], past: Float[Array, "R 1"], beams: int) -> Candidates:
    """The best 2 `beams` continuations of all beams: enough, if each beam may end but once."""
    number = 2 * beams
    values, tokens = best_tokens(logits, min(number, logits.shape[1]))
    each = values.shape[1]
    values, tokens = (x.reshape(-1, beams * each) for x in (past + values, tokens))
    values, places = jax.lax.top_k(values, min(number, beams * each))
    return Candidates(values, places // each, jnp.take_along_axis(tokens, places, axis=1))


def _every_ending(logits: Float[Array, "R V"], past: Float[Array, "R 1"], eos_id: int, beams: int) -> Candidates:
    """The EOS behind each beam."""
    values = (past[:, 0] + logits[:, eos_id]).reshape(-1, beams)
    return Candidates(
        values, jnp.arange(beams)[None].repeat(len(values), axis=0), jnp.full(values.shape, eos_id, jnp.int32)
    )


def _cannot_improve(
    method: BeamSearch, limits: GenerationConstraints, length: Int[Array, ""], running: Texts, ended: Texts
) -> Bool[Array, "B"]:
    """Where enough texts have ended and no beginning of `length` tokens can get a better score."""
    full = ended.values[:, -1] > NEVER
    if method.stops_when_full:
        return full
    now, most = length.astype(jnp.float32), float(limits.max_length)
    if method.length_power is not None:
        penalty = method.length_penalty(now)
    else:
        # Log-probabilities are negative and only fall, so the largest penalty to come gives the best score to come.
        penalty = jnp.maximum(method.length_penalty(now + 1.0), method.length_penalty(most))
    none_left = running.values[:, 0] == NEVER
    return none_left | full & (running.values[:, 0] / penalty <= ended.values[:, -1])
