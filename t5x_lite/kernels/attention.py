"""Which attention a platform computes: flash on a TPU, cuDNN's on a GPU where it can, the dense one elsewhere."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.kernels.masks import dense_bias, dense_mask
from t5x_lite.kernels.platform import platform

FLASH_FROM = 256
"""A TPU takes flash attention in rows of this length, or where as many queries and keys meet.

By plan, T5 large on four v5p chips takes 38.6 ms at least with dense attention and 34.0 with flash in rows of 256, 36.6
against 38.5 in rows of 128 (16,384 tokens a step, remat full)."""


def attention_for(length: int, memory_length: int) -> Callable[..., Array]:
    """The attention of the platform for so many queries and keys, a function like `dense_attention`."""
    # A few queries would be a small part of a tile.
    if platform() == "tpu" and length * memory_length >= FLASH_FROM**2 and 4 * length >= FLASH_FROM:
        from t5x_lite.kernels.flash_attention import flash_attention  # Pallas is not loaded where there is no TPU

        return flash_attention
    return gpu_attention if platform() == "gpu" else dense_attention


def gpu_attention(
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
    """Attention by cuDNN (9 or later), which stores no logits; elsewhere `dense_attention`, whose arguments it takes.

    cuDNN takes bfloat16, a `head_dim` that is a multiple of 8 and at most 128, and no dropout, on Ampere or later. Bias
    and masks go in as one bfloat16 array over all pairs, and need even numbers of queries and keys for their gradient;
    a causal mask alone needs no array.
    """
    (length, memory_length), head_dim, first_query = (query.shape[1], key.shape[1]), query.shape[-1], offsets[2]
    masks = {"valid": valid, "query_segments": query_segments, "key_segments": key_segments}
    only_causal = causal and not prefix and valid is None and query_segments is None and isinstance(first_query, int)
    causality = {"causal": causal, "prefix": prefix}
    mask = None if only_causal else dense_mask(length, memory_length, **masks, **causality, first_query=first_query)
    odd = (bias is not None or mask is not None) and (length % 2 or memory_length % 2)
    types = {x.dtype for x in (query, key, value)}
    dropping = dropout_key is not None and dropout_rate > 0.0
    if dropping or odd or types != {jnp.dtype(jnp.bfloat16)} or head_dim % 8 or head_dim > 128 or not _has_ampere():
        dropout = {"dropout_rate": dropout_rate, "dropout_key": dropout_key}
        common = {"scale": scale, "bias": bias, "offsets": offsets}
        return dense_attention(query, key, value, **common, **masks, **causality, **dropout)
    if mask is not None:  # cuDNN broadcasts rows and heads, but no queries
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], length, memory_length))
    if bias is not None:
        bias = dense_bias(bias, length, memory_length).astype(query.dtype)
    return jax.nn.dot_product_attention(
        query, key, value, bias, mask, scale=scale, is_causal=only_causal, implementation="cudnn"
    )


def _has_ampere() -> bool:
    """Whether the GPUs here have cuDNN's attention (compute capability 8); taken for granted where there is none."""
    capability = getattr(jax.local_devices()[0], "compute_capability", "8.0")
    return capability[0].isdigit() and float(capability) >= 8.0  # AMD's begin with gfx
