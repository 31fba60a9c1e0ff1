"""Transformer-XL: a decoder that remembers the segments before (Dai et al. 2019)."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.adaptive import AdaptiveEmbedding, AdaptiveScores
from t5x_lite.layers.dense import Activation, Dropout, LayerConfig
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.layers.positions import sinusoids
from t5x_lite.layers.relative import (
    Memory,
    RelativeCache,
    RelativeContext,
    RelativeStack,
    empty_memory,
    next_memory,
    relative_positions,
    remembered,
)
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Hidden, Ids, TextModel, Valid
from t5x_lite.models.decoder import DecoderConfig, padding_first
from t5x_lite.validation import Positive, Rate


@dataclass(frozen=True)
class TransformerXLConfig(DecoderConfig):
    """The architecture of one Transformer-XL. The defaults are those of WikiText-103, base."""

    vocab_size: Positive = 267_735
    """Rows of the embeddings: the tokenizer's ids or more, the frequent ones first where there are cutoffs."""
    num_heads: Positive = 10
    embed_dim: Positive = 410
    mlp_dim: Positive = 2100
    num_layers: Positive = 16
    head_dim: Positive | None = None
    """Width of one head; None means embed_dim / num_heads."""
    activation: Activation = "relu"
    dropout_rate: Rate = 0.1
    """Dropout on embeddings, positions, residual branches and the output."""
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    cutoffs: tuple[Positive, ...] = (20_000, 40_000, 200_000)
    """First ids of the clusters of rarer tokens, ascending; () scores the vocabulary by one softmax."""
    div_value: Positive = 1
    """Vectors of each cluster are this many times narrower than those of the one before."""
    shared_biases: bool = True
    """All layers have the same biases of content and position; otherwise each its own."""
    clamp_length: Positive | None = None
    """Keys at a larger distance have the position of this one; None: each has its own."""

    packs_rows: ClassVar[bool] = False
    tied: ClassVar[bool] = True
    norm_epsilon: ClassVar[float] = 1e-5
    positions: ClassVar[str] = "segment-relative"
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding",)

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = (0, *self.cutoffs, self.vocab_size)
        if any(start >= end for start, end in pairwise(ends)):
            raise InputError(
                f"cutoffs={self.cutoffs} do not ascend from 1 to below vocab_size={self.vocab_size}; choose ids in "
                "order, or ()"
            )
        if (narrowest := self.div_value ** len(self.cutoffs)) > self.embed_dim:
            raise InputError(
                f"div_value={self.div_value} and {len(self.cutoffs)} cutoffs leave nothing of embed_dim="
                f"{self.embed_dim}, which is divided by {narrowest}; choose a smaller one, such as 1"
            )

    def layer(self) -> LayerConfig:
        return replace(super().layer(), attention_bias=False)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "TransformerXL":
        return TransformerXL(self, dtype=dtype, remat=remat)


