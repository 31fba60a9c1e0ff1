"""The state of decoding, laid out so that a step moves only what it writes.

Dimension letters as in `t5x_lite.layers.transformer`, and: P sequences an input (the beams of a search), R = B P
sequences in all, those of an input side by side, Q = P L their queries, T positions to be written, S slots.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.cpu import PackedWeights, keep_layout, pack_weights
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.parallel.partitioning import constrain_sharding, is_sharded

KeyValue = dict[str, Float[Array, "B M H K"]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CachedKeyValue:
    """Keys and values, slots in rows: those are written as they come."""

    key: Float[Array, "B H S K"]
    value: Float[Array, "B H S K"]

    @classmethod
    def of(cls, key_value: KeyValue) -> "CachedKeyValue":
        """The same keys and values, laid out anew."""
        return cls(*(key_value[name].swapaxes(1, 2) for name in ("key", "value")))._sharded()

    @classmethod
    def empty(cls, batch_size: int, num_heads: int, head_dim: int, slots: int, dtype: Any) -> "CachedKeyValue":
        """Room for the keys and values of `slots` tokens."""
        zeros = jnp.zeros((batch_size, num_heads, slots, head_dim), dtype)
        return cls(zeros, zeros)._sharded()

    def write(self, new: KeyValue, slot: Int[Array, ""], num_sequences: int = 1) -> "CachedKeyValue":
        """With new keys and values from `slot` on, those of `num_sequences` given one after the other."""
        fresh = CachedKeyValue.of(jax.tree.map(lambda x: by_position(x, num_sequences), new))

        def put(old: Float[Array, "B H S K"], x: Float[Array, "B H _ K"]) -> Float[Array, "B H S K"]:
            return jax.lax.dynamic_update_slice_in_dim(old, x.astype(old.dtype), slot, axis=2)

        return jax.tree.map(put, self, fresh)._sharded()

    def spread(self, prompt_length: int, times: int) -> "CachedKeyValue":
        """For `times` sequences, each with its slots after the first `prompt_length`; the old one is the first."""
        if times == 1:
            return self

        def wider(x: Float[Array, "B H S K"]) -> Float[Array, "B H _ K"]:
            front, rest = jnp.split(x, [prompt_length], axis=2)
            rest = jnp.pad(rest[..., None, :], [(0, 0)] * 3 + [(0, times - 1), (0, 0)])
            return jnp.concatenate([front, jax.lax.collapse(rest, 2, 4)], axis=2)

        return jax.tree.map(wider, self)._sharded()

    def attend(
        self, query: Float[Array, "B Q H K"], bias: Float[Array, "_ _ _ S"], scale: float
    ) -> Float[Array, "B Q H K"]:
        """softmax(scale * query key + bias) value, the softmax in float32."""
        # Keys are on the left: so a CPU multiplies a few queries fastest.
        query = (query * scale).swapaxes(1, 2)
        logits = keep_layout(jnp.einsum("BHSK,BHQK->BHSQ", self.key, query, preferred_element_type=jnp.float32))
        weights = jax.nn.softmax(logits.swapaxes(2, 3) + bias, axis=-1).astype(self.value.dtype)
        return keep_layout(jnp.einsum("BHQS,BHSK->BHQK", weights, self.value)).swapaxes(1, 2)

    def _sharded(self) -> "CachedKeyValue":
        """On a mesh each device keeps the heads that it computes, of the rows that it has."""
        axes = ("activation_batch", "activation_heads", "activation_memory", "activation_kv")
        return jax.tree.map(lambda x: constrain_sharding(x, *axes), self)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecodingCache:
    """What `decode_step` reads, and returns with the new tokens in it.

    The sequences of an input have a slot each at every position. One that continues another one moves no keys and
    values: `beam_parents` says whose slots hold its past.
    """

    self_kv: tuple[CachedKeyValue, ...]
    """In each layer, of the tokens before: `prompt_length` slots, then P for each position."""
    memory: tuple[CachedKeyValue, ...]
    """In each layer, of the encoder's output; empty where there is no encoder."""
    inputs_valid: Bool[Array, "B M"]
    """Where the inputs are not padding."""
    beam_parents: Int[Array, "B P T"]
    """Which of its input's sequences wrote what a sequence has at each position."""
    layers: tuple[Any, ...]
    """The parameters of each layer by itself, matrices in the compute dtype: a step would slice and cast them anew."""
    output: Float[Array, "D V"] | PackedWeights
    """The matrix that gives the logits, likewise."""
    prompt_length: int = field(default=0, metadata={"static": True})
    """Slots in front that all sequences of an input share: those of a decoder's inputs."""

    @property
    def num_positions(self) -> int:
        """Of a sequence: a decoder's inputs, and the T to be written."""
        return self.prompt_length + self.beam_parents.shape[2]

    @property
    def num_sequences(self) -> int:
        """P."""
        return self.beam_parents.shape[1]

    def repeat(self, times: int) -> "DecodingCache":
        """The cache for `times` sequences an input, all alike so far, of one for each.

        The parameters are laid out for so few rows, as the next steps are of single tokens.
        """
        batch_size, sequences, _ = self.beam_parents.shape

        def for_tokens(params: Any) -> Any:
            sharded = is_sharded("embed") or is_sharded("mlp")
            return params if sharded else pack_weights(params, batch_size * sequences * times)

        return replace(
            self,
            self_kv=tuple(one.spread(self.prompt_length, times) for one in self.self_kv),
            beam_parents=jnp.repeat(self.beam_parents, times, axis=1),
            layers=tuple(map(for_tokens, self.layers)),
            output=for_tokens({"kernel": self.output})["kernel"],
        )

    def take(self, rows: Int[Array, "R"]) -> "DecodingCache":
        """The cache of sequences that go on from these rows, each of the same input."""
        rows = rows.reshape(*self.beam_parents.shape[:2], 1) % self.num_sequences
        return replace(self, beam_parents=jnp.take_along_axis(self.beam_parents, rows, axis=1))

    def set_parents(self, position: Int[Array, ""], length: int) -> "DecodingCache":
        """The cache in which every sequence itself has written `length` tokens from `position` on."""
        if self.num_sequences == 1:
            return self  # all are 0, and a decoder's inputs come before the first position
        batch_size, sequences, _ = self.beam_parents.shape
        parents = jnp.broadcast_to(jnp.arange(sequences)[None, :, None], (batch_size, sequences, length))
        written = jax.lax.dynamic_update_slice_in_dim(self.beam_parents, parents, position - self.prompt_length, axis=2)
        return replace(self, beam_parents=written)

    def slot(self, position: Int[Array, ""]) -> Int[Array, ""]:
        """Where the keys and values of the sequences begin at a position."""
        return position + (self.num_sequences - 1) * jnp.maximum(position - self.prompt_length, 0)

    def slot_bias(self, mask: Bool[Array, "_ 1 L T"], bias: Float[Array, "1 H L T"] | None) -> Float[Array, "_ _ Q S"]:
        """What is added to the logits over all slots, from mask and bias over all positions."""
        bias = jnp.where(mask, 0.0 if bias is None else bias, MASKED_LOGIT)
        if self.num_sequences == 1:
            return bias
        front, rest = jnp.split(bias[:, :, None], [self.prompt_length], axis=-1)
        sequences = jnp.arange(self.num_sequences).reshape(1, 1, 1, 1, 1, -1)
        rest = jnp.where(self.beam_parents[:, None, :, None, :, None] == sequences, rest[..., None], MASKED_LOGIT)
        rest = jax.lax.collapse(rest, 4)
        front = jnp.broadcast_to(front, (*rest.shape[:-1], self.prompt_length))
        return jax.lax.collapse(jnp.concatenate([front, rest], axis=-1), 2, 4)


def by_position(x: Float[Array, "B Q H K"], num_sequences: int) -> Float[Array, "B Q H K"]:
    """From one sequence after the other to one position after the other, as slots are."""
    apart = x.reshape(x.shape[0], num_sequences, -1, *x.shape[2:])
    return apart.swapaxes(1, 2).reshape(x.shape)
