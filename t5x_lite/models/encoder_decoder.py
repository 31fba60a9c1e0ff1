"""The encoder-decoder of text that T5, the 2017 Transformer, Marian and BART are.

A family is a config: a file beside this one says what is particular to it and which sizes were published.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.layers.dense import Activation, Dropout, make_norm
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.heads import RowHead, TokenHead, at_end
from t5x_lite.layers.masks import DistanceBias, Mask
from t5x_lite.layers.positions import (
    LearnedPositions,
    RelativePositionBias,
    positions_in_segments,
    sinusoidal_positions,
)
from t5x_lite.layers.transformer import Context, DecodingCache, LayerConfig, Remat, Stack
from t5x_lite.models.base import Architecture, Positions, Pretraining, TextConfig, check_length
from t5x_lite.models.task_heads import LastTokenHeads, TaskHead
from t5x_lite.validation import NormEpsilon, Positive, Rate


@dataclass(frozen=True)
class EncoderDecoderConfig(TextConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    num_heads: Positive = 8
    """Attention heads a layer."""
    embed_dim: Positive = 512
    """Width of the residual stream (d_model)."""
    mlp_dim: Positive = 2048
    """Width of the feed-forward layers (d_ff)."""
    num_encoder_layers: Positive = 6
    num_decoder_layers: Positive = 6
    activation: Activation = "relu"
    """Of the feed-forward layers: relu, gelu, gelu_tanh, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings and residual branches."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in LayerNorm, or to the mean square in RMSNorm."""
    tied: bool = True
    """The output projection is the decoder's embedding; otherwise it has a kernel of its own."""

    architecture: ClassVar[Architecture] = "encoder-decoder"
    pretraining: ClassVar[Pretraining | None] = "sequence to sequence"
    below_layers: ClassVar[tuple[str, ...]] = (
        "token_embedding",
        "decoder_token_embedding",
        "encoder_embeddings",
        "decoder_embeddings",
        "encoder_position_bias",
        "decoder_position_bias",
    )
    texts_begin_with_cls: ClassVar[bool] = False
    """The published models read the vocabulary's first special id in front of each text."""
    positions: ClassVar[Positions] = "learned"
    """Vectors added to the embeddings, fixed or learned for each position; or T5's bias of the attention."""
    max_length: ClassVar[int | None] = None
    """Positions that can be used: the longest row of either side; None: any number."""
    position_offset: ClassVar[int] = 0
    """Rows of the position table before that of the first position."""
    stacks_share_parameters: ClassVar[bool] = False
    """Encoder and decoder have one set of layers, of which the decoder alone uses the cross-attention."""
    shared_embedding: ClassVar[bool] = True
    """Encoder and decoder read one embedding; otherwise each has its own."""
    scale_embedding: ClassVar[bool] = False
    """Multiply the embeddings by sqrt(embed_dim)."""
    norm_embedding: ClassVar[bool] = False
    """LayerNorm on the sum of the embeddings."""
    fixed_id: ClassVar[int | None] = None
    """An id whose vector is read without being trained, as Transformers treats padding; None: all are trained."""
    output_dropout_rate: ClassVar[float] = 0.0
    """Dropout on what each stack ends with."""
    output_scale: ClassVar[float] = 1.0
    """Factor of what is projected to the vocabulary."""
    output_bias: ClassVar[bool] = False
    """A number for each token of the output, added as a checkpoint brings it: it is not trained."""
    starts_with: ClassVar[Literal["pad", "eos"]] = "pad"
    """What the decoder reads first unless `start_id` says it."""
    start_id: ClassVar[int | None] = None
    """What the decoder reads first; None means the family's own: see `starts_with`."""
    heads: ClassVar[tuple[TaskHead, ...]] = ()
    """Heads of tasks on the decoder."""
    num_classes: ClassVar[int] = 2
    """Logits of the heads classification and tagging."""
    head_dropout_rate: ClassVar[float] = 0.0
    """Dropout in the heads."""

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        if self.start_id is not None:
            return self.start_id
        return eos_id if self.starts_with == "eos" else pad_id

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "EncoderDecoder":
        return EncoderDecoder(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """The shape of a layer of the encoder."""
        raise NotImplementedError

    def decoder_layer(self) -> LayerConfig:
        """The shape of a layer of the decoder."""
        return self.layer()

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        """Of the output, where it is not the embedding."""
        return nn.initializers.lecun_normal()

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        """Of token and position embeddings."""
        return nn.initializers.normal(0.02)


class InputEmbeddings(nn.Module):
    """What a stack reads: the tokens' vectors with those of positions, and a norm where the family has one."""

    config: EncoderDecoderConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, embedded: Float[Array, "B L D"], positions: Int[Array, "_ L"], *, deterministic: bool
    ) -> Float[Array, "B L D"]:
        c = self.config
        x = embedded * c.embed_dim**0.5 if c.scale_embedding else embedded
        if c.positions == "sinusoidal":
            x += jnp.asarray(sinusoidal_positions(c.max_length, c.embed_dim), self.dtype)[positions]
        elif c.positions == "learned":
            rows = c.position_offset + c.max_length
            table = LearnedPositions(rows, c.embed_dim, self.dtype, c.embedding_init, name="position")
            x += table(positions + c.position_offset)
        if c.norm_embedding:
            x = make_norm("layer", epsilon=c.norm_epsilon, dtype=self.dtype, name="norm")(x)
        return Dropout(c.dropout_rate, c.layer().positions_share_dropout)(x, deterministic=deterministic)


