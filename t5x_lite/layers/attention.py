"""Scaled and unscaled dot-product attention with masks, biases, dropout and a key-value cache.

Dimension letters: see `t5x_lite.layers.transformer`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Key

from t5x_lite.kernels.attention import attention_for
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.layers.decoding_cache import CachedKeyValue, KeyValue
from t5x_lite.layers.dense import Dense, keep_mask
from t5x_lite.layers.masks import DistanceBias, Mask
from t5x_lite.parallel.partitioning import constrain_sharding, on_each_device


def dot_product_attention(
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    *,
    bias: DistanceBias | None = None,
    mask: Mask | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Key[Array, ""] | None = None,
    positions_share_dropout: bool = False,
) -> Float[Array, "B L H K"]:
    """softmax(scale * query key^T + bias) value, the softmax in float32 (Vaswani et al. 2017, section 3.2.1).

    Args:
      bias: added to the logits, such as T5's relative position bias.
      mask: says where a query may look. A query that may look nowhere attends to all keys alike.
      scale: factor of the logits; None means K ** -0.5, T5 uses 1.
      dropout_rate: share of the attention weights set to zero when `dropout_key` is given.
      positions_share_dropout: all queries of a row and head drop the same keys; otherwise each its own.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    dropping = dropout_key is not None and dropout_rate > 0.0
    if dropping and positions_share_dropout:
        # A weight that no query uses is a value that none sees.
        batch_size, memory_length, num_heads, _ = value.shape
        keep = keep_mask(dropout_key, dropout_rate, (batch_size, memory_length, num_heads, 1))
        value = jnp.where(keep, value / (1.0 - dropout_rate), 0.0).astype(value.dtype)
        dropping = False
    options = {"scale": scale, "dropout_rate": dropout_rate, "dropout_key": dropout_key if dropping else None}
    length, memory_length = query.shape[1], key.shape[1]
    attend = attention_for(length, memory_length)
    return attend_on_mesh(attend, query, key, value, bias, mask, **options)


def attend_on_mesh(
    attend: Callable[..., Array],
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    bias: DistanceBias | None,
    mask: Mask | None,
    *,
    dropout_key: Key[Array, ""] | None,
    **options: Any,
) -> Float[Array, "B L H K"]:
    """`attend`, a function like `dense_attention`, by each device for its rows, heads and queries."""
    mask = Mask() if mask is None else mask
    length, memory_length = query.shape[1], key.shape[1]
    rows, heads, queries = "activation_batch", "activation_heads", "activation_length"
    memory = (rows, "activation_memory", heads, "activation_kv")
    given = {
        "query": (query, (rows, queries, heads, "activation_kv")),
        "key": (key, memory),
        "value": (value, memory),
        "bias": (None if bias is None else bias.values, (heads, None)),
        "valid": (mask.valid, (rows, None)),
        "query_segments": (mask.query_segments, (rows, queries)),
        "key_segments": (mask.key_segments, (rows, None)),
        "dropout_key": (dropout_key, ()),
    }
    arrays = {name: array for name, (array, _) in given.items() if array is not None}

    def own_part(arrays: dict[str, Array], before: dict[str, Any]) -> Array:
        if bias is not None:
            # The distances of the device's queries to all keys.
            own = arrays["query"].shape[1]
            start, size = length - before[queries] - own, own + memory_length - 1
            arrays = arrays | {"bias": jax.lax.dynamic_slice_in_dim(arrays["bias"], start, size, axis=1)}
        offsets = (before[rows], before[heads], before[queries])
        return attend(**arrays, causal=mask.causal, prefix=mask.prefix, offsets=offsets, **options)

    return on_each_device(own_part, arrays, {name: axes for name, (_, axes) in given.items()}, given["query"][1])


