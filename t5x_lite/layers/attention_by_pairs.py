"""Attention that holds its weights for all pairs of a query and a key: for rows that are not long."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.hashed_dropout import HEAD, QUERY, ROW, SEED, keeps, seed_and_offsets
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.positions import DistanceBias

HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)
"""The logit of a pair that may not be looked at; finite, so that a query that may look nowhere attends to all alike."""


@dataclass(frozen=True)
class _Kind:
    scale: float
    causal: bool
    prefix: int
    dropout_rate: float


Arrays = dict[str, Array]


def attend_by_pairs(
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

    With a backward pass of its own: it needs the weights and no logits, and adds up the bias's gradient at once. The
    heads come first all through, so that XLA's CPU backend has plain matrices to multiply.
    """
    dropping = dropout_key is not None and dropout_rate > 0.0
    kind = _Kind(scale, causal, prefix, dropout_rate if dropping else 0.0)
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(kind: _Kind, arrays: Arrays) -> Float[Array, "B H L K"]:
    return _attend_forward(kind, arrays)[0]


def _attend_forward(kind: _Kind, arrays: Arrays) -> Any:
    weights = jax.nn.softmax(_logits(kind, arrays), axis=-1).astype(arrays["value"].dtype)
    out = jnp.einsum("BHLM,BHMK->BHLK", _kept(kind, arrays, weights), arrays["value"])
    return out, (arrays, weights, out)


def _attend_backward(kind: _Kind, saved: Any, out_gradient: Float[Array, "B H L K"]) -> tuple[dict[str, Array | None]]:
    arrays, weights, out = saved
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    of_weights = jnp.einsum("BHLK,BHMK->BHLM", out_gradient, value, preferred_element_type=jnp.float32)
    # What every weight of a row has in common in the gradient of its logit.
    shared = (out.astype(jnp.float32) * out_gradient.astype(jnp.float32)).sum(axis=-1, keepdims=True)
    of_logits = weights.astype(jnp.float32) * (_kept(kind, arrays, of_weights) - shared)
    if (seen := _seen(kind, arrays)) is not None:
        of_logits = jnp.where(seen, of_logits, 0.0)  # not so of itself for a query that may look nowhere
    rounded = of_logits.astype(query.dtype)
    found = {
        "query": (kind.scale * jnp.einsum("BHLM,BHMK->BHLK", rounded, key)).astype(query.dtype),
        "key": (kind.scale * jnp.einsum("BHLM,BHLK->BHMK", rounded, query)).astype(key.dtype),
        "value": jnp.einsum("BHLM,BHLK->BHMK", _kept(kind, arrays, weights), out_gradient),
    }
    if "bias" in arrays:
        length, memory_length = query.shape[2], key.shape[2]
        lay_out = jax.linear_transpose(lambda bias: DistanceBias(bias).dense(length, memory_length), arrays["bias"])
        (found["bias"],) = lay_out(of_logits.sum(axis=0, keepdims=True))
    return ({name: found.get(name) for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward)


def _logits(kind: _Kind, arrays: Arrays) -> Float[Array, "B H L M"]:
    query, key = arrays["query"], arrays["key"]
    logits = jnp.einsum("BHLK,BHMK->BHLM", query, key, preferred_element_type=jnp.float32) * kind.scale
    if "bias" in arrays:
        logits += DistanceBias(arrays["bias"]).dense(query.shape[2], key.shape[2])
    seen = _seen(kind, arrays)
    return logits if seen is None else jnp.where(seen, logits, HIDDEN)


def _seen(kind: _Kind, arrays: Arrays) -> Bool[Array, "_ 1 _ _"] | None:
    masks = (arrays.get(name) for name in ("valid", "query_segments", "key_segments"))
    length, memory_length = arrays["query"].shape[2], arrays["key"].shape[2]
    return Mask(*masks, kind.causal, kind.prefix).dense(length, memory_length, first_query=arrays["scalars"][QUERY])


def _kept(kind: _Kind, arrays: Arrays, weights: Float[Array, "B H L M"]) -> Float[Array, "B H L M"]:
    """What dropout leaves of the weights, or of their gradients."""
    if not kind.dropout_rate:
        return weights
    scalars = arrays["scalars"]
    rows, heads, queries, keys = jnp.ogrid[tuple(map(slice, weights.shape))]
    places = (scalars[ROW] + rows, scalars[HEAD] + heads, scalars[QUERY] + queries, keys)
    kept = keeps((scalars[SEED], scalars[SEED + 1]), *places, kind.dropout_rate)
    return jnp.where(kept, weights / (1.0 - kind.dropout_rate), 0.0).astype(weights.dtype)
