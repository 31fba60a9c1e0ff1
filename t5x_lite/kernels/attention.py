"""Which attention a platform computes: flash on a TPU, cuDNN's on a GPU where it can, the dense one elsewhere."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.kernels.masks import AttentionInputs
from t5x_lite.kernels.platform import platform

FLASH_FROM = 64
"""A TPU takes flash attention in rows of this length, or where as many queries and keys meet.

By the compiler's cycles it gains in the decoder of T5 11B, 114 queries and 114 or 512 keys, though much of a tile is
padding: dense attention stores its logits, and copies keys and values into another layout."""


def attention_for(length: int, memory_length: int) -> Callable[[AttentionInputs], Array]:
    """The attention of the platform for so many queries and keys."""
    # A few queries would be a small part of a tile.
    if platform() == "tpu" and length * memory_length >= FLASH_FROM**2 and 4 * length >= FLASH_FROM:
        from t5x_lite.kernels.flash_attention import flash_attention  # Pallas is not loaded where there is no TPU

        return flash_attention
    return gpu_attention if platform() == "gpu" else dense_attention


def gpu_attention(inputs: AttentionInputs) -> Float[Array, "B L H K"]:
    """Attention by cuDNN (9 or later), which stores no logits, where it can; `dense_attention` elsewhere.

    cuDNN takes bfloat16, a `head_dim` that is a multiple of 8 and at most 128, and no dropout, on Ampere or later. Bias
    and masks go in as one bfloat16 array over all pairs, and need even numbers of queries and keys for their gradient;
    a causal mask alone needs no array.
    """
    query, key, value, bias, mask = inputs.query, inputs.key, inputs.value, inputs.bias, inputs.mask
    lengths, head_dim, first_query = inputs.lengths, query.shape[-1], (inputs.offsets or (0, 0, 0))[2]
    only_causal = mask.causal and not mask.prefix and not jax.tree.leaves(mask) and isinstance(first_query, int)
    seen = None if only_causal else mask.dense(*lengths, first_query)
    odd = (bias is not None or seen is not None) and any(length % 2 for length in lengths)
    types = {x.dtype for x in (query, key, value)}
    if inputs.drops or odd or types != {jnp.dtype(jnp.bfloat16)} or head_dim % 8 or head_dim > 128 or not _has_ampere():
        return dense_attention(inputs)
    if seen is not None:  # cuDNN broadcasts rows and heads, but no queries
        seen = jnp.broadcast_to(seen, (*seen.shape[:2], *lengths))
    of_pairs = None if bias is None else bias.dense(*lengths).astype(query.dtype)
    return jax.nn.dot_product_attention(
        query, key, value, of_pairs, seen, scale=inputs.scale, is_causal=only_causal, implementation="cudnn"
    )


def _has_ampere() -> bool:
    """Whether the GPUs here have cuDNN's attention (compute capability 8); true where there is none."""
    capability = getattr(jax.local_devices()[0], "compute_capability", "8.0")
    return capability[0].isdigit() and float(capability) >= 8.0  # AMD's begin with gfx
