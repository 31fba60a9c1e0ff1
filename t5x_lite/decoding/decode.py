"""From a model and its inputs to ids, by any method, compiled once for each shape."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.decoding.methods import DecodingStart, GenerationConstraints, Method
from t5x_lite.errors import InputError
from t5x_lite.kernels.platform import free_memory

_MANY_TOKENS = 1 << 16  # below which their memory is not estimated


class Decoded(NamedTuple):
    """Generated texts."""

    ids: Int[Array, "B N L"]
    """The texts of each input, each closed by EOS, or by what ended it instead, and padded; of a search best first."""
    scores: Float[Array, "B N"]
    """Their log-probability under the model in nats: of a search divided by the length penalty, of sampling at
    temperature 1 and over all tokens. Minus infinity where there are fewer texts."""


def decode(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    *,
    method: Method,
    start_ids: Int[Array, "B"],
    max_length: int,
    inputs_valid: Bool[Array, "B M"] | None = None,
    eos_id: int | None,
    pad_id: int,
    key: Key[Array, ""] | None = None,
    rows: Int[Array, "B"] | None = None,
    forced_first_id: int | None = None,
    forced_last_id: int | None = None,
    suppressed_ids: tuple[int, ...] = (),
    stop_ids: tuple[int, ...] = (),
    room: int | None = None,
) -> Decoded:
    """Texts for each input, until all have ended or are `max_length` tokens long.

    A row does not depend on the others, nor on its padding.

    Args:
      module: a model with `start_decoding` and `decode_step`.
      inputs: what the encoder reads, or what a decoder continues.
      method: how tokens are chosen.
      start_ids: what the decoder reads first, in each row.
      max_length: tokens to write at most, EOS included.
      inputs_valid: false where the inputs are padding; None means nowhere.
      eos_id: ends a text; None: only the maximum length does.
      pad_id: fills the row after the end.
      key: for sampling. The numbers of a row depend on it, on the row's number and on the token's index alone.
      rows: the numbers of the rows; None means 0, 1, ...
      forced_first_id, forced_last_id: the first id of each text, and the last of one that reaches `max_length`, with
        probability one.
      suppressed_ids: what is never written.
      stop_ids: what ends a text besides `eos_id`, and stands at its end then.
      room: L, by default `max_length`. A program is compiled for each of it, and serves every `max_length` up to it;
        padding follows that.

    Raises:
      InputError: a maximum length below 1, a beam wider than the vocabulary, more rows than the model has positions,
        keys and values that do not fit into memory.
    """
    forced = {"forced_first_id": forced_first_id, "forced_last_id": forced_last_id}
    constraints = GenerationConstraints(
        max_length, eos_id, pad_id, **forced, suppressed_ids=suppressed_ids, stop_ids=stop_ids
    )
    method.check(module.config.vocab_size)
    if max_length * method.num_sequences * len(inputs) > _MANY_TOKENS:
        _check_memory(module, params, inputs, method.num_sequences, max_length)
    constraints = replace(constraints, max_length=max(room or 0, max_length))
    rows = jnp.arange(len(inputs)) if rows is None else rows
    arrays = params, inputs, inputs_valid, start_ids, key, rows, np.int32(max_length)
    return Decoded(*_decode(module, method, constraints, *arrays))


def _check_memory(module: nn.Module, params: Any, inputs: Any, num_sequences: int, max_length: int) -> None:
    """Raises `InputError` where the keys and values of all tokens to be written exceed the memory that is free."""

    def cache_bytes(length: int) -> int:
        start = partial(module.apply, inputs=inputs, max_length=length, method="start_decoding")
        leaves = jax.eval_shape(lambda params: jax.tree.leaves(start({"params": params})), params)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    # The loop's result is another copy of what it began with.
    needed, free = 2 * (cache_bytes(2) - cache_bytes(1)) * num_sequences * max_length, free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"max_length={max_length:,} tokens of {len(inputs)} texts, {num_sequences} for each, need about "
            f"{needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free; choose a smaller max_length, or fewer at once"
        )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _decode(
    module: nn.Module,
    method: Method,
    constraints: GenerationConstraints,
    params: Any,
    inputs: Int[Array, "B M"],
    inputs_valid: Bool[Array, "B M"] | None,
    start_ids: Int[Array, "B"],
    key: Key[Array, ""] | None,
    rows: Int[Array, "B"],
    max_length: Int[Array, ""],
) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
    apply = partial(module.apply, {"params": params})
    cache = apply(inputs, inputs_valid=inputs_valid, max_length=constraints.max_length, method="start_decoding")
    step = partial(apply, method="decode_step")
    return method.write(DecodingStart(step, cache, start_ids, constraints, key, rows, max_length))
