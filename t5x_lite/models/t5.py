"""T5, mT5 and ByT5: encoder-decoder Transformers with relative position bias.

Raffel et al. 2020 (T5 v1.0), Shazeer 2020 and the T5 repository (v1.1), Xue et al. 2021 (mT5), Xue et al. 2022 (ByT5).
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, Dropout
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.positions import RelativePositionBias
from t5x_lite.layers.transformer import Context, DecodingCache, LayerConfig, Remat, Stack
from t5x_lite.models.base import Architecture, Pretraining, TextConfig
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate


@dataclass(frozen=True)
class T5Config(TextConfig):
    """The architecture of one T5. The defaults are T5 v1.0 small."""

    vocab_size: Positive = 32_128
    """Rows of the embedding: the tokenizer's ids, sentinels included, padded to a round number."""
    num_heads: Positive = 8
    """Attention heads a layer."""
    embed_dim: Positive = 512
    """Width of the residual stream (d_model)."""
    head_dim: Positive = 64
    """Width of one head (d_kv); need not be embed_dim / num_heads."""
    mlp_dim: Positive = 2048
    """Width of the feed-forward layer (d_ff)."""
    num_encoder_layers: Positive = 6
    """Layers of the encoder."""
    num_decoder_layers: Positive = 6
    """Layers of the decoder."""
    activation: Activation = "relu"
    """Of the feed-forward layer: relu (v1.0), gelu_tanh (v1.1), gelu, silu or tanh."""
    gated: bool = False
    """Gated feed-forward layer (v1.1)."""
    tied: bool = True
    """The output projection is the embedding (v1.0); otherwise it has a kernel of its own (v1.1)."""
    stacks_share_parameters: bool = False
    """Encoder and decoder have one set of layers, of which the decoder alone uses the cross-attention (table 2)."""
    scale_output: bool = True
    """Multiply the decoder's output by embed_dim ** -0.5 before the projection (v1.0)."""
    relative_buckets: Annotated[int, Range(ge=4)] = 32
    """Buckets of the relative position bias."""
    relative_max_distance: int = 128
    """Distance from which on all positions share a bucket."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings, attention weights, hidden units and residual branches (0 in v1.1's pretraining).

    What is dropped is the same at all positions of a row, as in Mesh TensorFlow's T5.
    """
    norm_epsilon: NormEpsilon = 1e-6
    """Added to the mean square in RMSNorm."""

    architecture: ClassVar[Architecture] = "encoder-decoder"
    pretraining: ClassVar[Pretraining] = "span corruption"
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "encoder_position_bias", "decoder_position_bias")
    texts_begin_with_cls: ClassVar[bool] = False
    """See `EncoderDecoderConfig`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_buckets(self)
        if self.stacks_share_parameters and self.num_encoder_layers != self.num_decoder_layers:
            raise InputError(
                f"stacks_share_parameters needs stacks of one depth, not num_encoder_layers={self.num_encoder_layers} "
                f"and num_decoder_layers={self.num_decoder_layers}; make them equal"
            )

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "T5":
        return T5(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """The shape of a layer of either stack, initialised as in Mesh TensorFlow's T5."""
        # The logits are not divided by sqrt(head_dim); the query's initialiser carries that factor instead. This
        # holds under optimizers whose step is relative to the parameter's scale, as Adafactor's is.
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            gated=self.gated,
            use_bias=False,
            norm="rms",
            norm_epsilon=self.norm_epsilon,
            norm_first=True,
            attention_scale=1.0,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.dropout_rate,
            mlp_dropout_rate=self.dropout_rate,
            positions_share_dropout=True,
            query_init=nn.initializers.variance_scaling(1.0 / self.head_dim, "fan_in", "normal"),
            kernel_init=nn.initializers.variance_scaling(1.0, "fan_in", "normal"),
        )