def attention_weights(
    query: Float[Array, "B L H K"],
    key: Float[Array, "B M H K"],
    *,
    bias: DistanceBias | None = None,
    mask: Mask | None = None,
    scale: float,
) -> Float[Array, "B H L M"]:
    """softmax(scale * query key^T + bias) in float32: how much each query takes of each value."""
    pairs = (query.shape[1], key.shape[1])
    logits = jnp.einsum("BLHK,BMHK->BHLM", query, key, preferred_element_type=jnp.float32) * scale
    logits = constrain_sharding(
        logits, "activation_batch", "activation_heads", "activation_length", "activation_memory"
    )
    if bias is not None:
        logits += bias.dense(*pairs)
    if mask is not None and (seen := mask.dense(*pairs)) is not None:
        logits = jnp.where(seen, logits, MASKED_LOGIT)
    return jax.nn.softmax(logits, axis=-1)


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), over itself or over a memory.

    Kernels are stored as matrices ``[D, H*K]``: so did T5, whose Adafactor factors them along these two dimensions.

    Where the collection `intermediates` is mutable, the weights [B H L M], before dropout, are sown there as `weights`;
    elsewhere they are not computed apart.
    """

    num_heads: int
    head_dim: int
    scale: float | None = None
    use_bias: bool = False
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32
    query_init: Callable[..., Array] = nn.initializers.lecun_normal()
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    out_init: Callable[..., Array] | None = None
    """Of the output's projection; None means `kernel_init`."""
    positions_share_dropout: bool = False

    def setup(self) -> None:
        features = self.num_heads * self.head_dim
        common = {"use_bias": self.use_bias, "dtype": self.dtype}
        self.query = Dense(features, ("embed", "heads"), kernel_init=self.query_init, **common)
        self.key = Dense(features, ("embed", "heads"), kernel_init=self.kernel_init, **common)
        self.value = Dense(features, ("embed", "heads"), kernel_init=self.kernel_init, **common)

    def project(self, memory: Float[Array, "B M D"]) -> KeyValue:
        """The keys and values of `memory`, to be computed once where many queries follow."""
        return {name: self._split(getattr(self, name)(memory), "activation_memory") for name in ("key", "value")}

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B L D"],
        key_value: KeyValue | CachedKeyValue | None = None,
        *,
        bias: DistanceBias | Float[Array, "_ _ _ M"] | None = None,
        mask: Mask | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """Attends from `x` to `key_value` (made by `project`), or to itself if that is None.

        Cached keys and values take a bias for all pairs and no mask, and there is no dropout.
        """
        query = self._split(self.query(x), "activation_length")
        scale = self.head_dim**-0.5 if self.scale is None else self.scale
        if isinstance(key_value, CachedKeyValue):
            attended = key_value.attend(query, bias, scale)
        else:
            key_value = self.project(x) if key_value is None else key_value
            if self.is_mutable_collection("intermediates"):
                weights = attention_weights(query, key_value["key"], bias=bias, mask=mask, scale=scale)
                self.sow("intermediates", "weights", weights)
            dropping = self.dropout_rate > 0.0 and not deterministic
            attended = dot_product_attention(
                query,
                key_value["key"],
                key_value["value"],
                bias=bias,
                mask=mask,
                scale=scale,
                dropout_rate=self.dropout_rate,
                dropout_key=self.make_rng("dropout") if dropping else None,
                positions_share_dropout=self.positions_share_dropout,
            )
        out = Dense(
            x.shape[-1],
            ("heads", "embed"),
            use_bias=self.use_bias,
            dtype=self.dtype,
            kernel_init=self.out_init or self.kernel_init,
            name="out",
        )
        return out(attended.reshape(*attended.shape[:2], -1))

    def _split(self, x: Float[Array, "B L HK"], length: str) -> Float[Array, "B L H K"]:
        heads = x.reshape(*x.shape[:-1], self.num_heads, self.head_dim)
        return constrain_sharding(heads, "activation_batch", length, "activation_heads", "activation_kv")
