"""Beam search: several beginnings of each text are extended side by side."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding.methods import DecodingStart, Method, best_tokens
from t5x_lite.errors import InputError
from t5x_lite.validation import Positive, Range

NEVER = -jnp.inf
"""The log-probability of what does not exist."""


class Texts(NamedTuple):
    """Texts of each input: beginnings by their log-probability, or ended ones by their score; best first."""

    ids: Int[Array, "B N L"]
    values: Float[Array, "B N"]

    def beside(self, others: "Texts") -> "Texts":
        return Texts(*(jnp.concatenate(pair, axis=1) for pair in zip(self, others, strict=True)))

    def best(self, number: int) -> tuple["Texts", Int[Array, "B N"]]:
        values, order = jax.lax.top_k(self.values, number)
        return Texts(jnp.take_along_axis(self.ids, order[..., None], axis=1), values), order


class Candidates(NamedTuple):
    """Continuations of the beginnings, best first."""

    values: Float[Array, "B C"]
    beams: Int[Array, "B C"]
    """What they continue."""
    tokens: Int[Array, "B C"]

    def texts(self, running: Texts, index: Int[Array, ""]) -> Texts:
        ids = jnp.take_along_axis(running.ids, self.beams[..., None], axis=1)
        return Texts(jax.lax.dynamic_update_slice_in_dim(ids, self.tokens[..., None], index, axis=2), self.values)


class State(NamedTuple):
    """The carry of the loop over tokens."""

    index: Int[Array, ""]
    last: Int[Array, "R"]
    running: Texts
    ended: Texts
    done: Bool[Array, "B"]
    """The inputs whose ended texts are final."""
    cache: Any


Finite = Annotated[float, Range(gt=-math.inf, lt=math.inf, remedy="choose e.g. 0.6")]


@dataclass(frozen=True)
class BeamSearch(Method):
    """The `num_beams` best beginnings, extended by a token at a time.

    A text of n tokens, EOS included, scores its log-probability divided by ``((5 + n) / 6) ** alpha`` (Wu et al. 2016,
    section 7). Each step takes the best 2 num_beams continuations of all beginnings; of these the best num_beams that
    do not end go on, and an EOS ends a text if it ranks among the best num_beams, as in fairseq and Transformers. At
    the maximum length the best num_beams count as ended.
    """

    num_beams: Positive = 4
    """Beginnings kept for an input."""
    alpha: Finite = 0.6
    """Of the length penalty: 0 is none, and more favours longer texts."""
    early_stopping: bool = False
    """Stop as soon as num_beams texts of an input have ended. Otherwise only when no beginning can get a better score
    than the worst of them, even at the best length and without losing probability. A single beam stops at its first
    EOS, as greedy decoding does."""
    num_results: Positive = 1
    """The best texts are given, best first; at most num_beams."""
    exhaustive_eos: bool = False
    """Let the EOS after every beginning end a text, however low it ranks. A search as wide as all beginnings is then
    exhaustive; the beam may be wider than the vocabulary."""
    length_power: Finite | None = None
    """Divide by ``n ** length_power`` instead, and judge beginnings by their score at their present length: as
    Transformers does with its `length_penalty`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_results > self.num_beams:
            raise InputError(
                f"num_results={self.num_results} exceeds num_beams={self.num_beams}; choose at most as many results "
                "as beams"
            )

    @property
    def num_sequences(self) -> int:
        return self.num_beams

    def length_penalty(self, length: Float[Array, ""] | float) -> Float[Array, ""] | float:
        """The divisor of the log-probability of a text of `length` tokens.

        >>> BeamSearch(alpha=1.0).length_penalty(7)
        2.0
        """
        if self.length_power is not None:
            return length**self.length_power
        return ((5.0 + length) / 6.0) ** self.alpha

    def check(self, vocab_size: int) -> None:
        if self.num_beams > vocab_size and not self.exhaustive_eos:
            raise InputError(
                f"num_beams={self.num_beams} is wider than the vocabulary of {vocab_size} ids; choose {vocab_size} or "
                "fewer"
            )

    def write(self, start: DecodingStart) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
        constraints, beams, batch_size = start.constraints, self.num_beams, len(start.start_ids)
        ids = jnp.full((batch_size, beams, constraints.max_length), constraints.pad_id, jnp.int32)
        begin = State(
            index=jnp.int32(0),
            last=jnp.repeat(start.start_ids.astype(jnp.int32), beams),
            # All begin alike, so only one of them counts.
            running=Texts(ids, jnp.where(jnp.arange(beams) == 0, 0.0, NEVER)[None].repeat(batch_size, axis=0)),
            ended=Texts(ids, jnp.full((batch_size, beams), NEVER)),
            done=jnp.zeros(batch_size, bool),
            cache=start.cache.repeat(beams),
        )
        last = jax.lax.while_loop(
            lambda state: (state.index < start.max_length) & ~state.done.all(),
            partial(_advance, start, self),
            begin,
        )
        return last.ended.ids[:, : self.num_results], last.ended.values[:, : self.num_results]


