"""Transformer-XL's layers: relative positions, and a memory of the segments before (Dai et al. 2019, section 3).

Dimension letters as everywhere, with M keys: those of the memory, and after them the L of the segment itself. Of T
relative positions number t is that of key j and query i where ``t = L - 1 + j - i``.
"""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.kernels.shift import shift_positions
from t5x_lite.layers.dense import Dense, Dropout, FeedForward, LayerConfig, keep_mask
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.positions import sinusoids
from t5x_lite.layers.transformer import Remat, rematerialised
from t5x_lite.parallel.partitioning import constrain_sharding, on_each_device

Memory = dict[str, Array]
"""What a segment leaves to the next one, rows first: `hidden` [B N M D], what each layer has read at the last M
positions, and `length` int32 [B], how many of these there were."""


def empty_memory(batch_size: int, num_layers: int, length: int, embed_dim: int, dtype: Any) -> Memory:
    """That of rows before which there is nothing."""
    hidden = jnp.zeros((batch_size, num_layers, length, embed_dim), dtype)
    return {"hidden": hidden, "length": jnp.zeros(batch_size, jnp.int32)}


def next_memory(memory: Memory, read: Float[Array, "N B L D"]) -> Memory:
    """The memory after a segment, given what its layers have read; no gradient goes into it (section 3.2)."""
    length = memory["hidden"].shape[2]
    hidden = jnp.concatenate([memory["hidden"], read.swapaxes(0, 1).astype(memory["hidden"].dtype)], axis=2)
    kept = hidden[:, :, hidden.shape[2] - length :]
    kept = constrain_sharding(kept, "activation_batch", None, None, None)
    known = jnp.minimum(memory["length"] + read.shape[2], length)
    return jax.tree.map(jax.lax.stop_gradient, {"hidden": kept, "length": known})


def remembered(memory: Memory) -> Bool[Array, "B M"]:
    """True where a memory holds what a layer has read."""
    length = memory["hidden"].shape[2]
    return jnp.arange(length)[None] >= length - memory["length"][:, None]


