"""The interface of decoding methods: constraints on the text, the model's step, the best tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Positive, Validated

Step = Callable[..., tuple[Float[Array, "R 1 V"], Any]]
"""`decode_step` of a model: (tokens, cache, index) to (logits, cache), a cache with `repeat` and `take`."""


@dataclass(frozen=True)
class GenerationConstraints(Validated):
    """What a method of decoding has to obey: the arguments of `decode`."""

    max_length: Positive
    """That there is room for; `DecodingStart.max_length` says how much of it is written."""
    eos_id: int | None
    pad_id: int
    forced_first_id: int | None = None
    forced_last_id: int | None = None
    suppressed_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()

    def apply(
        self, logits: Float[Array, "R V"], index: Int[Array, ""], max_length: Int[Array, ""]
    ) -> tuple[Float[Array, "R V"], Float[Array, "R 1"]]:
        """(logits, log of their normaliser) of the token at `index`, minus infinity where one may not be written.

        The normaliser is over all tokens, so that probabilities are the model's; that of a forced token is one.
        """
        log_z = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        if self.suppressed_ids:
            # A mask over all ids, not an update of a few: a CPU would copy all logits before each update.
            suppressed = np.isin(np.arange(logits.shape[1]), self.suppressed_ids)
            logits = jnp.where(suppressed, -jnp.inf, logits)
        for position, token in ((0, self.forced_first_id), (max_length - 1, self.forced_last_id)):
            if token is not None:
                alone = jnp.where(jnp.arange(logits.shape[1]) == token, 0.0, -jnp.inf)
                logits = jnp.where(index == position, alone[None, :], logits)
                log_z = jnp.where(index == position, 0.0, log_z)
        return logits, log_z

    def ends(self, tokens: Int[Array, "*shape"]) -> Bool[Array, "*shape"]:
        """Which tokens end their text."""
        ends = jnp.zeros(tokens.shape, bool) if self.eos_id is None else tokens == self.eos_id
        return ends | jnp.isin(tokens, np.array(self.stop_ids)) if self.stop_ids else ends


class DecodingStart(NamedTuple):
    """What a method begins with."""

    step: Step
    cache: Any
    """Of one sequence an input; `repeat` gives that of several, `take` that of sequences which continue others."""
    start_ids: Int[Array, "B"]
    """What the decoder reads first."""
    constraints: GenerationConstraints
    """Applied to the logits of each step; they say which tokens end a text."""
    key: Key[Array, ""] | None
    """For random numbers, which depend on it, on the row's number and on the token's index alone."""
    rows: Int[Array, "B"]
    max_length: Int[Array, ""]
    """Tokens to write at most."""


class Method(Validated, ABC):
    """A way to choose tokens: a frozen dataclass with its options. A new method is a subclass, here or outside."""

    num_results: Positive
    """Texts for each input."""

    @property
    def num_sequences(self) -> int:
        """Texts that are written at once for each input."""
        return self.num_results

    def check(self, vocab_size: int) -> None:
        """Raises `InputError` where the method does not fit so many ids."""

    @abstractmethod
    def write(self, start: DecodingStart) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
        """(ids, scores) of N = `num_results` texts for each input; `decode` calls it under `jit` and returns them."""


@dataclass(frozen=True)
class GenerationDefaults:
    """How all texts of a model begin and end, and which ids it never writes.

    A Hugging Face folder may say so, and a run that began as one. How the model searches is not in it: see `Method`.
    """

    start_id: int | None = None
    """What the decoder reads first, where it is not the id of the model's config."""
    forced_first_id: int | None = None
    """The id that every text begins with."""
    forced_last_id: int | None = None
    """The last id of texts that reach the maximum length."""
    suppressed_ids: tuple[int, ...] = ()
    """Ids that are never written."""
    ends: bool = True
    """Whether an id ends a text; otherwise all texts have the maximum length."""
    pad_id: int | None = None
    """The padding of a model without a tokenizer; None: 0."""
    eos_id: int | None = None
    """What ends the texts of a model without a tokenizer; None: 1."""

    def constraints(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """These as arguments of `decode`."""
        return {
            "pad_id": vocabulary.pad_id,
            "eos_id": vocabulary.eos_id if self.ends else None,
            "forced_first_id": self.forced_first_id,
            "forced_last_id": self.forced_last_id,
            "suppressed_ids": self.suppressed_ids,
        }

    def vocabulary(self, size: int) -> Vocabulary:
        """That of a model without a tokenizer."""
        pad_id, eos_id = 0 if self.pad_id is None else self.pad_id, 1 if self.eos_id is None else self.eos_id
        return Vocabulary(size, *(min(token, size - 1) for token in (pad_id, eos_id, 2)))


BLOCK = 128
"""Scores whose maximum is taken first: only blocks with the largest maxima are searched."""


def best_tokens(scores: Float[Array, "R V"], number: int) -> tuple[Float[Array, "R N"], Int[Array, "R N"]]:
    """(scores, ids) of the best, best first; of equal ones the smaller id comes first, as in `jax.lax.top_k`.

    A pass of maxima and a search in a few blocks takes a tenth of the time of `argmax` or `top_k` on a CPU.

    >>> best_tokens(jnp.array([[0.5, 3.0, 1.0, 2.0]]), 2)[1].tolist()
    [[1, 3]]
    """
    blocks = in_blocks(scores, fill=-jnp.inf)
    if number > blocks.shape[1]:
        return tuple(jax.lax.top_k(scores, number))
    # The best are in the blocks with the best maxima; ascending, so that of equal scores the smaller id is first.
    _, chosen = jax.lax.top_k(blocks.max(axis=-1), number)
    chosen = jnp.sort(chosen, axis=-1)
    inside = jnp.take_along_axis(blocks, chosen[:, :, None], axis=1).reshape(len(scores), -1)
    best, order = jax.lax.top_k(inside, number)
    return best, jnp.take_along_axis(chosen, order // BLOCK, axis=1) * BLOCK + order % BLOCK


def in_blocks(scores: Float[Array, "R V"], *, fill: float) -> Float[Array, "R C _"]:
    """The scores in blocks of `BLOCK`, the last one filled up.

    >>> in_blocks(jnp.ones((2, 300)), fill=0.0).shape
    (2, 3, 128)
    """
    rows, size = scores.shape
    padded = jnp.pad(scores, ((0, 0), (0, -size % BLOCK)), constant_values=fill)
    return padded.reshape(rows, -1, BLOCK)