class TransformerXL(TextModel):
    """A causal stack over adaptive embeddings. Scores are float32 whatever `dtype` the layers compute in."""

    config: TransformerXLConfig

    def setup(self) -> None:
        c = self.config
        self.token_embedding = AdaptiveEmbedding(c.vocab_size, c.embed_dim, c.cutoffs, c.div_value, self.dtype)
        options = {"remat": self.remat, "dtype": self.dtype}
        self.decoder = RelativeStack(c.layer(), c.num_layers, c.embed_dim, c.shared_biases, **options)
        self.dropout = Dropout(c.dropout_rate)

    def __call__(self, *ids: Int[Array, "B _"] | None, **options: Any) -> Float[Array, "B L V"]:
        """Log probabilities of the token that follows each: see `scores`, which takes the same."""
        scores = self.scores(*ids, **options)
        return nn.log_softmax(scores.dense(), axis=-1)

    def scores(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Ids | None = None,
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        decoder_segments: None = None,
        deterministic: bool = True,
    ) -> LazyLogits | AdaptiveScores:
        """Which token follows each of `decoder_inputs`, or of `inputs` where those are all there is; see
        `Decoder.scores`. Rows begin without a memory, and hold one text."""
        if decoder_segments is not None:
            raise ValueError("decoder_segments are for models that read packed rows")
        prefix, ids, valid = inputs.shape[1], inputs, inputs_valid
        if decoder_inputs is not None:
            if valid is not None:
                ids, valid = padding_first(inputs, valid)
                valid = jnp.concatenate([valid, jnp.ones(decoder_inputs.shape, bool)], axis=1)
            ids = jnp.concatenate([ids, decoder_inputs], axis=1)
        hidden, _ = self._hidden(ids, valid, None, deterministic=deterministic)
        return self.token_scores(hidden if decoder_inputs is None else hidden[:, prefix:], deterministic=deterministic)

    def scores_and_memory(
        self, ids: Int[Array, "B L"], memory: Memory, *, same_length: bool = False, deterministic: bool = True
    ) -> tuple[LazyLogits | AdaptiveScores, Memory]:
        """(which token follows each of a segment, the memory for the next one).

        Args:
          memory: of the segment before, of any length M.
          same_length: each token sees M tokens, itself included; otherwise the later ones see more (section 4.2).
        """
        hidden, read = self._hidden(ids, None, memory, same_length=same_length, deterministic=deterministic)
        return self.token_scores(hidden, deterministic=deterministic), next_memory(memory, read)

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """The last layer's output, without a memory; there are no segments."""
        return self._hidden(inputs, inputs_valid, None, deterministic=deterministic)[0]

    def token_scores(self, hidden: Hidden, *, deterministic: bool = True) -> LazyLogits | AdaptiveScores:
        """Which token follows each, from `hidden_states`."""
        return self.token_embedding.scores(self.dropout(hidden, deterministic=deterministic))

    def empty_memory(self, batch_size: int, length: int) -> Memory:
        """That of rows before which there is nothing."""
        return empty_memory(batch_size, self.config.num_layers, length, self.config.embed_dim, self.dtype)

    def start_decoding(self, inputs: Ids, *, inputs_valid: Valid = None, max_length: int) -> RelativeCache:
        """Runs the inputs; what `decode_step` reads and writes, with room for `max_length` tokens after them."""
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        inputs, valid = padding_first(inputs, valid)
        cache = self.decoder.start_decoding(valid, max_length)
        return self._decode(inputs, cache, jnp.int32(-inputs.shape[1]))[1] if inputs.shape[1] else cache

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: RelativeCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], RelativeCache]:
        """Log probabilities after the inputs at positions `index, index + 1, ...`, given what the cache holds."""
        hidden, cache = self._decode(decoder_inputs, cache, index)
        return self.token_embedding.scores(hidden).dense(), cache

    def _decode(self, ids: Ids, cache: RelativeCache, index: Int[Array, ""]) -> tuple[Hidden, RelativeCache]:
        c, slots = self.config, cache.valid.shape[1]
        distances = np.arange(slots) if c.clamp_length is None else np.arange(slots).clip(max=c.clamp_length)
        positions = jnp.asarray(sinusoids(distances, c.embed_dim), self.dtype)
        return self.decoder.decode(self._embed(ids, True), cache, positions, index)

    def _embed(self, ids: Ids, deterministic: bool) -> Hidden:
        return self.dropout(self.token_embedding(ids) * self.config.embed_dim**0.5, deterministic=deterministic)

    def _hidden(
        self, ids: Ids, valid: Valid, memory: Memory | None, *, same_length: bool = False, deterministic: bool
    ) -> tuple[Hidden, Float[Array, "N B L D"]]:
        c, (batch_size, length) = self.config, ids.shape
        memory = self.empty_memory(batch_size, 0) if memory is None else memory
        before = memory["hidden"].shape[2]
        keys, queries = jnp.arange(before + length)[None], before + jnp.arange(length)[:, None]
        seen = keys <= queries
        if same_length and before:
            seen &= keys > queries - before
        in_segment = jnp.ones((1, length), bool) if valid is None else valid
        in_segment = jnp.broadcast_to(in_segment, ids.shape)
        known = jnp.concatenate([remembered(memory), in_segment], axis=1)
        mask = seen[None, None] & known[:, None, None]
        positions = relative_positions(length, before + length, c.embed_dim, causal=True, clamp=c.clamp_length)
        positions = self.dropout(jnp.asarray(positions, self.dtype), deterministic=deterministic)
        context = RelativeContext(positions, mask)
        (hidden, _), read = self.decoder(
            (self._embed(ids, deterministic), None), memory, context, deterministic=deterministic
        )
        return hidden, read


PRESETS: dict[str, TransformerXLConfig] = {
    # Section 4.1 and their scripts.
    "transfo-xl-base-wt103": TransformerXLConfig(),
    "transfo-xl-wt103": TransformerXLConfig(
        num_heads=16,
        embed_dim=1024,
        mlp_dim=4096,
        num_layers=18,
        dropout_rate=0.2,
        attention_dropout_rate=0.2,
        div_value=4,
        shared_biases=False,
    ),
}
"""The published sizes: `transfo-xl-base-wt103` of their PyTorch code, and `transfo-xl-wt103`, large, as it was
released."""
