"""T5, mT5 and ByT5: Transformers with relative position bias, as encoder-decoders or as one of their stacks alone.

Raffel et al. 2020 (T5 v1.0, and its decoder as a language model and as a prefix language model, section 3.2), Shazeer
2020 and the T5 repository (v1.1), Xue et al. 2021 (mT5), Xue et al. 2022 (ByT5).
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, LayerConfig
from t5x_lite.layers.embedding import Embedding
from t5x_lite.models.base import GeneratorConfig, Hidden, Ids, ModelConfig, Positions, Pretraining, TextConfig, Valid
from t5x_lite.models.decoder import DecoderConfig
from t5x_lite.models.encoder import EncoderConfig
from t5x_lite.models.encoder_decoder import EncoderDecoderConfig
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate


@dataclass(frozen=True)
class T5Sizes(TextConfig):
    """What T5 and each of its stacks alone have in common."""

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
    activation: Activation = "relu"
    """Of the feed-forward layer: relu (v1.0), gelu_tanh (v1.1), gelu, quick_gelu, silu or tanh."""
    gated: bool = False
    """Gated feed-forward layer (v1.1)."""
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

    positions: ClassVar[Positions] = "relative"
    norm_first: ClassVar[bool] = True
    output_dropout_rate = property(lambda self: self.dropout_rate)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise InputError(
                f"relative_max_distance={self.relative_max_distance} leaves no distances for the logarithmic half of "
                f"relative_buckets={self.relative_buckets}; choose more than {self.relative_buckets // 2}"
            )

    def layer(self) -> LayerConfig:
        # The logits are not divided by sqrt(head_dim); the query's initialiser carries that factor instead. This
        # holds under optimizers whose step is relative to the parameter's scale, as Adafactor's is.
        return replace(
            super().layer(),
            gated=self.gated,
            use_bias=False,
            norm="rms",
            attention_scale=1.0,
            mlp_dropout_rate=self.dropout_rate,
            positions_share_dropout=True,
            query_init=nn.initializers.variance_scaling(1.0 / self.head_dim, "fan_in", "normal"),
        )

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.variance_scaling(1.0, "fan_in", "normal")

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(1.0)


@dataclass(frozen=True)
class T5LayerConfig(T5Sizes, GeneratorConfig):
    """What T5 and its decoder alone have in common."""

    tied: bool = True
    """The output projection is the embedding (v1.0); otherwise it has a kernel of its own (v1.1)."""
    scale_output: bool = True
    """Multiply the decoder's output by embed_dim ** -0.5 before the projection (v1.0)."""

    attention_dropout_rate = embedding_dropout_rate = property(lambda self: self.dropout_rate)

    @property
    def output_scale(self) -> float:
        return self.embed_dim**-0.5 if self.scale_output else 1.0


@dataclass(frozen=True)
class T5Config(T5LayerConfig, EncoderDecoderConfig):
    """The architecture of one T5. The defaults are T5 v1.0 small."""

    stacks_share_parameters: bool = False
    """Encoder and decoder have one set of layers, of which the decoder alone uses the cross-attention (table 2)."""

    pretraining: ClassVar[Pretraining] = "span corruption"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stacks_share_parameters and self.num_encoder_layers != self.num_decoder_layers:
            raise InputError(
                f"stacks_share_parameters needs stacks of one depth, not num_encoder_layers={self.num_encoder_layers} "
                f"and num_decoder_layers={self.num_decoder_layers}; make them equal"
            )


@dataclass(frozen=True)
class T5DecoderConfig(T5LayerConfig, DecoderConfig):
    """The architecture of one T5 decoder. The defaults are those of T5 v1.0 small's, as a language model."""

    num_layers: Positive = 6
    """As many as one of T5's stacks has (P parameters), or as both together (2P)."""
    full_prefix: bool = False
    """A prefix LM: inputs see each other whole (figure 4); otherwise they too see only what is before them."""

    answers_prompts: ClassVar[bool] = True


