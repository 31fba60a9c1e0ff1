"""The encoder-decoder of absolute positions that the 2017 Transformer, Marian and BART are.

A family is a config: a file beside this one says what is particular to it and which sizes were published. T5, whose
positions are a bias of the attention, has a module of its own with the same methods.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, Dropout, make_norm
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.heads import RowHead, TokenHead, at_end
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.positions import LearnedPositions, positions_in_segments, sinusoidal_positions
from t5x_lite.layers.transformer import Context, DecodingCache, LayerConfig, Remat, Stack
from t5x_lite.models.base import Architecture, Pretraining, TextConfig, check_heads
from t5x_lite.models.task_heads import LastTokenHeads, TaskHead
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate

Positions = Literal["sinusoidal", "learned"]


@dataclass(frozen=True)
class EncoderDecoderConfig(TextConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    num_heads: Positive = 8
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 512
    """Width of the residual stream (d_model)."""
    mlp_dim: Positive = 2048
    """Width of the feed-forward layers (d_ff)."""
    num_encoder_layers: Positive = 6
    """Layers of the encoder."""
    num_decoder_layers: Positive = 6
    """Layers of the decoder."""
    num_decoder_heads: Positive | None = None
    """Attention heads a layer of the decoder; None means num_heads."""
    decoder_mlp_dim: Positive | None = None
    """Width of the decoder's feed-forward layers; None means mlp_dim."""
    max_length: Annotated[int, Range(ge=2)] = 1024
    """Positions that can be used: the longest row of either side."""
    activation: Activation = "relu"
    """Of the feed-forward layers: relu, gelu, gelu_tanh, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings and residual branches."""
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    mlp_dropout_rate: Rate = 0.0
    """Dropout on the hidden units of the feed-forward layers."""
    scale_embedding: bool = True
    """Multiply the embeddings by sqrt(embed_dim)."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in LayerNorm."""
    shared_embedding: bool = True
    """Encoder and decoder read one embedding; otherwise each has its own."""
    tied: bool = True
    """The output projection is the decoder's embedding; otherwise it has a kernel of its own."""
    output_bias: bool = False
    """A number for each token of the output, added as a checkpoint brings it: it is not trained."""
    fixed_id: int | None = None
    """An id whose vector is read without being trained, as Transformers treats padding; None: all are trained."""
    start_id: int | None = None
    """What the decoder reads first; None means the family's own: padding, or EOS for BART."""

    architecture: ClassVar[Architecture] = "encoder-decoder"
    pretraining: ClassVar[Pretraining | None] = "sequence to sequence"
    below_layers: ClassVar[tuple[str, ...]] = (
        "token_embedding",
        "decoder_token_embedding",
        "encoder_embeddings",
        "decoder_embeddings",
    )
    texts_begin_with_cls: ClassVar[bool] = False
    """The published models read the vocabulary's first special id in front of each text."""
    positions: ClassVar[Positions] = "learned"
    """Sines and cosines, or a learned vector for each position."""
    position_offset: ClassVar[int] = 0
    """Rows of the position table before that of the first position."""
    norm_first: ClassVar[bool] = False
    """Pre-LN; otherwise post-LN."""
    norm_embedding: ClassVar[bool] = False
    """LayerNorm on the sum of the embeddings."""
    attention_bias: ClassVar[bool] = True
    """Biases in the projections of the attention."""
    starts_with: ClassVar[Literal["pad", "eos"]] = "pad"
    """What the decoder reads first unless `start_id` says it."""
    heads: ClassVar[tuple[TaskHead, ...]] = ()
    """Heads of tasks on the decoder."""
    num_classes: ClassVar[int] = 2
    """Logits of the heads classification and tagging."""
    head_dropout_rate: ClassVar[float] = 0.0
    """Dropout in the heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self)
        if self.num_decoder_heads is not None:
            check_heads(self, "num_decoder_heads")
        for field in ("fixed_id", "start_id"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < self.vocab_size:
                raise InputError(f"{field}={value} is no id below vocab_size={self.vocab_size}; choose one, or None")

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        if self.start_id is not None:
            return self.start_id
        return eos_id if self.starts_with == "eos" else pad_id

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "EncoderDecoder":
        return EncoderDecoder(self, dtype=dtype, remat=remat)

    def decoder_layer(self) -> LayerConfig:
        """The shape of a layer of the decoder."""
        num_heads = self.num_decoder_heads or self.num_heads
        widths = {"head_dim": self.embed_dim // num_heads, "mlp_dim": self.decoder_mlp_dim or self.mlp_dim}
        return replace(self.layer(), num_heads=num_heads, **widths)

    def layer(self) -> LayerConfig:
        """The shape of a layer of the encoder."""
        init = self.kernel_init
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.embed_dim // self.num_heads,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            attention_bias=self.attention_bias,
            norm_epsilon=self.norm_epsilon,
            norm_first=self.norm_first,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            mlp_dropout_rate=self.mlp_dropout_rate,
            query_init=init,
            kernel_init=init,
        )

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        """Of all matrix products."""
        return nn.initializers.normal(0.02)

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        """Of token and position embeddings."""
        return nn.initializers.normal(0.02)


class InputEmbeddings(nn.Module):
    """What a stack reads beside the tokens' vectors: positions, and a norm where the family has one."""

    config: EncoderDecoderConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, embedded: Float[Array, "B L D"], positions: Int[Array, "_ L"], *, deterministic: bool
    ) -> Float[Array, "B L D"]:
        c = self.config
        if c.positions == "learned":
            rows = c.position_offset + c.max_length
            table = LearnedPositions(rows, c.embed_dim, self.dtype, c.embedding_init, name="position")
            vectors = table(positions + c.position_offset)
        else:
            vectors = jnp.asarray(sinusoidal_positions(c.max_length, c.embed_dim), self.dtype)[positions]
        x = embedded * c.embed_dim**0.5 if c.scale_embedding else embedded
        x += vectors
        if c.norm_embedding:
            x = make_norm("layer", epsilon=c.norm_epsilon, dtype=self.dtype, name="norm")(x)
        return Dropout(c.dropout_rate)(x, deterministic=deterministic)


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
        self.encoder = Stack(c.layer(), c.num_encoder_layers, False, self.remat, self.dtype)
        self.decoder = Stack(c.decoder_layer(), c.num_decoder_layers, True, self.remat, self.dtype)
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
        scores = self._decoder_table.scores(hidden) if self.config.tied else self.output(hidden)
        return replace(scores, bias=self._fixed_bias())

    def read(
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
            self_mask=Mask.of_segments(decoder_segments, causal=True),
            memory=encoded,
            memory_mask=Mask.of_segments(decoder_segments, inputs_segments, valid=inputs_valid),
        )
        positions = self._positions(decoder_inputs, decoder_segments)
        x = self._embed_targets(decoder_inputs, positions, deterministic)
        return self.decoder(x, context, deterministic=deterministic)

    def encode(
        self,
        inputs: Int[Array, "B M"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B M D"]:
        """The encoder's output."""
        mask = Mask.of_segments(inputs_segments, valid=inputs_valid)
        positions = self._positions(inputs, inputs_segments)
        embedded = self._embed_tokens(self.token_embedding, inputs)
        x = self.encoder_embeddings(embedded, positions, deterministic=deterministic)
        return self.encoder(x, Context(self_mask=mask), deterministic=deterministic)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the encoder; what `decode_step` reads and writes, with room for `max_length` tokens."""
        self._check_length(max_length)
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        encoded = self.encode(inputs, inputs_valid=valid)
        output = (self._decoder_table if self.config.tied else self.output).output_kernel()
        return self.decoder.start_decoding(valid, output, memory=encoded, max_length=max_length)

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], DecodingCache]:
        """Logits after the decoder inputs at positions `index, index + 1, ...`, given what the cache holds before."""
        queries = (index + jnp.arange(decoder_inputs.shape[1]))[None, :]
        past = jnp.arange(cache.num_positions)[None, :] <= queries[0][:, None]
        x = self._embed_targets(decoder_inputs, queries, True)
        x, cache = self.decoder.decode(x, cache, position=index, mask=past[None, None])
        logits, bias = vocabulary_logits(x, cache.output, self.dtype), self._fixed_bias()
        return (logits if bias is None else logits + bias[None, None]), cache

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

    def _positions(self, ids: Int[Array, "B L"], segments: Int[Array, "B L"] | None) -> Int[Array, "_ L"]:
        self._check_length(ids.shape[1])
        return jnp.arange(ids.shape[1])[None] if segments is None else positions_in_segments(segments)

    def _check_length(self, length: int) -> None:
        if length > self.config.max_length:
            raise InputError(
                f"the rows have length {length}, the model has positions for max_length={self.config.max_length}; "
                f"cut them to {self.config.max_length} ids or choose a model with more positions"
            )

    def _fixed_bias(self) -> Float[Array, "V"] | None:
        return jax.lax.stop_gradient(self.output_bias) if self.config.output_bias else None