def _advance(start: DecodingStart, method: BeamSearch, state: State) -> State:
    constraints, beams, length = start.constraints, method.num_beams, state.index + 1
    logits, cache = start.step(state.last[:, None], state.cache, state.index)
    logits, log_z = constraints.apply(logits[:, 0], state.index, start.max_length)
    past = state.running.values.reshape(-1, 1) - log_z
    candidates = _candidates(logits, past, beams)

    ends = constraints.ends(candidates.tokens)
    at_end = length == start.max_length
    endings = candidates.texts(state.running, state.index)
    if not method.exhaustive_eos:
        eligible = (ends | at_end) & (jnp.arange(ends.shape[1]) < beams)[None]
    elif constraints.eos_id is None:
        eligible = ends | at_end
    else:
        eligible = ~ends & at_end  # what ends with EOS comes from the other list
        values = (past[:, 0] + logits[:, constraints.eos_id]).reshape(-1, beams)
        each_beam = jnp.arange(beams)[None].repeat(len(values), axis=0)
        all_eos = Candidates(values, each_beam, jnp.full(values.shape, constraints.eos_id, jnp.int32))
        endings = endings.beside(all_eos.texts(state.running, state.index))
        eligible = jnp.pad(eligible, ((0, 0), (0, beams)), constant_values=True)
    eligible &= ~state.done[:, None]
    scores = jnp.where(eligible, endings.values / method.length_penalty(length.astype(jnp.float32)), NEVER)
    ended, _ = state.ended.beside(Texts(endings.ids, scores)).best(beams)

    going_on = candidates._replace(values=jnp.where(ends, NEVER, candidates.values))
    running, order = going_on.texts(state.running, state.index).best(beams)
    chosen = jnp.take_along_axis(candidates.beams, order, axis=1)
    rows = jnp.arange(len(chosen))[:, None] * beams + chosen
    last = jax.lax.dynamic_index_in_dim(running.ids, state.index, axis=2, keepdims=False)
    done = state.done | _cannot_improve(method, length, start.max_length, running, ended)
    return State(length, last.reshape(-1), running, ended, done, cache.take(rows.reshape(-1)))


def _candidates(logits: Float[Array, "R V"], past: Float[Array, "R 1"], beams: int) -> Candidates:
    """The best 2 `beams` continuations of all beams: enough, if each beam may end but once."""
    number = 2 * beams
    values, tokens = best_tokens(logits, min(number, logits.shape[1]))
    each = values.shape[1]
    values, tokens = (x.reshape(-1, beams * each) for x in (past + values, tokens))
    values, order = jax.lax.top_k(values, min(number, beams * each))
    return Candidates(values, order // each, jnp.take_along_axis(tokens, order, axis=1))


def _cannot_improve(
    method: BeamSearch, length: Int[Array, ""], max_length: Int[Array, ""], running: Texts, ended: Texts
) -> Bool[Array, "B"]:
    """Where enough texts have ended and no beginning of `length` tokens can get a better score."""
    full = ended.values[:, -1] > NEVER
    if method.early_stopping or (method.num_beams == 1 and not method.exhaustive_eos):
        return full
    now, most = length.astype(jnp.float32), max_length.astype(jnp.float32)
    if method.length_power is not None:
        penalty = method.length_penalty(now)
    else:
        # Log-probabilities are negative and only fall, so the largest penalty to come gives the best score to come.
        penalty = jnp.maximum(method.length_penalty(now + 1.0), method.length_penalty(most))
    none_left = running.values[:, 0] == NEVER
    return none_left | full & (running.values[:, 0] / penalty <= ended.values[:, -1])
