"""Attention of a recurrent decoder over the encoder's outputs (Bahdanau et al. 2015; Luong et al. 2015).

Dimension letters as elsewhere, and: P sequences an input, A units of an alignment, E of the encoder's outputs.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import MASKED_LOGIT

Score = Literal["additive", "dot", "general", "concat"]
"""v tanh(W query + U key), q k, q W k, and Luong's name for the first."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """The encoder's outputs as a decoder reads them at each step."""

    keys: Any
    """[B M A]."""
    values: Any
    """[B M E]."""
    valid: Any
    """[B M], false at padding."""
    vector: Any = None
    """[A], v of the additive score."""


def align(
    memory: Memory,
    query: Float[Array, "R A"],
    *,
    center: Float[Array, "R"] | None = None,
    window: int = 0,
) -> tuple[Float[Array, "R E"], Float[Array, "R M"]]:
    """(contexts, weights): the softmax of the scores of keys, and the mean of the values that it gives.

    Args:
      memory: of B inputs; R is a multiple of B, the sequences of an input side by side.
      query: what the score has of the decoder's state.
      center: positions from 0, around which alone tokens are seen: local attention (Luong et al. 2015, section 3.2,
        equation 10). None: all are.
      window: D, the tokens seen on either side of a center; the weights fall off as a normal distribution of deviation
        D / 2 does.
    """
    query = query.reshape(len(memory.keys), -1, query.shape[-1])
    if memory.vector is None:
        logits = jnp.einsum("BPA,BMA->BPM", query, memory.keys, preferred_element_type=jnp.float32)
    else:
        sums = jnp.tanh(query[:, :, None] + memory.keys[:, None])
        logits = jnp.einsum("BPMA,A->BPM", sums, memory.vector, preferred_element_type=jnp.float32)
    seen = memory.valid[:, None]
    if center is not None:
        distance = jnp.arange(memory.valid.shape[1])[None, None] - center.reshape(*logits.shape[:2], 1)
        seen &= jnp.abs(distance) <= window
    weights = jax.nn.softmax(jnp.where(seen, logits, MASKED_LOGIT), axis=-1)
    if center is not None:
        weights *= jnp.exp(-2.0 * (distance / window) ** 2) * seen
    context = jnp.einsum("BPM,BME->BPE", weights.astype(memory.values.dtype), memory.values)
    return jax.lax.collapse(context, 0, 2), jax.lax.collapse(weights, 0, 2)


def reverse_valid(x: Float[Array, "B L *_"] | Int[Array, "B L"], valid: Bool[Array, "B L"]) -> Array:
    """Each row's tokens from the last to the first, where they are; padding, which is at the end, stays.

    >>> reverse_valid(jnp.array([[7, 8, 9, 0]]), jnp.array([[True, True, True, False]])).tolist()
    [[9, 8, 7, 0]]
    """
    positions = jnp.arange(valid.shape[1])[None]
    order = jnp.where(valid, valid.sum(axis=1, keepdims=True) - 1 - positions, positions)
    return jnp.take_along_axis(x, order.reshape(*order.shape, *(1,) * (x.ndim - 2)), axis=1)