class TokensAlone(nn.Module):
    """The tokens' vectors, to which nothing is added."""

    vocab_size: int
    embed_dim: int
    embedding_init: nn.initializers.Initializer
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.token = Embedding(self.vocab_size, self.embed_dim, self.dtype, self.embedding_init)

    def __call__(self, ids: Ids, segments: Ids | None = None, valid: Valid = None) -> Hidden:
        return self.token(ids)


@dataclass(frozen=True)
class T5EncoderConfig(T5Sizes, EncoderConfig):
    """The architecture of one T5's encoder without its decoder. The defaults are those of T5 v1.0 small."""

    num_layers: Positive = 6
    max_length: Annotated[int, Range(ge=2)] = 1 << 20
    """The longest row; positions are relative, so that any number does."""

    known_heads: ClassVar[tuple[str, ...]] = ()
    task_heads: ClassVar[tuple[str, ...]] = ()
    texts_begin_with_cls: ClassVar[bool] = False
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings", "position_bias")

    def embeddings(self, dtype: Any) -> nn.Module:
        return TokensAlone(self.vocab_size, self.embed_dim, self.embedding_init, dtype)


def _presets() -> dict[str, ModelConfig]:
    small = T5Config()
    base = replace(small, embed_dim=768, num_heads=12, mlp_dim=3072, num_encoder_layers=12, num_decoder_layers=12)
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_encoder_layers=24, num_decoder_layers=24)
    xl = replace(large, num_heads=32, head_dim=128, mlp_dim=16_384)
    xxl = replace(xl, num_heads=128, mlp_dim=65_536)
    v1_0 = {"small": small, "base": base, "large": large, "3b": xl, "11b": xxl}

    # v1.1 (and mT5 and ByT5 after it): gated, untied, wider and with fewer or narrower heads than v1.0.
    gated = replace(small, activation="gelu_tanh", gated=True, tied=False, scale_output=False)
    shape_fields = ("embed_dim", "num_heads", "mlp_dim", "num_encoder_layers", "num_decoder_layers")
    v1_1_shapes = {
        "small": (512, 6, 1024, 8, 8),
        "base": (768, 12, 2048, 12, 12),
        "large": (1024, 16, 2816, 24, 24),
        "xl": (2048, 32, 5120, 24, 24),
        "xxl": (4096, 64, 10_240, 24, 24),
    }
    # ByT5 moves depth from the decoder to the encoder (Xue et al. 2022, table 1).
    byt5_shapes = {
        "small": (1472, 6, 3584, 12, 4),
        "base": (1536, 12, 3968, 18, 6),
        "large": (1536, 16, 3840, 36, 12),
        "xl": (2560, 32, 6720, 36, 12),
        "xxl": (4672, 64, 12_352, 36, 12),
    }
    v1_1, byt5 = (
        {size: replace(gated, **dict(zip(shape_fields, shape, strict=True))) for size, shape in shapes.items()}
        for shapes in (v1_1_shapes, byt5_shapes)
    )
    shared = [field.name for field in fields(T5LayerConfig)]
    decoders = {
        f"t5-{kind}-{size}{suffix}": T5DecoderConfig(
            **{name: getattr(config, name) for name in shared},
            num_layers=stacks * config.num_decoder_layers,
            full_prefix=kind == "prefix-lm",
        )
        for kind in ("lm", "prefix-lm")
        for size, config in v1_0.items()
        for suffix, stacks in (("", 1), ("-2p", 2))
    }
    return (
        {f"t5-{size}": config for size, config in v1_0.items()}
        | {f"t5-v1_1-{size}": config for size, config in v1_1.items()}
        | {f"mt5-{size}": replace(config, vocab_size=250_112) for size, config in v1_1.items()}
        | {f"byt5-{size}": replace(config, vocab_size=384) for size, config in byt5.items()}
        | decoders
    )


PRESETS: dict[str, ModelConfig] = _presets()
"""The published sizes under their public names: `t5-small` .. `t5-11b`, `t5-v1_1-*`, `mt5-*`, `byt5-*`; and of decoders
`t5-lm-*` and `t5-prefix-lm-*`, small to 11b: one of T5's stacks (P parameters, table 2), or `-2p` both together."""
