"""The decoder that GPT and its descendants are, and the one that T5's authors compared with their encoder-decoder.

A family is a config: a file beside this one says what is particular to it and which sizes were published.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.layers.dense import Activation, Dropout
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.heads import RowHead
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.positions import (
    DistanceBias,
    LearnedPositions,
    RelativePositionBias,
    positions_in_segments,
)
from t5x_lite.layers.transformer import Context, DecodingCache, LayerConfig, Remat, Stack
from t5x_lite.models.base import Architecture, Positions, Pretraining, TextConfig, check_length
from t5x_lite.models.task_heads import LastTokenHeads, TaskHead
from t5x_lite.validation import NormEpsilon, Positive


@dataclass(frozen=True)
class DecoderConfig(TextConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive
    """Rows of the token embedding: the tokenizer's ids or more."""
    num_heads: Positive = 12
    """Attention heads a layer."""
    embed_dim: Positive = 768
    """Width of the residual stream."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layer."""
    num_layers: Positive = 12
    activation: Activation = "gelu_tanh"
    """Of the feed-forward layer: gelu_tanh, gelu, relu, silu or tanh."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance (mean square in RMSNorm)."""
    tied: bool = True
    """The output projection is the embedding; otherwise it has a kernel of its own."""

    architecture: ClassVar[Architecture] = "decoder"
    pretraining: ClassVar[Pretraining] = "causal language model"
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "position", "position_bias")
    answers_prompts: ClassVar[bool] = False
    """It reads a text and writes another one, rather than going on from where the text breaks off."""
    max_length: ClassVar[int | None] = None
    """Positions that can be used, inputs and targets together; None: any number."""
    positions: ClassVar[Positions] = "learned"
    """A learned vector for each position, added to the embeddings, or T5's bias of the attention."""
    full_prefix: ClassVar[bool] = False
    """Inputs see each other whole (prefix LM); otherwise they too see only what is before them."""
    embedding_dropout_rate: ClassVar[float] = 0.0
    """Dropout on the embeddings."""
    output_dropout_rate: ClassVar[float] = 0.0
    """Dropout before the output projection."""
    output_scale: ClassVar[float] = 1.0
    """Factor of what is projected to the vocabulary."""
    heads: ClassVar[tuple[TaskHead, ...]] = ()
    """Heads of tasks beside the output."""
    num_classes: ClassVar[int] = 2
    """Logits of the head classification."""
    head_dropout_rate: ClassVar[float] = 0.0
    """Dropout in the heads."""

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        """What stands between inputs and targets: the EOS that closes the inputs."""
        return eos_id

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Decoder":
        return Decoder(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """The shape of a layer."""
        raise NotImplementedError

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        """Of token and position embeddings."""
        return nn.initializers.normal(0.02)


class Decoder(LastTokenHeads):
    """A causal stack over token embeddings. Logits are float32 whatever `dtype` the layers compute in."""

    config: DecoderConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.embedding_init)
        if c.positions == "relative":
            self.position_bias = RelativePositionBias(
                c.num_heads, c.full_prefix, c.relative_buckets, c.relative_max_distance
            )
        else:
            self.position = LearnedPositions(c.max_length, c.embed_dim, self.dtype, c.embedding_init)
        layer = c.layer()
        self.decoder = Stack(layer, c.num_layers, False, self.remat, self.dtype)
        self.embedding_dropout = Dropout(c.embedding_dropout_rate, layer.positions_share_dropout)
        self.output_dropout = Dropout(c.output_dropout_rate, layer.positions_share_dropout)
        if not c.tied:
            self.output = Unembedding(c.vocab_size, self.dtype)
        if "classification" in c.heads:
            # The paper's equation 3 has no bias.
            self.classification = RowHead(c.num_classes, dropout_rate=c.head_dropout_rate, use_bias=False)
        if "multiple_choice" in c.heads:
            self.multiple_choice = RowHead(1, dropout_rate=c.head_dropout_rate)

    def __call__(
        self, inputs: Int[Array, "B M"], decoder_inputs: Int[Array, "B L"] | None = None, **options: Any
    ) -> Float[Array, "B _ V"]:
        """Logits of the token that follows each: see `scores`, which takes the same."""
        return self.scores(inputs, decoder_inputs, **options).dense()

    def scores(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        decoder_segments: Int[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> LazyLogits:
        """Which token follows each of `decoder_inputs`, or of `inputs` where those are all there is.

        Args:
          inputs: ids that come first.
          decoder_inputs: ids that go on from them, such as targets shifted right by one, the start id in front.
          inputs_valid: true where `inputs` is no padding, which may stand on either side; None means everywhere.
          decoder_segments: for packed rows, of `decoder_inputs` alone behind inputs of length 0: tokens see those of
            their own segment alone, and count their positions from its beginning.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.

        Returns:
          Scores of [B L], or [B M] without decoder inputs; behind padding they mean nothing.

        Raises:
          InputError: the rows are longer than the config's `max_length`.
        """
        if decoder_inputs is None:
            return self._run(
                inputs, inputs_valid, None, inputs.shape[1] if self.config.full_prefix else 0, deterministic
            )
        if inputs.shape[1] == 0:
            return self._run(decoder_inputs, None, decoder_segments, 0, deterministic)
        if decoder_segments is not None:
            raise ValueError("decoder_segments are for rows without inputs")
        prefix = inputs.shape[1]
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        inputs, valid = padding_first(inputs, valid)
        ids = jnp.concatenate([inputs, decoder_inputs], axis=1)
        valid = jnp.concatenate([valid, jnp.ones(decoder_inputs.shape, bool)], axis=1)
        return self._run(ids, valid, None, prefix, deterministic, skip=prefix)

    def hidden_states(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """The last layer's output, which is what heads of tasks and `token_scores` stand on; there are no segments."""
        prefix = inputs.shape[1] if self.config.full_prefix else 0
        return self._hidden(inputs, inputs_valid, None, prefix, deterministic)

    def token_scores(self, hidden: Float[Array, "B L D"], *, deterministic: bool = True) -> LazyLogits:
        """Which token follows each, from `hidden_states`."""
        x = self.output_dropout(hidden, deterministic=deterministic) * self.config.output_scale
        return self.token_embedding.scores(x) if self.config.tied else self.output(x)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the inputs; what `decode_step` reads and writes, with room for `max_length` tokens behind them."""
        length = inputs.shape[1]
        check_length(self.config, length + max_length)
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        inputs, valid = padding_first(inputs, valid)
        output = (self.token_embedding if self.config.tied else self.output).output_kernel()
        cache = self.decoder.start_decoding(valid, output, max_length=max_length, prompt_length=length)
        return self._step(inputs, cache, jnp.int32(-length))[1] if length else cache

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], DecodingCache]:
        """Logits after the tokens `index, index + 1, ...` behind the inputs, given what the cache holds before."""
        x, cache = self._step(decoder_inputs, cache, index)
        return vocabulary_logits(x * self.config.output_scale, cache.output, self.dtype), cache

    def _step(
        self, ids: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L D"], DecodingCache]:
        length, positions, prefix = ids.shape[1], cache.num_positions, cache.prompt_length
        first = prefix + index
        queries = first + jnp.arange(length)
        seen = jnp.arange(positions)[None, :] <= queries[:, None]
        if self.config.full_prefix:
            seen |= (jnp.arange(positions) < prefix)[None, :] & (queries < prefix)[:, None]
        valid = jnp.pad(cache.inputs_valid, ((0, 0), (0, positions - prefix)), constant_values=True)
        padding = jnp.repeat((~valid).sum(axis=1, keepdims=True), cache.num_sequences, axis=0)
        x = self._embed(ids, jnp.maximum(queries[None, :] - padding, 0), True)
        mask = seen[None, None] & valid[:, None, None]
        bias = None if (bias := self._bias(positions)) is None else bias.of_queries(first, length)
        return self.decoder.decode(x, cache, position=first, mask=mask, bias=bias)

    def _run(
        self,
        ids: Int[Array, "B L"],
        valid: Bool[Array, "B L"] | None,
        segments: Int[Array, "B L"] | None,
        prefix: int,
        deterministic: bool,
        skip: int = 0,
    ) -> LazyLogits:
        """Which token follows each but the first `skip`."""
        hidden = self._hidden(ids, valid, segments, prefix, deterministic)[:, skip:]
        self.init_heads(hidden)
        return self.token_scores(hidden, deterministic=deterministic)

    def _hidden(
        self,
        ids: Int[Array, "B L"],
        valid: Bool[Array, "B L"] | None,
        segments: Int[Array, "B L"] | None,
        prefix: int,
        deterministic: bool,
    ) -> Float[Array, "B L D"]:
        length = ids.shape[1]
        check_length(self.config, length)
        if segments is not None:
            positions = positions_in_segments(segments)
        elif valid is not None:
            positions = jnp.maximum(jnp.cumsum(valid, axis=1) - 1, 0)
        else:
            positions = jnp.arange(length)[None]
        context = Context(
            self_bias=self._bias(length),
            self_mask=Mask(valid, segments, segments, causal=True, prefix=prefix if self.config.full_prefix else 0),
        )
        x = self._embed(ids, positions, deterministic)
        return self.decoder(x, context, deterministic=deterministic)

    def _embed(
        self, ids: Int[Array, "B L"], positions: Int[Array, "_ L"], deterministic: bool
    ) -> Float[Array, "B L D"]:
        x = self.token_embedding(ids)
        if self.config.positions == "learned":
            x += self.position(positions)
        return self.embedding_dropout(x, deterministic=deterministic)

    def _bias(self, length: int) -> DistanceBias | None:
        return self.position_bias(length, length) if self.config.positions == "relative" else None


def padding_first(ids: Int[Array, "B M"], valid: Bool[Array, "B M"]) -> tuple[Int[Array, "B M"], Bool[Array, "B M"]]:
    """The same rows with their padding in front, so that what is written behind them follows without a gap.

    >>> ids, valid = padding_first(jnp.array([[7, 8, 0]]), jnp.array([[True, True, False]]))
    >>> ids.tolist(), valid.tolist()
    ([[0, 7, 8]], [[False, True, True]])
    """
    order = jnp.argsort(valid, axis=1, stable=True)
    return jnp.take_along_axis(ids, order, axis=1), jnp.take_along_axis(valid, order, axis=1)
