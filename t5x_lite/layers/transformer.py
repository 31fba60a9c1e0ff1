"""One Transformer layer, and a stack of them as a scan.

Dimension key of the whole package: B batch, L length (queries), M memory length (keys), D embed, H heads, K head_dim,
F mlp, V vocabulary, N layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.layers.attention import Attention, KeyValue, update_cache
from t5x_lite.layers.feed_forward import FeedForward
from t5x_lite.layers.norm import Norm, make_norm

Remat = Literal["none", "dots", "full"]
"""What the backward pass of a layer computes again: nothing; all but matrix products; everything."""

LayerCache = dict[str, dict[str, Float[Array, "B _ H K"]]]
"""A layer's keys and values while decoding: `self` (written as tokens come) and `cross` (of the memory, read alone)."""

StackCache = dict[str, dict[str, Float[Array, "N B _ H K"]]]
"""The caches of all layers of a stack."""


@dataclass(frozen=True)
class LayerConfig:
    """The shape and the habits of one layer; every family of the zoo says its own."""

    num_heads: int
    head_dim: int
    mlp_dim: int
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    norm: Norm = "layer"
    norm_epsilon: float = 1e-6
    norm_first: bool = True
    attention_scale: float | None = None
    dropout_rate: float = 0.0
    """Of the residual branches."""
    attention_dropout_rate: float = 0.0
    """Of the attention weights."""
    mlp_dropout_rate: float = 0.0
    """Of the feed-forward layer's hidden units."""
    query_init: Callable[..., Array] = nn.initializers.lecun_normal()
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Context:
    """What all layers of a stack see alike, beside the activations that flow through them."""

    self_bias: Float[Array, "_ H L _"] | None = None
    """Added to the logits of the self-attention."""
    self_mask: Bool[Array, "_ _ _ _"] | None = None
    memory: Float[Array, "B M D"] | None = None
    """What cross-attention looks at: the encoder's output."""
    memory_mask: Bool[Array, "_ _ _ M"] | None = None
    index: Int[Array, ""] | None = None
    """While decoding: the position of the first of the tokens given."""