class EncoderDecoder(LastTokenHeads):
    """Two stacks over one embedding, which is the output too unless the config says otherwise.

    Logits are float32 whatever `dtype` the layers compute in.
    """

    config: EncoderDecoderConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.embedding_init)
        if not c.shared_embedding:
            self.decoder_token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.embedding_init)
        self.encoder_embeddings = InputEmbeddings(c, self.dtype)
        self.decoder_embeddings = InputEmbeddings(c, self.dtype)
        if c.positions == "relative":
            buckets = (c.relative_buckets, c.relative_max_distance)
            self.encoder_position_bias = RelativePositionBias(c.num_heads, True, *buckets)
            self.decoder_position_bias = RelativePositionBias(c.num_heads, False, *buckets)
        self.decoder = Stack(c.decoder_layer(), c.num_decoder_layers, True, self.remat, self.dtype)
        if c.stacks_share_parameters:
            self.encoder = self.decoder
        else:
            self.encoder = Stack(c.layer(), c.num_encoder_layers, False, self.remat, self.dtype)
        self.output_dropout = Dropout(c.output_dropout_rate, c.layer().positions_share_dropout)
        if not c.tied:
            self.output = Unembedding(c.vocab_size, self.dtype, c.kernel_init)
        if c.output_bias:
            init = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
            self.output_bias = self.param("output_bias", init, (c.vocab_size,), jnp.float32)
        if "classification" in c.heads:
            self.classification = RowHead(c.num_classes, "tanh", True, c.head_dropout_rate, self.dtype)
        if "tagging" in c.heads:
            self.tagging = TokenHead(c.num_classes, c.head_dropout_rate)
        if "question_answering" in c.heads:
            # The two ends of an answer. Transformers drops nothing here.
            self.question_answering = TokenHead(2, 0.0)

    def __call__(
        self, inputs: Int[Array, "B M"], decoder_inputs: Int[Array, "B L"], **options: Any
    ) -> Float[Array, "B L V"]:
        """Logits of the target that follows each decoder input: see `scores`, which takes the same."""
        return self.scores(inputs, decoder_inputs, **options).dense()

    def scores(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        decoder_segments: Int[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> LazyLogits:
        """Which target follows each decoder input, teacher forced.

        Args:
          inputs: ids of the encoder's side.
          decoder_inputs: the targets shifted right by one, the start id in front.
          inputs_valid: true where `inputs` is no padding; None means everywhere.
          inputs_segments, decoder_segments: for packed rows: tokens see those of their own segment alone, and count
            their positions from its beginning.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.

        Raises:
          InputError: a row is longer than the config's `max_length`.
        """
        segments = {"inputs_segments": inputs_segments, "decoder_segments": decoder_segments}
        hidden = self._hidden(
            inputs, decoder_inputs, inputs_valid=inputs_valid, **segments, deterministic=deterministic
        )
        self.init_heads(hidden)
        hidden *= self.config.output_scale
        scores = self._decoder_table.scores(hidden) if self.config.tied else self.output(hidden)
        return replace(scores, bias=self._fixed_bias())

    def hidden_states(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """What heads of tasks stand on: the decoder's output when it reads the same row as the encoder, one position
        later (Lewis et al. 2020, sections 3.1 and 3.2, and the released code).

        The row's last token, which is EOS, comes first, or the config's `start_id`. There are no segments.
        """
        start_id, last = self.config.start_id, at_end(inputs, inputs_valid)
        first = last if start_id is None else jnp.full_like(last, start_id)
        decoder_inputs = jnp.concatenate([first[:, None], inputs[:, :-1]], axis=1)
        return self._hidden(inputs, decoder_inputs, inputs_valid=inputs_valid, deterministic=deterministic)

    def _hidden(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        decoder_segments: Int[Array, "B L"] | None = None,
        deterministic: bool,
    ) -> Float[Array, "B L D"]:
        """The decoder's output."""
        encoded = self.encode(
            inputs, inputs_valid=inputs_valid, inputs_segments=inputs_segments, deterministic=deterministic
        )
        context = Context(
            self_bias=self._decoder_bias(decoder_inputs.shape[1]),
            self_mask=Mask.of_segments(decoder_segments, causal=True),
            memory=encoded,
            memory_mask=Mask.of_segments(decoder_segments, inputs_segments, valid=inputs_valid),
        )
        x = self._embed_targets(decoder_inputs, self._positions(decoder_inputs, decoder_segments), deterministic)
        return self.output_dropout(self.decoder(x, context, deterministic=deterministic), deterministic=deterministic)

    def encode(
        self,
        inputs: Int[Array, "B M"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B M D"]:
        """The encoder's output."""
        length = inputs.shape[1]
        context = Context(
            self_bias=self.encoder_position_bias(length, length) if self.config.positions == "relative" else None,
            self_mask=Mask.of_segments(inputs_segments, valid=inputs_valid),
        )
        positions = self._positions(inputs, inputs_segments)
        x = self._embed_tokens(self.token_embedding, inputs)
        x = self.encoder_embeddings(x, positions, deterministic=deterministic)
        return self.output_dropout(self.encoder(x, context, deterministic=deterministic), deterministic=deterministic)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the encoder; what `decode_step` reads and writes, with room for `max_length` tokens."""
        check_length(self.config, max_length)
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        encoded = self.encode(inputs, inputs_valid=valid)
        output = (self._decoder_table if self.config.tied else self.output).output_kernel()
        return self.decoder.start_decoding(valid, output, memory=encoded, max_length=max_length)

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], DecodingCache]:
        """Logits after the decoder inputs at positions `index, index + 1, ...`, given what the cache holds before."""
        length, num_positions = decoder_inputs.shape[1], cache.num_positions
        queries = (index + jnp.arange(length))[None, :]
        past = jnp.arange(num_positions)[None, :] <= queries[0][:, None]
        bias = self._decoder_bias(num_positions)
        if bias is not None:
            bias = bias.of_queries(index, length)
        x = self._embed_targets(decoder_inputs, queries, True)
        x, cache = self.decoder.decode(x, cache, position=index, mask=past[None, None], bias=bias)
        logits = vocabulary_logits(x * self.config.output_scale, cache.output, self.dtype)
        fixed = self._fixed_bias()
        return (logits if fixed is None else logits + fixed[None, None]), cache

    def _embed_targets(
        self, ids: Int[Array, "B L"], positions: Int[Array, "_ L"], deterministic: bool
    ) -> Float[Array, "B L D"]:
        embedded = self._embed_tokens(self._decoder_table, ids)
        return self.decoder_embeddings(embedded, positions, deterministic=deterministic)

    def _embed_tokens(self, table: Embedding, ids: Int[Array, "B L"]) -> Float[Array, "B L D"]:
        x, fixed = table(ids), self.config.fixed_id
        return x if fixed is None else jnp.where((ids == fixed)[..., None], jax.lax.stop_gradient(x), x)

    @property
    def _decoder_table(self) -> Embedding:
        return self.token_embedding if self.config.shared_embedding else self.decoder_token_embedding

    def _decoder_bias(self, length: int) -> DistanceBias | None:
        return self.decoder_position_bias(length, length) if self.config.positions == "relative" else None

    def _positions(self, ids: Int[Array, "B L"], segments: Int[Array, "B L"] | None) -> Int[Array, "_ L"]:
        check_length(self.config, ids.shape[1])
        return jnp.arange(ids.shape[1])[None] if segments is None else positions_in_segments(segments)

    def _fixed_bias(self) -> Float[Array, "V"] | None:
        return jax.lax.stop_gradient(self.output_bias) if self.config.output_bias else None