def relative_positions(
    length: int, memory_length: int, embed_dim: int, *, causal: bool, clamp: int | None = None
) -> Float[np.ndarray, "1 T D"]:
    """The `sinusoids` of the relative positions of a segment's queries and all keys: of a query's distance to a key
    before it.

    Args:
      length: L.
      memory_length: M, the segment's keys included.
      causal: keys after a query have none: T = M + 1, and else L + M.
      clamp: distances beyond have that of this one (`clamp_len` in their code).
    """
    distances = np.arange(memory_length - 1, -2 if causal else -length - 1, -1)
    return sinusoids(distances if clamp is None else distances.clip(-clamp, clamp), embed_dim)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelativeContext:
    """What all layers of a stack share."""

    positions: Float[Array, "_ T D"]
    """The encodings of relative positions: one for all rows, or each row's own."""
    mask: Bool[Array, "_ 1 _ M"]
    """True where a query sees a key."""
    query_mask: Bool[Array, "B 1 L M"] | None = None
    """The same of the query stream."""
    query_positions: Int[Array, "B P"] | None = None
    """The positions in the segment of what is in that stream."""
    other_segment: Bool[Array, "B L M"] | None = None
    """True where query and key are of different segments, in models with segments."""
    shared_biases: tuple[Float[Array, "H K"], Float[Array, "H K"]] | None = None
    """u and v (Dai et al. 2019, equation 5), where all layers have the same."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelativeKeys:
    """What queries are compared with, and what they read."""

    key: Float[Array, "B M H K"]
    value: Float[Array, "B M H K"]
    position: Float[Array, "_ T H K"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelativeCache:
    """Of R sequences that are written, rows first: what `decode` reads, and returns with the next tokens in it."""

    key: Any
    """[R N T H K], and so is `value`."""
    value: Any
    valid: Any
    """bool [R T], false where there is padding, in front of the prompt."""
    prompt_length: int = field(metadata={"static": True})

    def repeat(self, times: int) -> "RelativeCache":
        """The cache for `times` sequences an input, all alike so far, of one for each."""
        return jax.tree.map(lambda x: jnp.repeat(x, times, axis=0), self)

    def take(self, rows: Int[Array, "R"]) -> "RelativeCache":
        """The cache of sequences that go on from these rows."""
        return jax.tree.map(lambda x: x[rows], self)


def relative_logits(
    query: Float[Array, "B L H K"],
    keys: RelativeKeys,
    biases: tuple[Float[Array, "H K"], Float[Array, "H K"]],
    of_segments: tuple[Float[Array, "H K"], Float[Array, "2 H K"], Bool[Array, "B L M"]] | None,
) -> Float[Array, "B H L M"]:
    """The float32 logits of each pair before they are scaled: (query + u) key + (query + v) position, and with segments
    (query + s) of the same or of different ones (Dai et al. 2019, equation 5; Yang et al. 2019, section 2.5)."""
    content, by_position = (query + bias[None, None] for bias in biases)
    wide = {"preferred_element_type": jnp.float32}
    logits = jnp.einsum("BLHK,BMHK->BHLM", content, keys.key, **wide)
    # Of each row, though they may be the same: otherwise the TPU compiler has the queries innermost, and copies all.
    positions = jnp.broadcast_to(keys.position, (len(query), *keys.position.shape[1:]))
    of_positions = {"scores": jnp.einsum("BLHK,BTHK->BHLT", by_position, positions, **wide)}
    axes, length = ("activation_batch", "activation_heads", None, None), keys.key.shape[1]
    shift = lambda arrays, before: shift_positions(arrays["scores"], length)  # noqa: E731
    logits += on_each_device(shift, of_positions, {"scores": axes}, axes)
    if of_segments is not None:
        bias, kinds, other = of_segments
        same, different = jnp.einsum("BLHK,SHK->SBHL", query + bias[None, None], kinds, **wide)[..., None]
        logits += jnp.where(other[:, None], different, same)
    return logits


class RelativeAttention(nn.Module):
    """Attention by content and by relative position, with a learned bias of the queries for each (Dai et al. 2019,
    section 3.3), and by whether query and key are of one segment (Yang et al. 2019, section 2.5) where there are any.

    Where the collection `intermediates` is mutable, the weights [B H L M], before dropout, are sown there as `weights`.
    """

    config: LayerConfig
    embed_dim: int
    shared_biases: bool = False
    has_segments: bool = False
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        size = c.num_heads * c.head_dim

        def to_heads() -> Dense:
            return Dense(size, ("embed", "heads"), False, self.dtype, c.kernel_init, c.head_dim)

        self.query, self.key, self.value, self.position = to_heads(), to_heads(), to_heads(), to_heads()
        self.out = Dense(self.embed_dim, ("heads", "embed"), False, self.dtype, c.kernel_init, c.head_dim)
        if not self.shared_biases:
            self.content_bias, self.position_bias = (self._bias(name) for name in ("content_bias", "position_bias"))
        if self.has_segments:
            self.segment_bias = self._bias("segment_bias")
            axes, shape = (None, "position_heads", None), (2, c.num_heads, c.head_dim)
            self.segment = parameter(self, "segment", c.kernel_init, axes, shape)

    def _bias(self, name: str) -> Float[Array, "H K"]:
        return relative_bias(self, name, self.config)

    def project(self, x: Float[Array, "B M D"], positions: Float[Array, "_ T D"]) -> RelativeKeys:
        """Keys and values of a segment with its memory, and those of the relative positions."""
        axes = ("activation_batch", "activation_memory", "activation_heads", "activation_kv")
        key, value = (constrain_sharding(project(x), *axes) for project in (self.key, self.value))
        rows = "activation_batch" if len(positions) > 1 else None
        return RelativeKeys(key, value, constrain_sharding(self.position(positions), rows, None, *axes[2:]))

    def __call__(
        self,
        x: Float[Array, "B L D"],
        keys: RelativeKeys,
        context: RelativeContext,
        mask: Bool[Array, "_ 1 _ M"],
        positions: Int[Array, "B P"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """Attends from `x`. With `positions` it has these positions of the segment alone [B P D], and so has the
        result; keys that `mask` hides from a query never reach it."""
        c = self.config
        query = self.query(x)
        if positions is not None:
            # As many queries as positions, most of them 0: the shift of relative positions is then one for all.
            length = mask.shape[2]
            chosen = jax.nn.one_hot(positions, length, dtype=self.dtype)
            query = jnp.einsum("BPHK,BPL->BLHK", query, chosen)
        query = constrain_sharding(query, "activation_batch", None, "activation_heads", "activation_kv")
        biases = context.shared_biases or (self.content_bias, self.position_bias)
        biases, of_segments = tuple(bias.astype(self.dtype) for bias in biases), None
        if context.other_segment is not None:
            of_segments = self.segment_bias.astype(self.dtype), self.segment.astype(self.dtype), context.other_segment
        keep, rate = None, c.attention_dropout_rate
        if rate and not deterministic:
            axes = ("activation_batch", "activation_heads", None, "activation_memory")
            shape = (len(x), c.num_heads, query.shape[1], keys.key.shape[1])
            keep = keep_mask(self.make_rng("dropout"), rate, shape, axes)

        def weights(query: Array, keys: RelativeKeys, biases: Any, of_segments: Any, mask: Array) -> Array:
            logits = relative_logits(query, keys, biases, of_segments) * c.head_dim**-0.5
            # A query that may see no key would see all alike.
            return jnp.where(mask, jax.nn.softmax(jnp.where(mask, logits, MASKED_LOGIT), axis=-1), 0.0)

        # The backward pass is given what goes in, and not the arrays over all pairs.
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def attend(query: Array, keys: RelativeKeys, biases: Any, of_segments: Any, mask: Array, keep: Any) -> Array:
            shares = weights(query, keys, biases, of_segments, mask)
            if keep is not None:
                shares = jnp.where(keep, shares / (1.0 - rate), 0.0)
            return jnp.einsum("BHLM,BMHK->BLHK", shares.astype(self.dtype), keys.value)

        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "weights", weights(query, keys, biases, of_segments, mask))
        attended = attend(query, keys, biases, of_segments, mask, keep)
        if positions is not None:
            attended = jnp.einsum("BLHK,BPL->BPHK", attended, chosen)
        return self.out(attended)

    def decode(
        self,
        x: Float[Array, "R L D"],
        keys: RelativeKeys,
        biases: Any,
        mask: Bool[Array, "R 1 L T"],
        first: Int[Array, ""],
    ) -> Float[Array, "R L D"]:
        """Attends from the tokens `first, first + 1, ...` to T slots; position d of `keys` is that of distance d."""
        query, (length, size) = self.query(x), mask.shape[2:]
        content, position = biases or (self.content_bias, self.position_bias)
        logits = jnp.einsum("RLHK,RTHK->RHLT", query + content.astype(self.dtype)[None, None], keys.key)
        by_distance = query + position.astype(self.dtype)[None, None]
        by_distance = jnp.einsum("RLHK,DHK->RHLD", by_distance, keys.position[0])
        distances = (first + jnp.arange(length))[:, None] - jnp.arange(size)[None]
        distances = jnp.broadcast_to(distances.clip(0, size - 1)[None, None], by_distance.shape)
        logits += jnp.take_along_axis(by_distance, distances, axis=-1)
        logits = logits.astype(jnp.float32) * self.config.head_dim**-0.5
        shares = jax.nn.softmax(jnp.where(mask, logits, MASKED_LOGIT), axis=-1).astype(self.dtype)
        return self.out(jnp.einsum("RHLT,RTHK->RLHK", shares, keys.value))


def relative_bias(module: nn.Module, name: str, config: LayerConfig) -> Float[Array, "H K"]:
    """A bias of queries, as a parameter of a module."""
    shape = (config.num_heads, config.head_dim)
    return parameter(module, name, config.kernel_init, ("position_heads", None), shape)


Streams = tuple[Float[Array, "B L D"], Float[Array, "B P D"] | None]
"""The content stream, and the query stream, which only a model with two has (Yang et al. 2019, section 2.3)."""


class RelativeLayer(nn.Module):
    """Relative attention and a feed-forward layer, each norm(x + f(x)), over one stream or two."""

    config: LayerConfig
    embed_dim: int
    shared_biases: bool = False
    has_segments: bool = False
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        options = (self.embed_dim, self.shared_biases, self.has_segments, self.dtype)
        self.self_attention = RelativeAttention(c, *options)
        self.self_attention_norm = c.make_norm(self.dtype)
        self.feed_forward = FeedForward(c, self.dtype)
        self.feed_forward_norm = c.make_norm(self.dtype)
        self.dropout = Dropout(c.dropout_rate)

    def __call__(
        self, streams: Streams, memory: Float[Array, "B M D"], context: RelativeContext, deterministic: bool
    ) -> tuple[Streams, Float[Array, "B L D"]]:
        """(both streams, what this layer has read, for the memory)."""
        content, query = streams
        content = constrain_sharding(content, "activation_batch", "activation_length", "activation_embed")
        read = jnp.concatenate([memory.astype(content.dtype), content], axis=1)
        keys = self.self_attention.project(read, context.positions)

        def stream(x: Array, mask: Array, positions: Array | None) -> Array:
            attended = self.self_attention(x, keys, context, mask, positions, deterministic=deterministic)
            return self._finish(x, attended, deterministic)

        if query is not None:
            query = stream(query, context.query_mask, context.query_positions)
        return (stream(content, context.mask, None), query), content

    def decode(
        self, x: Float[Array, "R L D"], cached: Any, context: Any
    ) -> tuple[Float[Array, "R L D"], tuple[Array, Array]]:
        """(the layer's output for the next tokens, its keys and values with theirs in it)."""
        positions, biases, mask, first = context
        own = self.self_attention.project(x, positions)
        key, value = (
            jax.lax.dynamic_update_slice_in_dim(cached[name], new, first, axis=1)
            for name, new in (("key", own.key), ("value", own.value))
        )
        attended = self.self_attention.decode(x, RelativeKeys(key, value, own.position), biases, mask, first)
        return self._finish(x, attended, True), (key, value)

    def _finish(self, x: Array, attended: Array, deterministic: bool) -> Array:
        x = self.self_attention_norm(x + self.dropout(attended, deterministic=deterministic))
        hidden = self.feed_forward(x, deterministic=deterministic)
        return self.feed_forward_norm(x + self.dropout(hidden, deterministic=deterministic))


class RelativeStack(nn.Module):
    """`num_layers` layers as one scan, their parameters in one array each [N ...]."""

    config: LayerConfig
    num_layers: int
    embed_dim: int
    shared_biases: bool = False
    has_segments: bool = False
    remat: Remat = "none"
    dtype: Any = jnp.float32

    def setup(self) -> None:
        over_layers = {
            "variable_axes": {"params": 0, "intermediates": 0},
            "split_rngs": {"params": True, "dropout": True},
            "length": self.num_layers,
            "out_axes": 0,
            "metadata_params": {nn.PARTITION_NAME: "layers"},
            "check_constancy_invariants": self.is_initializing(),  # as in `Stack`
        }
        methods = {
            "__call__": over_layers | {"in_axes": (0, nn.broadcast, nn.broadcast)},
            "decode": over_layers | {"in_axes": (0, nn.broadcast)},
        }
        layer = rematerialised(RelativeLayer, self.remat)
        options = (self.embed_dim, self.shared_biases, self.has_segments, self.dtype)
        self.layers = nn.scan(layer, methods=methods)(self.config, *options)
        if self.shared_biases:
            names = ("content_bias", "position_bias")
            self.biases = tuple(relative_bias(self, name, self.config) for name in names)

    def __call__(
        self, streams: Streams, memory: Memory, context: RelativeContext, *, deterministic: bool = True
    ) -> tuple[Streams, Float[Array, "N B L D"]]:
        """(both streams after the last layer, what the layers have read: see `next_memory`)."""
        if self.shared_biases:
            context = replace(context, shared_biases=self.biases)
        streams, read = self.layers(streams, memory["hidden"].swapaxes(0, 1), context, deterministic)
        return streams, read

    def start_decoding(self, valid: Bool[Array, "B M"], max_length: int) -> RelativeCache:
        """Room for `max_length` tokens after a prompt, whose tokens are `valid` where they are not padding."""
        c, (batch_size, prompt) = self.config, valid.shape
        shape = (batch_size, self.num_layers, prompt + max_length, c.num_heads, c.head_dim)
        all_valid = jnp.pad(valid, ((0, 0), (0, max_length)), constant_values=True)
        return RelativeCache(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype), all_valid, prompt)

    def decode(
        self, x: Float[Array, "R L D"], cache: RelativeCache, positions: Float[Array, "T D"], index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L D"], RelativeCache]:
        """The tokens `index, index + 1, ...` after the prompt through all layers; position d is that of distance d."""
        first = cache.prompt_length + index
        slots, queries = jnp.arange(cache.valid.shape[1]), first + jnp.arange(x.shape[1])
        mask = (slots[None] <= queries[:, None])[None, None] & cache.valid[:, None, None]
        biases = self.biases if self.shared_biases else None
        cached = {"key": cache.key.swapaxes(0, 1), "value": cache.value.swapaxes(0, 1)}
        x, (key, value) = self.layers.decode(x, cached, (positions[None], biases, mask, first))
        return x, replace(cache, key=key.swapaxes(0, 1), value=value.swapaxes(0, 1))