class Layer(nn.Module):
    """Self-attention, cross-attention where there is a memory, feed-forward; each with norm, dropout and residual.

    `norm_first` (pre-LN) is x + f(norm(x)), as in T5 and GPT-2; otherwise (post-LN) norm(x + f(x)), as in Vaswani et
    al. 2017 and BERT.
    """

    config: LayerConfig
    has_memory: bool = False
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        self.self_attention = self._attention()
        self.self_attention_norm = self._norm()
        if self.has_memory:
            self.cross_attention = self._attention()
            self.cross_attention_norm = self._norm()
        self.feed_forward = FeedForward(
            c.mlp_dim, c.activation, c.gated, c.use_bias, c.mlp_dropout_rate, self.dtype, c.kernel_init
        )
        self.feed_forward_norm = self._norm()
        self.dropout = nn.Dropout(c.dropout_rate)

    def __call__(
        self, x: Float[Array, "B L D"], cache: LayerCache | None, context: Context, deterministic: bool
    ) -> tuple[Float[Array, "B L D"], LayerCache | None]:
        """Returns the layer's output and, if a cache was given, the cache with the new keys and values in it."""
        x = nn.with_logical_constraint(x, ("activation_batch", "activation_length", "activation_embed"))

        def attend_to_self(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
            nonlocal cache
            key_value = self.self_attention.project(x)
            if cache is not None:
                key_value = update_cache(cache["self"], key_value, context.index)
                cache = cache | {"self": key_value}
            masking = {"bias": context.self_bias, "mask": context.self_mask}
            return self.self_attention(x, key_value, **masking, deterministic=deterministic)

        def attend_to_memory(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
            key_value = self.cross_attention.project(context.memory) if cache is None else cache["cross"]
            return self.cross_attention(x, key_value, mask=context.memory_mask, deterministic=deterministic)

        x = self._residual(x, attend_to_self, self.self_attention_norm, deterministic)
        if self.has_memory:
            x = self._residual(x, attend_to_memory, self.cross_attention_norm, deterministic)

        def feed_forward(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
            return self.feed_forward(x, deterministic=deterministic)

        return self._residual(x, feed_forward, self.feed_forward_norm, deterministic), cache

    def keep_output(
        self, x: Float[Array, "B L D"], context: Context, deterministic: bool
    ) -> tuple[Float[Array, "B L D"], Float[Array, "B L D"]]:
        """The layer's output twice: for the next layer, and for whoever wants all of them."""
        x, _ = self(x, None, context, deterministic)
        return x, x

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B M D"], KeyValue]:
        """The keys and values of the memory, for a cache; hands the memory on to the next layer."""
        return memory, self.cross_attention.project(memory)

    def _residual(self, x: Array, f: Callable[[Array], Array], norm: nn.Module, deterministic: bool) -> Array:
        if self.config.norm_first:
            return x + self.dropout(f(norm(x)), deterministic=deterministic)
        return norm(x + self.dropout(f(x), deterministic=deterministic))

    def _attention(self) -> Attention:
        c = self.config
        return Attention(
            c.num_heads,
            c.head_dim,
            c.attention_scale,
            c.use_bias,
            c.attention_dropout_rate,
            self.dtype,
            c.query_init,
            c.kernel_init,
        )

    def _norm(self) -> nn.Module:
        return make_norm(self.config.norm, epsilon=self.config.norm_epsilon, dtype=self.dtype)


class Stack(nn.Module):
    """`num_layers` layers as one scan, so that compile time does not grow with depth.

    The parameters of all layers lie in one array each, ``[N, ...]``, with the logical axis `layers` in front; where
    the layers share them (ALBERT) there is one of each, without that axis. Pre-LN stacks end with a norm of their own.
    """

    config: LayerConfig
    num_layers: int
    has_memory: bool = False
    remat: Remat = "none"
    dtype: Any = jnp.float32
    shared: bool = False

    def setup(self) -> None:
        over_layers = {
            "variable_axes": {} if self.shared else {"params": 0},
            "variable_broadcast": "params" if self.shared else False,
            "split_rngs": {"params": not self.shared, "dropout": True},
            "length": self.num_layers,
            "out_axes": 0,
            "metadata_params": {nn.PARTITION_NAME: "layers"},
        }
        methods = {
            "__call__": over_layers | {"in_axes": (0, nn.broadcast, nn.broadcast)},
            "keep_output": over_layers | {"in_axes": (nn.broadcast, nn.broadcast)},
        }
        if self.has_memory:
            methods["project_memory"] = over_layers | {"in_axes": ()}
        layer = rematerialised(Layer, self.remat)
        self.layers = nn.scan(layer, methods=methods)(self.config, self.has_memory, self.dtype)
        if self.config.norm_first:
            self.final_norm = make_norm(self.config.norm, epsilon=self.config.norm_epsilon, dtype=self.dtype)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        context: Context,
        cache: StackCache | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B L D"], StackCache | None]:
        """Runs `x` through all layers; `cache` has a leading dimension N and is returned with the new keys in it."""
        x, cache = self.layers(x, cache, context, deterministic)
        return (self.final_norm(x) if self.config.norm_first else x), cache

    def outputs(
        self, x: Float[Array, "B L D"], context: Context, *, deterministic: bool = True
    ) -> Float[Array, "N B L D"]:
        """What each layer hands to the next one; of a pre-LN stack the last is not normed yet."""
        return self.layers.keep_output(x, context, deterministic)[1]

    def start_cache(self, batch_size: int, max_length: int, memory: Float[Array, "B M D"] | None = None) -> StackCache:
        """An empty cache for `max_length` tokens, the keys and values of `memory` in it."""
        shape = (self.num_layers, batch_size, max_length, self.config.num_heads, self.config.head_dim)
        cache = {"self": {"key": jnp.zeros(shape, self.dtype), "value": jnp.zeros(shape, self.dtype)}}
        if self.has_memory:
            _, cache["cross"] = self.layers.project_memory(memory)
        return cache


def rematerialised(layer: type[nn.Module], remat: Remat) -> type[nn.Module]:
    """`layer` with its `__call__` computed again in the backward pass as `remat` says (Chen et al. 2016)."""
    if remat == "none":
        return layer
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
    # prevent_cse is not needed inside a scan, where it only costs.
    return nn.remat(layer, policy=policy, prevent_cse=False, static_argnums=(4,), methods=["__call__"])