class T5(nn.Module):
    """Encoder and decoder over one embedding. Logits are float32 whatever `dtype` the layers compute in."""

    config: T5Config
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype)
        self.encoder_position_bias = self._position_bias(bidirectional=True)
        self.decoder_position_bias = self._position_bias(bidirectional=False)
        self.decoder = Stack(c.layer(), c.num_decoder_layers, True, self.remat, self.dtype)
        if c.stacks_share_parameters:
            self.encoder = self.decoder
        else:
            self.encoder = Stack(c.layer(), c.num_encoder_layers, False, self.remat, self.dtype)
        self.dropout = Dropout(c.dropout_rate, c.layer().positions_share_dropout)
        if not c.tied:
            self.output = Unembedding(c.vocab_size, self.dtype)

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
          decoder_inputs: the targets shifted right by one, the start id (T5: padding) in front.
          inputs_valid: true where `inputs` is no padding; None means everywhere.
          inputs_segments, decoder_segments: for packed rows: tokens see those of their own segment alone.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.
        """
        encoded = self.encode(
            inputs, inputs_valid=inputs_valid, inputs_segments=inputs_segments, deterministic=deterministic
        )
        length = decoder_inputs.shape[1]
        context = Context(
            self_bias=self.decoder_position_bias(length, length),
            self_mask=Mask.of_segments(decoder_segments, causal=True),
            memory=encoded,
            memory_mask=Mask.of_segments(decoder_segments, inputs_segments, valid=inputs_valid),
        )
        x = self._embed(decoder_inputs, deterministic)
        x = self.dropout(self.decoder(x, context, deterministic=deterministic), deterministic=deterministic)
        x = self._scaled(x)
        return self.token_embedding.scores(x) if self.config.tied else self.output(x)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the encoder; what `decode_step` reads and writes, with room for `max_length` tokens."""
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        encoded = self.encode(inputs, inputs_valid=valid)
        output = (self.token_embedding if self.config.tied else self.output).output_kernel()
        return self.decoder.start_decoding(valid, output, memory=encoded, max_length=max_length)

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], DecodingCache]:
        """Logits after the decoder inputs at positions `index, index + 1, ...`, given what the cache holds before."""
        length, positions = decoder_inputs.shape[1], cache.num_positions
        past = jnp.arange(positions)[None, :] <= index + jnp.arange(length)[:, None]
        bias = self.decoder_position_bias(positions, positions).of_queries(index, length)
        x = self._embed(decoder_inputs, True)
        x, cache = self.decoder.decode(x, cache, position=index, mask=past[None, None], bias=bias)
        return vocabulary_logits(self._scaled(x), cache.output, self.dtype), cache

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
            self_bias=self.encoder_position_bias(length, length),
            self_mask=Mask.of_segments(inputs_segments, valid=inputs_valid),
        )
        x = self.encoder(self._embed(inputs, deterministic), context, deterministic=deterministic)
        return self.dropout(x, deterministic=deterministic)

    def _embed(self, ids: Int[Array, "B L"], deterministic: bool) -> Float[Array, "B L D"]:
        return self.dropout(self.token_embedding(ids), deterministic=deterministic)

    def _scaled(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        return x * self.config.embed_dim**-0.5 if self.config.scale_output else x

    def _position_bias(self, *, bidirectional: bool) -> RelativePositionBias:
        c = self.config
        return RelativePositionBias(c.num_heads, bidirectional, c.relative_buckets, c.relative_max_distance)


def check_buckets(config: Any) -> None:
    """Raises `InputError` for a relative position bias without distances."""
    if config.relative_max_distance <= config.relative_buckets // 2:
        raise InputError(
            f"relative_max_distance={config.relative_max_distance} leaves no distances for the logarithmic half of "
            f"relative_buckets={config.relative_buckets}; choose more than {config.relative_buckets // 2}"
        )


def _presets() -> dict[str, T5Config]:
    small = T5Config()
    base = replace(small, embed_dim=768, num_heads=12, mlp_dim=3072, num_encoder_layers=12, num_decoder_layers=12)
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_encoder_layers=24, num_decoder_layers=24)
    xl = replace(large, num_heads=32, head_dim=128, mlp_dim=16_384)
    xxl = replace(xl, num_heads=128, mlp_dim=65_536)
    v1_0 = {"small": small, "base": base, "large": large, "3b": xl, "11b": xxl}

    # v1.1 (and mT5 and ByT5 after it): gated, untied, wider and with fewer or narrower heads than v1.0.
    gated = replace(small, activation="gelu_tanh", gated=True, tied=False, scale_output=False)
    v1_1 = {
        "small": replace(gated, num_heads=6, mlp_dim=1024, num_encoder_layers=8, num_decoder_layers=8),
        "base": replace(gated, embed_dim=768, num_heads=12, mlp_dim=2048, num_encoder_layers=12, num_decoder_layers=12),
        "large": replace(
            gated, embed_dim=1024, num_heads=16, mlp_dim=2816, num_encoder_layers=24, num_decoder_layers=24
        ),
        "xl": replace(gated, embed_dim=2048, num_heads=32, mlp_dim=5120, num_encoder_layers=24, num_decoder_layers=24),
        "xxl": replace(
            gated, embed_dim=4096, num_heads=64, mlp_dim=10_240, num_encoder_layers=24, num_decoder_layers=24
        ),
    }
    # ByT5 moves depth from the decoder to the encoder (Xue et al. 2022, table 1).
    byt5_shape = {
        "small": (1472, 6, 3584, 12, 4),
        "base": (1536, 12, 3968, 18, 6),
        "large": (1536, 16, 3840, 36, 12),
        "xl": (2560, 32, 6720, 36, 12),
        "xxl": (4672, 64, 12_352, 36, 12),
    }
    shape_fields = ("embed_dim", "num_heads", "mlp_dim", "num_encoder_layers", "num_decoder_layers")
    return (
        {f"t5-{size}": config for size, config in v1_0.items()}
        | {f"t5-v1_1-{size}": config for size, config in v1_1.items()}
        | {f"mt5-{size}": replace(config, vocab_size=250_112) for size, config in v1_1.items()}
        | {
            f"byt5-{size}": replace(gated, vocab_size=384, **dict(zip(shape_fields, shape, strict=True)))
            for size, shape in byt5_shape.items()
        }
    )


PRESETS: dict[str, T5Config] = _presets()
"""The published sizes under their public names: `t5-small` .. `t5-11b`, `t5-v1_1-*`, `mt5-*`, `byt5-*`."""
