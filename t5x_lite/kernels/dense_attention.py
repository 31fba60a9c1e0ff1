"""Attention in plain operations, with a backward pass of its own.

The weights are not kept for it but computed again, and on a CPU so many at a time as stay in its cache: all that is
done with them would else wait for the memory.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.cpu import sum_rows
from t5x_lite.kernels.masks import (
    HEAD,
    MASKED_LOGIT,
    QUERY,
    ROW,
    SEED,
    dense_bias,
    dense_mask,
    keeps,
    seed_and_offsets,
)
from t5x_lite.kernels.platform import platform

CACHE_BYTES = 2 << 20
"""Of weights that a CPU works on at a time."""

AGAIN = "computed_again"
"""The name in a program of what the backward pass does a second time; it counts for no model's operations."""


@dataclass(frozen=True)
class _Kind:
    scale: float
    causal: bool
    prefix: int
    dropout_rate: float
    rows: int
    """Rows of the batch that are done at a time, of which there is one if not all heads are."""
    heads: int


Arrays = dict[str, Array]


def dense_attention(
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    *,
    scale: float,
    bias: Float[Array, "H T"] | None = None,
    valid: Bool[Array, "B M"] | None = None,
    query_segments: Int[Array, "B L"] | None = None,
    key_segments: Int[Array, "B M"] | None = None,
    causal: bool = False,
    prefix: int = 0,
    dropout_rate: float = 0.0,
    dropout_key: Key[Array, ""] | None = None,
    offsets: tuple[Any, Any, Any] = (0, 0, 0),
) -> Float[Array, "B L H K"]:
    """softmax(scale * query key^T + bias) value, the softmax in float32; arguments are those of `flash_attention`.

    A query that may look nowhere attends to all keys alike. The heads come first all through, so that XLA's CPU backend
    has plain matrices to multiply, and the gradient of the bias is added up at once over the rows and the diagonals.
    """
    dropping = dropout_key is not None and dropout_rate > 0.0
    rows, heads = _at_a_time(query.shape[0], query.shape[2], query.shape[1] * key.shape[1])
    kind = _Kind(scale, causal, prefix, dropout_rate if dropping else 0.0, rows, heads)
    arrays = {
        "query": query.swapaxes(1, 2),
        "key": key.swapaxes(1, 2),
        "value": value.swapaxes(1, 2),
        "bias": bias,
        "valid": valid,
        "query_segments": query_segments,
        "key_segments": key_segments,
        "scalars": seed_and_offsets(dropout_key if dropping else None, offsets),
    }
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return _attend(kind, arrays).swapaxes(1, 2)


