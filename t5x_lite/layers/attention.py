"""Scaled and unscaled dot-product attention with masks, biases, dropout and a key-value cache.

Dimension letters: see `t5x_lite.layers.transformer`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Key

from t5x_lite.kernels.attention import attention_for
from t5x_lite.kernels.block_sparse import block_sparse_attention
from t5x_lite.kernels.dense_attention import attention_weights
from t5x_lite.kernels.masks import AttentionInputs, Blocks, DistanceBias, Mask
from t5x_lite.layers.decoding_cache import CachedKeyValue, KeyValue
from t5x_lite.layers.dense import Dense, LayerConfig, keep_mask
from t5x_lite.parallel.partitioning import constrain_sharding, on_each_device


def dot_product_attention(
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    *,
    bias: DistanceBias | None = None,
    mask: Mask | None = None,
    blocks: Blocks | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Key[Array, ""] | None = None,
    positions_share_dropout: bool = False,
) -> Float[Array, "B L H K"]:
    """softmax(scale * query key^T + bias) value, the softmax in float32 (Vaswani et al. 2017, section 3.2.1).

    Args:
      bias: added to the logits, such as T5's relative position bias.
      mask: the keys that a query sees. A query that sees none attends to all keys alike.
      blocks: of self-attention, the blocks of keys that a block of queries sees.
      scale: factor of the logits; None means K ** -0.5, T5 uses 1.
      dropout_rate: share of the attention weights set to zero when `dropout_key` is given.
      positions_share_dropout: all queries of a row and head drop the same keys; otherwise each its own.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if positions_share_dropout and dropout_key is not None and dropout_rate > 0.0:
        # A weight that no query uses is a value that none sees.
        batch_size, memory_length, num_heads, _ = value.shape
        axes = ("activation_batch", "activation_memory", "activation_heads", None)
        keep = keep_mask(dropout_key, dropout_rate, (batch_size, memory_length, num_heads, 1), axes)
        value = jnp.where(keep, value / (1.0 - dropout_rate), 0.0).astype(value.dtype)
        dropout_key = None
    options = {"dropout_key": dropout_key, "dropout_rate": dropout_rate}
    inputs = AttentionInputs(query, key, value, scale, bias, mask or Mask(), blocks, **options)
    return attend_on_mesh(block_sparse_attention if blocks is not None else attention_for(*inputs.lengths), inputs)


def attend_on_mesh(attend: Callable[[AttentionInputs], Array], inputs: AttentionInputs) -> Float[Array, "B L H K"]:
    """`attend` by each device for its rows, heads and, unless they attend by blocks, queries."""
    rows, heads = "activation_batch", "activation_heads"
    queries = "activation_length" if inputs.blocks is None else "activation_memory"
    memory = (rows, "activation_memory", heads, "activation_kv")
    axes = {
        ".query": (rows, queries, heads, "activation_kv"),
        ".key": memory,
        ".value": memory,
        ".bias.values": (heads, None),
        ".mask.valid": (rows, None),
        ".mask.query_segments": (rows, queries),
        ".mask.key_segments": (rows, None),
        ".blocks.random": (heads, None, None),
        ".dropout_key": (),
    }
    leaves, structure = jax.tree_util.tree_flatten_with_path(inputs)
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    length, memory_length = inputs.lengths

    def of_device(shards: dict[str, Array], before: dict[str, Any]) -> Array:
        shard = jax.tree.unflatten(structure, [shards[name] for name in arrays])
        if shard.bias is not None:
            # The distances of the device's queries to all keys.
            num_queries = shard.lengths[0]
            start, size = length - before[queries] - num_queries, num_queries + memory_length - 1
            values = jax.lax.dynamic_slice_in_dim(shard.bias.values, start, size, axis=1)
            shard = replace(shard, bias=DistanceBias(values))
        return attend(replace(shard, offsets=(before[rows], before[heads], before[queries])))

    return on_each_device(of_device, arrays, axes, axes[".query"])


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), over itself or over a memory.

    Kernels are stored as matrices ``[D, H*K]``: so did T5, whose Adafactor factors them along these two dimensions.

    Where the collection `intermediates` is mutable, the weights [B H L M], before dropout, are sown there as `weights`.
    """

    config: LayerConfig
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        self.query = self._dense(c.num_heads * c.head_dim, ("embed", "heads"), c.query_init)
        self.key = self._dense(c.num_heads * c.head_dim, ("embed", "heads"), c.kernel_init)
        self.value = self._dense(c.num_heads * c.head_dim, ("embed", "heads"), c.kernel_init)

    def project(self, memory: Float[Array, "B M D"], positions: Float[Array, "_ M D"] | None = None) -> KeyValue:
        """The keys and values of `memory`, to be computed once where many queries follow; keys are those of the sum of
        it and `positions`."""
        keyed = memory if positions is None else memory + positions
        return {name: self._heads(name, of, "activation_memory") for name, of in (("key", keyed), ("value", memory))}

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B L D"],
        key_value: KeyValue | CachedKeyValue | None = None,
        *,
        positions: Float[Array, "_ L D"] | None = None,
        bias: DistanceBias | Float[Array, "_ _ _ M"] | None = None,
        mask: Mask | None = None,
        blocks: Blocks | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """Attends from `x` to `key_value` (made by `project`), or to itself if that is None.

        Queries, and the keys of itself, are those of the sum of `x` and `positions` (Carion et al. 2020, figure 10).
        Cached keys and values take a bias for all pairs and no mask, and there is no dropout.
        """
        c = self.config
        query = self._heads("query", x if positions is None else x + positions, "activation_length")
        scale = c.head_dim**-0.5 if c.attention_scale is None else c.attention_scale
        if isinstance(key_value, CachedKeyValue):
            attended = key_value.attend(query, bias, scale)
        else:
            key_value = self.project(x, positions) if key_value is None else key_value
            options = {"bias": bias, "mask": mask, "blocks": blocks, "scale": scale}
            if self.is_mutable_collection("intermediates"):
                inputs = AttentionInputs(query, **key_value, scale=scale, bias=bias, mask=mask or Mask(), blocks=blocks)
                self.sow("intermediates", "weights", attention_weights(inputs))
            dropping = c.attention_dropout_rate > 0.0 and not deterministic
            attended = dot_product_attention(
                query,
                **key_value,
                **options,
                dropout_rate=c.attention_dropout_rate,
                dropout_key=self.make_rng("dropout") if dropping else None,
                positions_share_dropout=c.positions_share_dropout,
            )
        out = self._dense(x.shape[-1], ("heads", "embed"), c.residual_init or c.kernel_init, name="out")
        return out(attended)

    def _dense(self, features: int, axes: tuple[str, str], init: Callable[..., Array], **name: str) -> Dense:
        c = self.config
        use_bias = c.use_bias if c.attention_bias is None else c.attention_bias
        return Dense(features, axes, use_bias, self.dtype, init, c.head_dim, **name)

    def _heads(self, projection: str, x: Float[Array, "B L D"], length: str) -> Float[Array, "B L H K"]:
        heads = getattr(self, projection)(x)
        return constrain_sharding(heads, "activation_batch", length, "activation_heads", "activation_kv")
