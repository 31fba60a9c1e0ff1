"""Greedy decoding with a key-value cache."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Int


@partial(jax.jit, static_argnames=("module", "max_length", "start_id", "eos_id", "pad_id"))
def greedy_decode(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    *,
    max_length: int,
    inputs_valid: Bool[Array, "B M"] | None = None,
    start_id: int = 0,
    eos_id: int = 1,
    pad_id: int = 0,
) -> Int[Array, "B L"]:
    """The most likely next token again and again, until every row has ended or `max_length` tokens are there.

    Args:
      module: an encoder-decoder with `encode`, `start_cache` and `decode_step`.
      inputs: ids of the encoder's side; `inputs_valid` is false where they are padding.
      max_length: tokens to generate at most, EOS included.
      start_id: what the decoder sees first.

    Returns:
      The generated ids, EOS included, padding behind it.
    """
    apply = partial(module.apply, {"params": params})
    encoded = apply(inputs, inputs_valid=inputs_valid, method="encode")
    batch_size = inputs.shape[0]

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        index, _, _, ended, _ = carry
        return (index < max_length) & ~ended.all()

    def next_token(carry: tuple) -> tuple:
        index, last, ids, ended, cache = carry
        logits, cache = apply(last[:, None], cache, index, inputs_valid=inputs_valid, method="decode_step")
        token = jnp.where(ended, pad_id, logits[:, 0].argmax(axis=-1)).astype(ids.dtype)
        ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], index, axis=1)
        return index + 1, token, ids, ended | (token == eos_id), cache

    start = (
        jnp.int32(0),
        jnp.full(batch_size, start_id, jnp.int32),
        jnp.full((batch_size, max_length), pad_id, jnp.int32),
        jnp.zeros(batch_size, bool),
        apply(encoded, max_length, method="start_cache"),
    )
    return jax.lax.while_loop(unfinished, next_token, start)[2]