def _at_a_time(batch_size: int, num_heads: int, pairs: int) -> tuple[int, int]:
    """How many rows and heads: all but on a CPU, and there too if they would be no more than two parts.

    What a part begins with and ends in is copied, which takes longer than waiting for that little memory.
    """
    if platform() != "cpu" or 4 * pairs * num_heads * batch_size <= 2 * CACHE_BYTES:
        return batch_size, num_heads
    most = max(CACHE_BYTES // (4 * pairs), 1)
    if most < num_heads:
        return 1, _largest_divisor(num_heads, most)
    return _largest_divisor(batch_size, most // num_heads), num_heads


def _largest_divisor(number: int, most: int) -> int:
    return max(divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(kind: _Kind, arrays: Arrays) -> Float[Array, "B H L K"]:
    return _attend_forward(kind, arrays)[0]


def _attend_forward(kind: _Kind, arrays: Arrays) -> Any:
    bias = _dense_bias(kind, arrays)

    def attend(_: None, index: Array, query: Array, key: Array, value: Array) -> tuple[None, tuple[Array, ...]]:
        logits, _ = _logits(kind, arrays, bias, index, query, key)
        highest = logits.max(axis=-1, keepdims=True)
        weights = jnp.exp(logits - highest)
        total = weights.sum(axis=-1, keepdims=True)
        weights = _kept(kind, arrays, index, weights).astype(value.dtype)
        out = jnp.einsum("...LM,...MK->...LK", weights, value, preferred_element_type=jnp.float32) / total
        return None, (out.astype(value.dtype), highest, jnp.log(total))

    _, (out, highest, log_total) = _by_parts(kind, attend, None, *(arrays[name] for name in ("query", "key", "value")))
    return out, (arrays, out, highest, log_total)


def _attend_backward(kind: _Kind, saved: Any, out_gradient: Float[Array, "B H L K"]) -> tuple[dict[str, Array | None]]:
    arrays, out, highest, log_total = saved
    bias = _dense_bias(kind, arrays)
    # What every weight of a row has in common in the gradient of its logit.
    shared = (out.astype(jnp.float32) * out_gradient.astype(jnp.float32)).sum(axis=-1, keepdims=True)

    def differentiate(of_bias: Array | None, index: Array, *parts: Array) -> tuple[Array | None, tuple[Array, ...]]:
        query, key, value, highest, log_total, out_gradient, shared = parts
        with jax.named_scope(AGAIN):
            logits, seen = _logits(kind, arrays, bias, index, query, key)
        # Not divided by the total: XLA would pass over the exponentials once more for each that uses the weights.
        weights = jnp.exp(logits - highest - log_total)
        of_weights = jnp.einsum("...LK,...MK->...LM", out_gradient, value, preferred_element_type=jnp.float32)
        of_logits = weights * (_kept(kind, arrays, index, of_weights) - shared)
        if seen is not None:
            of_logits = jnp.where(seen, of_logits, 0.0)  # not so of itself for a query that may look nowhere
        if of_bias is not None:
            of_bias = of_bias.at[_heads(kind, arrays, index)].add(sum_rows(of_logits))
        weights = _kept(kind, arrays, index, weights).astype(value.dtype)
        rounded = of_logits.astype(query.dtype)
        return of_bias, (
            (kind.scale * jnp.einsum("...LM,...MK->...LK", rounded, key)).astype(query.dtype),
            (kind.scale * _turned_columns_of(rounded, query)).astype(key.dtype),
            _turned_columns_of(weights, out_gradient),
        )

    parts = (arrays["query"], arrays["key"], arrays["value"], highest, log_total, out_gradient, shared)
    start = None if bias is None else jnp.zeros(bias.shape, jnp.float32)
    of_bias, (of_query, of_key, of_value) = _by_parts(kind, differentiate, start, *parts)
    found = {"query": of_query, "key": of_key.swapaxes(2, 3), "value": of_value.swapaxes(2, 3)}
    if of_bias is not None:
        (found["bias"],) = jax.linear_transpose(lambda values: _lay_out(kind, arrays, values), arrays["bias"])(of_bias)
    return ({name: found.get(name) for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward)


def _turned_columns_of(weights: Float[Array, "_ _ L M"], x: Float[Array, "_ _ L K"]) -> Float[Array, "_ _ K M"]:
    """(weights^T x)^T, which XLA's CPU backend computes three times as fast as weights^T x, if it stands for itself."""
    return jax.lax.optimization_barrier(jnp.einsum("...LK,...LM->...KM", x, weights))


def _by_parts(kind: _Kind, step: Callable, carry: Any, *arrays: Float[Array, "B H _ _"]) -> tuple[Any, Any]:
    """(the last carry, the results [B H ..]) of `step(carry, index, *parts)` for parts [rows heads ..], one after
    another."""
    batch_size, num_heads = arrays[0].shape[:2]
    parts = batch_size // kind.rows * num_heads // kind.heads
    if parts == 1:
        return step(carry, jnp.int32(0), *arrays)

    def step_of_part(carry: Any, part: tuple[Array, ...]) -> tuple[Any, Any]:
        index, *cut = part
        carry, results = step(carry, index, *(x.reshape(kind.rows, kind.heads, *x.shape[1:]) for x in cut))
        return carry, jax.tree.map(lambda x: jax.lax.collapse(x, 0, 2), results)

    # Rows and heads are one dimension here: XLA's CPU backend lays out anew what has one of size 1.
    cut = [array.reshape(parts, -1, *array.shape[2:]) for array in arrays]
    carry, results = jax.lax.scan(step_of_part, carry, (jnp.arange(parts), *cut))
    return carry, jax.tree.map(lambda x: x.reshape(batch_size, num_heads, *x.shape[2:]), results)


def _heads(kind: _Kind, arrays: Arrays, index: Int[Array, ""]) -> Array:
    """Which group of heads a part has."""
    return index % (arrays["query"].shape[1] // kind.heads)


def _first_row(kind: _Kind, arrays: Arrays, index: Int[Array, ""]) -> Array:
    return index // (arrays["query"].shape[1] // kind.heads) * kind.rows


def _dense_bias(kind: _Kind, arrays: Arrays) -> Float[Array, "G _ L M"] | None:
    return _lay_out(kind, arrays, arrays["bias"]) if "bias" in arrays else None


def _lay_out(kind: _Kind, arrays: Arrays, bias: Float[Array, "H T"]) -> Float[Array, "G _ L M"]:
    """The bias of all pairs, by groups of heads."""
    shape = (arrays["query"].shape[2], arrays["key"].shape[2])
    return dense_bias(bias, *shape).reshape(-1, kind.heads, *shape)


def _logits(
    kind: _Kind, arrays: Arrays, bias: Array | None, index: Int[Array, ""], query: Array, key: Array
) -> tuple[Float[Array, "_ _ L M"], Bool[Array, "_ 1 _ _"] | None]:
    """(the logits of a part, which pairs may be looked at)."""
    logits = jnp.einsum("...LK,...MK->...LM", query, key, preferred_element_type=jnp.float32) * kind.scale
    if bias is not None:
        logits += bias[_heads(kind, arrays, index)][None]
    first_row = _first_row(kind, arrays, index)
    masks = {
        name: jax.lax.dynamic_slice_in_dim(arrays[name], first_row, kind.rows)
        for name in ("valid", "query_segments", "key_segments")
        if name in arrays
    }
    causality = {"causal": kind.causal, "prefix": kind.prefix, "first_query": arrays["scalars"][QUERY]}
    seen = dense_mask(query.shape[2], key.shape[2], **masks, **causality)
    return logits if seen is None else jnp.where(seen, logits, MASKED_LOGIT), seen


def _kept(kind: _Kind, arrays: Arrays, index: Int[Array, ""], weights: Float[Array, "_ _ L M"]) -> Array:
    """What dropout leaves of the weights of a part, or of their gradients."""
    if not kind.dropout_rate:
        return weights
    scalars, (rows, heads, queries, keys) = arrays["scalars"], jnp.ogrid[tuple(map(slice, weights.shape))]
    rows += scalars[ROW] + _first_row(kind, arrays, index)
    heads += scalars[HEAD] + _heads(kind, arrays, index) * kind.heads
    positions = (rows, heads, scalars[QUERY] + queries, keys)
    kept = keeps((scalars[SEED], scalars[SEED + 1]), *positions, kind.dropout_rate)
    return jnp.where(kept, weights / (1.0 - kind.dropout_rate), 0.0)
