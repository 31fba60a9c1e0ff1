"""Texts that are written without looking back: greedily, or by chance."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.decoding.logits import GenerationConstraints, best_tokens, sample_tokens
from t5x_lite.decoding.methods import Greedy, Sampling

Step = Callable[..., tuple[Float[Array, "R 1 V"], Any]]
"""`decode_step` of a model: (tokens, cache, index) to (logits, cache), a cache with `repeat` and `take`."""


def write(
    step: Step,
    cache: Any,
    start_ids: Int[Array, "B"],
    method: Greedy | Sampling,
    limits: GenerationConstraints,
    key: Key[Array, ""] | None,
    rows: Int[Array, "B"],
) -> tuple[Int[Array, "B N L"], Float[Array, "B N"]]:
    """(ids, scores): see `decode`."""
    batch_size, number = len(start_ids), method.num_results
    cache = cache.repeat(number)
    keys = None if key is None else _keys(key, rows, number)

    def choose(logits: Float[Array, "R V"], index: Int[Array, ""]) -> Int[Array, "R"]:
        if isinstance(method, Greedy):
            return best_tokens(logits, 1)[1][:, 0]
        uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, index)))(keys)
        return sample_tokens(method, logits, uniform)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        index, _, _, _, ended, _ = carry
        return (index < limits.max_length) & ~ended.all()

    def next_token(carry: tuple) -> tuple:
        index, last, ids, scores, ended, cache = carry
        logits, cache = step(last[:, None], cache, index)
        logits, log_z = limits.apply(logits[:, 0], index)
        chosen = choose(logits, index).astype(jnp.int32)
        log_probability = (jnp.take_along_axis(logits, chosen[:, None], axis=1) - log_z)[:, 0]
        scores += jnp.where(ended, 0.0, log_probability)
        token = jnp.where(ended, limits.pad_id, chosen)
        ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], index, axis=1)
        return index + 1, token, ids, scores, ended | limits.ends(chosen), cache

    sequences = batch_size * number
    start = (
        jnp.int32(0),
        jnp.repeat(start_ids.astype(jnp.int32), number),
        jnp.full((sequences, limits.max_length), limits.pad_id, jnp.int32),
        jnp.zeros(sequences),
        jnp.zeros(sequences, bool),
        cache,
    )
    _, _, ids, scores, _, _ = jax.lax.while_loop(unfinished, next_token, start)
    return ids.reshape(batch_size, number, -1), scores.reshape(batch_size, number)


def _keys(key: Key[Array, ""], rows: Int[Array, "B"], number: int) -> Key[Array, "R"]:
    """A key for each text of each row."""
    of_rows = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
    texts = jnp.arange(number)
    return jax.vmap(lambda key: jax.vmap(lambda text: jax.random.fold_in(key, text))(texts))(of_rows).reshape(-1)
