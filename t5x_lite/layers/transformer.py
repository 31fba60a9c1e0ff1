"""One Transformer layer, and a stack of them as a scan.

Dimension key of the whole package: B batch, L length (queries), M memory length (keys), D embed, H heads, K head_dim,
F mlp, V vocabulary, N layers.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import MASKED_LOGIT, DistanceBias, Mask
from t5x_lite.kernels.platform import unrolls_layers
from t5x_lite.layers.attention import Attention
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.decoding_cache import CachedKeyValue, DecodingCache, KeyValue
from t5x_lite.layers.dense import DENSE_OUTPUT, Dropout, FeedForward, LayerConfig, LayerScale, drop_path
from t5x_lite.layers.linformer import Linformer, project_length
from t5x_lite.parallel.partitioning import all_but_gathered, constrain_sharding, is_sharded

Remat = Literal["none", "unroll", "dots", "full", "offload"]
"""What the backward pass of a layer computes again: nothing; nothing, and training compiles each layer by itself; all
but the outputs of dense layers; everything; all but these outputs, which are kept in the host's memory."""
UNROLL_THRESHOLD = 2**17
"""Features of all positions of a batch, from which on a CPU trains the layers of a stack without a loop around them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Context:
    """The inputs that all layers of a stack share."""

    self_bias: DistanceBias | None = None
    self_mask: Mask | None = None
    memory: Float[Array, "B M D"] | None = None
    """The encoder's output, which cross-attention reads."""
    memory_mask: Mask | None = None
    positions: Float[Array, "_ L D"] | None = None
    """Added to what queries and the keys of self-attention are made of, in each layer; values have none."""
    memory_positions: Float[Array, "_ M D"] | None = None
    """Added to what the keys of cross-attention are made of."""
    length_projection: Float[Array, "k N"] | None = None
    """Of a `Linformer` with one for all layers; the stack sets it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepContext:
    """The inputs that all layers of a stack share while decoding."""

    self_bias: Float[Array, "_ _ Q S"]
    memory_bias: Float[Array, "B 1 1 M"]
    """Added to the logits of the cross-attention."""
    slot: Int[Array, ""]
    """Where the keys and values are written."""
    num_sequences: int = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LayerInputs:
    """The inputs of one layer; of all layers of a stack, each with a leading axis."""

    drop_path_rate: Float[Array, "*N"] | None = None
    """The share of rows that skip a branch; None: no row does."""
    random_blocks: Int[Array, "*N H Q R"] | None = None
    """Of a `BigBird`: None where all tokens are attended to."""


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
        self.self_attention = Attention(c, self.dtype)
        self.self_attention_norm = c.make_norm(self.dtype)
        if self.has_memory:
            self.cross_attention = Attention(c, self.dtype)
            self.cross_attention_norm = c.make_norm(self.dtype)
        self.projects_length = isinstance(c.attention, Linformer) and c.attention.sharing != "layerwise"
        if self.projects_length:
            self.length_projection = c.attention.make(self, c.num_heads, c.max_length)
        self.feed_forward = FeedForward(c, self.dtype)
        self.feed_forward_norm = c.make_norm(self.dtype)
        if c.layer_scale:
            self.self_attention_scale = LayerScale(c.layer_scale, self.dtype)
            if self.has_memory:
                self.cross_attention_scale = LayerScale(c.layer_scale, self.dtype)
            self.feed_forward_scale = LayerScale(c.layer_scale, self.dtype)
        self.dropout = Dropout(c.dropout_rate, c.positions_share_dropout)

    def __call__(
        self, x: Float[Array, "B L D"], own: LayerInputs, context: Context, deterministic: bool
    ) -> tuple[Float[Array, "B L D"], None]:
        """The layer's output, and the None that a scan takes beside it."""

        def attend_to_self(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
            options = {"positions": context.positions, "bias": context.self_bias, "mask": context.self_mask}
            if own.random_blocks is not None:
                options["blocks"] = self.config.attention.blocks(own.random_blocks)
            if isinstance(self.config.attention, Linformer):
                projection = self.length_projection if self.projects_length else context.length_projection
                key_value = self.self_attention.project(x, context.positions)
                key_value, mask = project_length(key_value, context.self_mask or Mask(), projection, self.dtype)
                options |= {"key_value": key_value, "mask": mask}
            return self.self_attention(x, **options, deterministic=deterministic)

        def attend_to_memory(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
            key_value = self.cross_attention.project(context.memory, context.memory_positions)
            options = {"positions": context.positions, "mask": context.memory_mask}
            return self.cross_attention(x, key_value, **options, deterministic=deterministic)

        cross = attend_to_memory if self.has_memory and context.memory is not None else None
        return self._sublayers(x, attend_to_self, cross, deterministic, own.drop_path_rate), None

    def decode(
        self, x: Float[Array, "B Q D"], self_kv: CachedKeyValue, memory: CachedKeyValue | None, context: StepContext
    ) -> tuple[Float[Array, "B Q D"], CachedKeyValue]:
        """The layer's output for the next tokens, and `self_kv` with their keys and values in it."""

        def attend_to_self(x: Float[Array, "B Q D"]) -> Float[Array, "B Q D"]:
            nonlocal self_kv
            self_kv = self_kv.write(self.self_attention.project(x), context.slot, context.num_sequences)
            return self.self_attention(x, self_kv, bias=context.self_bias)

        def attend_to_memory(x: Float[Array, "B Q D"]) -> Float[Array, "B Q D"]:
            return self.cross_attention(x, memory, bias=context.memory_bias)

        cross = attend_to_memory if memory is not None else None
        return self._sublayers(x, attend_to_self, cross, True), self_kv

    def unrolled(self, *arguments: Any) -> tuple[Float[Array, "B L D"], None]:
        """`__call__`, for a stack without a loop."""
        return self(*arguments)

    def keep_output(
        self, x: Float[Array, "B L D"], own: LayerInputs, context: Context, deterministic: bool
    ) -> tuple[Float[Array, "B L D"], Float[Array, "B L D"]]:
        """The layer's output twice: for the next layer, and to be stacked."""
        x, _ = self(x, own, context, deterministic)
        return x, x

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B M D"], KeyValue]:
        """The keys and values of the memory, for a cache; hands the memory on to the next layer."""
        return memory, self.cross_attention.project(memory)

    def _sublayers(
        self,
        x: Float[Array, "B L D"],
        attend_to_self: Callable[[Array], Array],
        attend_to_memory: Callable[[Array], Array] | None,
        deterministic: bool,
        drop_path_rate: Float[Array, ""] | None = None,
    ) -> Float[Array, "B L D"]:

        def residual(x: Array, sublayer: Callable[[Array], Array], name: str) -> Array:
            norm, norm_first = getattr(self, f"{name}_norm"), self.config.norm_first
            branch = self.dropout(sublayer(norm(x) if norm_first else x), deterministic=deterministic)
            if self.config.layer_scale:
                branch = getattr(self, f"{name}_scale")(branch)
            if drop_path_rate is not None:
                branch = drop_path(branch, self.make_rng("dropout"), drop_path_rate)
            return x + branch if norm_first else norm(x + branch)

        x = constrain_sharding(x, "activation_batch", "activation_length", "activation_embed")
        x = residual(x, attend_to_self, "self_attention")
        if attend_to_memory is not None:
            x = residual(x, attend_to_memory, "cross_attention")
        feed_forward = functools.partial(self.feed_forward, deterministic=deterministic)
        return residual(x, feed_forward, "feed_forward")


class Stack(nn.Module):
    """`num_layers` layers as one scan, so that compile time does not grow with depth; but see `UNROLL_THRESHOLD`.

    The parameters of all layers are in one array each, ``[N, ...]``, with the logical axis `layers` in front; where
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
            # What layers sow is stacked as their parameters are.
            "variable_axes": {"intermediates": 0} | ({} if self.shared else {"params": 0}),
            "variable_broadcast": "params" if self.shared else False,
            "split_rngs": {"params": not self.shared, "dropout": True},
            "length": self.num_layers,
            "out_axes": 0,
            "metadata_params": {nn.PARTITION_NAME: "layers"},
            # Flax traces a layer once more, which only making what all layers share needs; but what a seed gives for
            # new parameters depends on it.
            "check_constancy_invariants": self.is_initializing(),
        }
        in_axes = (0, nn.broadcast, nn.broadcast)
        methods = {
            "__call__": over_layers | {"in_axes": in_axes},
            "unrolled": over_layers | {"in_axes": in_axes, "unroll": self.num_layers},
            "keep_output": over_layers | {"in_axes": in_axes},
        }
        if self.has_memory:
            methods["project_memory"] = over_layers | {"in_axes": ()}
        layer = rematerialised(Layer, self.remat)
        self.layers = nn.scan(layer, methods=methods)(self.config, self.has_memory, self.dtype)
        attention = self.config.attention
        self.shares_projection = isinstance(attention, Linformer) and attention.sharing == "layerwise"
        if self.shares_projection:
            self.length_projection = attention.make(self, self.config.num_heads, self.config.max_length)
        if self.config.norm_first:
            self.final_norm = self.config.make_norm(self.dtype)

    def __call__(
        self, x: Float[Array, "B L D"], context: Context, *, deterministic: bool = True
    ) -> Float[Array, "B L D"]:
        """Runs `x` through all layers.

        Where the platform gains by it, training compiles each large layer by itself, and so it does if `remat` is
        "unroll". Rematerialisation needs the scan, across whose steps XLA shares nothing.
        """
        trains = not deterministic and not self.is_initializing()
        keeps_all = self.remat == "none" and not is_sharded("embed")
        gains = unrolls_layers() and keeps_all and x.size >= UNROLL_THRESHOLD
        unrolls = trains and (gains or self.remat == "unroll")
        own, context = self._inputs_of_layers(x.shape[1], deterministic), self._with_shared(context)
        x, _ = (self.layers.unrolled if unrolls else self.layers)(x, own, context, deterministic)
        return self.final_norm(x) if self.config.norm_first else x

    def outputs(
        self, x: Float[Array, "B L D"], context: Context, *, deterministic: bool = True
    ) -> Float[Array, "N B L D"]:
        """The output of each layer; of a pre-LN stack the last is not normed yet."""
        own, context = self._inputs_of_layers(x.shape[1], deterministic), self._with_shared(context)
        return self.layers.keep_output(x, own, context, deterministic)[1]

    def _with_shared(self, context: Context) -> Context:
        return replace(context, length_projection=self.length_projection) if self.shares_projection else context

    def _inputs_of_layers(self, length: int, deterministic: bool) -> LayerInputs:
        c, random = self.config, None
        if isinstance(c.attention, BigBird):
            random = c.attention.random_blocks(self.num_layers, c.num_heads, length)
        return LayerInputs(self._drop_path_rates(deterministic), random)

    def _drop_path_rates(self, deterministic: bool) -> Float[Array, "N"] | None:
        rate = self.config.drop_path_rate
        if deterministic or not rate:
            return None
        first = rate if self.config.drop_path_schedule == "constant" else 0.0
        return jnp.linspace(first, rate, self.num_layers)

    def start_decoding(
        self,
        inputs_valid: Bool[Array, "B M"],
        output: Float[Array, "D V"],
        *,
        memory: Float[Array, "B M D"] | None = None,
        max_length: int,
        prompt_length: int = 0,
    ) -> DecodingCache:
        """Room for `max_length` tokens after `prompt_length`, and all that does not change from step to step."""
        c, params = self.config, self.layers.variables["params"]

        def cast_matrix(x: Array) -> Array:
            return x.astype(self.dtype) if x.ndim > 1 else x

        def apart(stacked: Any) -> list[Any]:
            return [jax.tree.map(lambda x, n=n: x[n], stacked) for n in range(self.num_layers)]

        layers = [params] * self.num_layers if self.shared else apart(params)
        memories = [] if memory is None else apart(self.layers.project_memory(memory)[1])
        batch_size, slots = inputs_valid.shape[0], prompt_length + max_length
        return DecodingCache(
            self_kv=(CachedKeyValue.empty(batch_size, c.num_heads, c.head_dim, slots, self.dtype),) * self.num_layers,
            memory=tuple(map(CachedKeyValue.of, memories)),
            inputs_valid=inputs_valid,
            beam_parents=jnp.zeros((batch_size, 1, max_length), jnp.int32),
            layers=tuple(jax.tree.map(cast_matrix, layer) for layer in layers),
            output=cast_matrix(output),
            prompt_length=prompt_length,
        )

    def decode(
        self,
        x: Float[Array, "R L D"],
        cache: DecodingCache,
        *,
        position: Int[Array, ""],
        mask: Bool[Array, "_ 1 L T"],
        bias: DistanceBias | None = None,
    ) -> tuple[Float[Array, "R L D"], DecodingCache]:
        """Runs the tokens from `position` on through all layers; returns the cache with their keys and values in it.

        `mask` and `bias` are over all positions. The layers are unrolled: a scan would copy all caches, and all
        parameters, once a token.
        """
        layer, self_kv = Layer(self.config, self.has_memory, self.dtype, parent=None), []
        cache = cache.set_parents(position, x.shape[1])
        of_tokens = None
        if bias is not None:
            of_tokens = bias.of_queries(position, x.shape[1])
            axes = (None, "activation_heads", "activation_length", "activation_memory")
            of_tokens = constrain_sharding(of_tokens, *axes)
        context = StepContext(
            self_bias=cache.slot_bias(mask, of_tokens),
            memory_bias=jnp.where(cache.inputs_valid, 0.0, MASKED_LOGIT)[:, None, None, :],
            slot=cache.slot(position),
            num_sequences=cache.num_sequences,
        )
        # Sequences of an input are further queries to what they share, so that it is not stored, or read, for each.
        queries = x.reshape(cache.inputs_valid.shape[0], -1, x.shape[-1])
        for n in range(self.num_layers):
            memory = cache.memory[n] if self.has_memory else None
            queries, kept = layer.apply(
                {"params": cache.layers[n]}, queries, cache.self_kv[n], memory, context, method="decode"
            )
            self_kv.append(kept)
        x = queries.reshape(x.shape)
        return (self.final_norm(x) if self.config.norm_first else x), replace(cache, self_kv=tuple(self_kv))


def rematerialised(layer: type[nn.Module], remat: Remat) -> type[nn.Module]:
    """`layer` with its `__call__` computed again in the backward pass as `remat` says (Chen et al. 2016)."""
    if remat in ("none", "unroll") and not is_sharded("embed"):
        return layer
    policies = jax.checkpoint_policies
    policy = {
        "none": all_but_gathered,
        "unroll": all_but_gathered,
        "dots": policies.save_only_these_names(DENSE_OUTPUT),
        "full": policies.nothing_saveable,
        "offload": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=(),
            names_which_can_be_offloaded=(DENSE_OUTPUT,),
            offload_src="device",
            offload_dst="pinned_host",
        ),
    }[remat]
    # prevent_cse is not needed inside a scan, where it only costs.
    return nn.remat(layer, policy=policy, prevent_cse=False, static_argnums=(4,), methods=["__call__"])
