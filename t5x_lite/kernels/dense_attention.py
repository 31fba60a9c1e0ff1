"""Attention in plain operations, with a backward pass that computes the weights again instead of keeping them."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.cpu import sum_rows
from t5x_lite.kernels.masks import HEAD, MASKED_LOGIT, QUERY, ROW, SEED, AttentionInputs, DistanceBias, Mask, keeps

VISIBLE = "visible_pairs"
"""Begins the name in a program of products over pairs, all of which or, under a causal mask, half are of use."""
AGAIN = "computed_again"
"""The name in a program of what the backward pass does a second time; it counts for no model's operations."""


def dense_attention(inputs: AttentionInputs) -> Float[Array, "B L H K"]:
    """Attention over all pairs at once.

    The heads come first all through, so that XLA's CPU backend has plain matrices to multiply, and the gradient of the
    bias is added up at once over the rows and the diagonals.
    """
    heads_first = {name: getattr(inputs, name).swapaxes(1, 2) for name in ("query", "key", "value")}
    rate, scalars = inputs.dropout_rate if inputs.drops else 0.0, inputs.scalars()
    inputs = replace(inputs, **heads_first, dropout_key=None, dropout_rate=rate, offsets=None)
    with visible_scope(inputs.mask, *inputs.query.shape[2:3], *inputs.key.shape[2:3]):
        return _attend(inputs, scalars).swapaxes(1, 2)


def visible_scope(mask: Mask, length: int, memory_length: int) -> Any:
    """A name for products over all pairs, that says how many of them a model makes use of."""
    return jax.named_scope(f"{VISIBLE}_{mask.visible_pairs(length, memory_length)}_of_{length * memory_length}")


def attention_weights(inputs: AttentionInputs) -> Float[Array, "B H L M"]:
    """softmax(scale * query key^T + bias): how much each query takes of each value, without dropout."""
    heads_first = {name: getattr(inputs, name).swapaxes(1, 2) for name in ("query", "key")}
    return jax.nn.softmax(_logits(replace(inputs, **heads_first), inputs.scalars())[0], axis=-1)


@jax.custom_vjp
def _attend(inputs: AttentionInputs, scalars: Int[Array, "5"]) -> Float[Array, "B H L K"]:
    return _attend_forward(inputs, scalars)[0]


def _attend_forward(inputs: AttentionInputs, scalars: Int[Array, "5"]) -> Any:
    logits, _ = _logits(inputs, scalars)
    highest = logits.max(axis=-1, keepdims=True)
    weights = jnp.exp(logits - highest)
    total = weights.sum(axis=-1, keepdims=True)
    weights = _drop(inputs, scalars, weights).astype(inputs.value.dtype)
    out = jnp.einsum("BHLM,BHMK->BHLK", weights, inputs.value, preferred_element_type=jnp.float32) / total
    out = out.astype(inputs.value.dtype)
    return out, (inputs, scalars, out, highest, jnp.log(total))


def _attend_backward(saved: Any, out_gradient: Float[Array, "B H L K"]) -> tuple[AttentionInputs, None]:
    inputs, scalars, out, highest, log_total = saved
    query, key, value, scale = inputs.query, inputs.key, inputs.value, inputs.scale
    # The term that all weights of a query share in the gradients of their logits.
    shared = (out.astype(jnp.float32) * out_gradient.astype(jnp.float32)).sum(axis=-1, keepdims=True)
    with jax.named_scope(AGAIN):
        logits, seen = _logits(inputs, scalars)
    # Not divided by the total: XLA would pass over the exponentials once more for each that uses the weights.
    weights = jnp.exp(logits - highest - log_total)
    of_weights = jnp.einsum("BHLK,BHMK->BHLM", out_gradient, value, preferred_element_type=jnp.float32)
    of_logits = weights * (_drop(inputs, scalars, of_weights) - shared)
    if seen is not None:
        of_logits = jnp.where(seen, of_logits, 0.0)  # not so of itself for a query that sees no key
    of_bias = None
    if inputs.bias is not None:
        (of_bias,) = jax.linear_transpose(lambda bias: _of_pairs(inputs, bias), inputs.bias)(sum_rows(of_logits))
    rounded = of_logits.astype(query.dtype)
    weights = _drop(inputs, scalars, weights).astype(value.dtype)

    def transposed_product(weights: Array, x: Array) -> Float[Array, "B H M K"]:
        """weights^T x; XLA's CPU backend computes its transpose three times as fast, if that stays by itself."""
        return jax.lax.optimization_barrier(jnp.einsum("BHLK,BHLM->BHKM", x, weights)).swapaxes(2, 3)

    gradients = {
        "query": (scale * jnp.einsum("BHLM,BHMK->BHLK", rounded, key)).astype(query.dtype),
        "key": (scale * transposed_product(rounded, query)).astype(key.dtype),
        "value": transposed_product(weights, out_gradient),
    }
    return replace(inputs, **gradients, bias=of_bias, mask=None), None


_attend.defvjp(_attend_forward, _attend_backward)


def _of_pairs(inputs: AttentionInputs, bias: DistanceBias) -> Float[Array, "H L M"]:
    return bias.dense(inputs.query.shape[2], inputs.key.shape[2])[0]


def _logits(
    inputs: AttentionInputs, scalars: Int[Array, "5"]
) -> tuple[Float[Array, "B H L M"], Bool[Array, "_ _ _ _"] | None]:
    """(the logits, the pairs that are not masked)."""
    logits = jnp.einsum("BHLK,BHMK->BHLM", inputs.query, inputs.key, preferred_element_type=jnp.float32) * inputs.scale
    if inputs.bias is not None:
        logits += _of_pairs(inputs, inputs.bias)[None]
    seen = inputs.mask.dense(*logits.shape[2:], scalars[QUERY])
    if inputs.blocks is not None:
        of_blocks = inputs.blocks.dense(logits.shape[2])[None]
        seen = of_blocks if seen is None else seen & of_blocks
    return logits if seen is None else jnp.where(seen, logits, MASKED_LOGIT), seen


def _drop(inputs: AttentionInputs, scalars: Int[Array, "5"], weights: Float[Array, "B H L M"]) -> Array:
    """What dropout leaves of the weights, or of their gradients."""
    rate = inputs.dropout_rate
    if not rate:
        return weights
    positions = zip(jnp.ogrid[tuple(map(slice, weights.shape))], (ROW, HEAD, QUERY, None), strict=True)
    positions = [x if offset is None else x + scalars[offset] for x, offset in positions]
    kept = keeps((scalars[SEED], scalars[SEED + 1]), *positions, rate)
    return jnp.where(kept, weights / (1.0 - rate), 0.0)
