"""Encoder-decoders of absolute positions: the Transformer of 2017, Marian's, and BART.

Vaswani et al. 2017; Junczys-Dowmunt et al. 2018 (Marian, which has further biases); Lewis et al. 2020 (BART, which
learned to undo noise).
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, LayerConfig
from t5x_lite.models.base import Pretraining, TaskHead, check_heads
from t5x_lite.models.encoder_decoder import EncoderDecoderConfig
from t5x_lite.validation import Positive, Range, Rate


@dataclass(frozen=True)
class AbsolutePositionsConfig(EncoderDecoderConfig):
    """What the families have in common whose positions are vectors, fixed or learned."""

    num_decoder_heads: Positive | None = None
    """Attention heads a layer of the decoder; None means num_heads."""
    decoder_mlp_dim: Positive | None = None
    """Width of the decoder's feed-forward layers; None means mlp_dim."""
    max_length: Annotated[int, Range(ge=2)] = 1024
    """Positions that can be used: the longest row of either side."""
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    mlp_dropout_rate: Rate = 0.0
    """Dropout on the hidden units of the feed-forward layers."""
    scale_embedding: bool = True
    """Multiply the embeddings by sqrt(embed_dim)."""
    shared_embedding: bool = True
    """Encoder and decoder read one embedding; otherwise each has its own."""
    output_bias: bool = False
    fixed_id: int | None = None
    """An id whose vector is read without being trained, as Transformers treats padding; None: all are trained."""
    start_id: int | None = None
    """What the decoder reads first; None means the family's own: padding, or EOS for BART."""

    attention_bias: ClassVar[bool] = True
    """Biases in the projections of the attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_decoder_heads is not None:
            check_heads(self, "num_decoder_heads")
        for field in ("fixed_id", "start_id"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < self.vocab_size:
                raise InputError(
                    f"{field}={value} is not an id below vocab_size={self.vocab_size}; choose one, or None"
                )

    def layer(self) -> LayerConfig:
        return replace(super().layer(), attention_bias=self.attention_bias, mlp_dropout_rate=self.mlp_dropout_rate)

    def decoder_layer(self) -> LayerConfig:
        num_heads = self.num_decoder_heads or self.num_heads
        widths = {"head_dim": self.embed_dim // num_heads, "mlp_dim": self.decoder_mlp_dim or self.mlp_dim}
        return replace(self.layer(), num_heads=num_heads, **widths)

    @property
    def output_init(self) -> nn.initializers.Initializer:
        return self.kernel_init


_MOST_SINUSOIDS = 1 << 27  # half a gigabyte in float32


@dataclass(frozen=True)
class TransformerConfig(AbsolutePositionsConfig):
    """The architecture of one Transformer. The defaults are base (table 3), with the vocabulary of WMT14 en-de."""

    vocab_size: Positive = 37_000
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Sines and cosines (section 3.5), or a learned vector for each position (table 3, row E)."""
    norm_first: bool = False
    """Pre-LN (Xiong et al. 2020), with a norm after each stack; otherwise post-LN, as published."""
    attention_bias: bool = False
    """Biases in the projections of the attention (Marian has them)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions == "sinusoidal" and self.max_length > (most := _MOST_SINUSOIDS // self.embed_dim):
            raise InputError(
                f"max_length={self.max_length} makes a table of {self.max_length * self.embed_dim:,} sines and cosines "
                f"in the program; choose {most} or less"
            )

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.xavier_uniform()

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        # So that the embeddings, scaled by sqrt(embed_dim), begin with variance one.
        return nn.initializers.normal(self.embed_dim**-0.5 if self.scale_embedding else 0.02)


@dataclass(frozen=True)
class BartConfig(AbsolutePositionsConfig):
    """The architecture of one BART. The defaults are base."""

    vocab_size: Positive = 50_265
    num_heads: Positive = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 768
    mlp_dim: Positive = 3072
    activation: Activation = "gelu"
    attention_dropout_rate: Rate = 0.1
    scale_embedding: bool = False
    heads: tuple[TaskHead, ...] = ()
    """Heads of tasks on the decoder: classification, tagging, question_answering."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.0
    """Dropout in the heads classification and tagging."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification", "tagging", "question_answering")
    row_activation: ClassVar[str] = "tanh"
    drops_first: ClassVar[bool] = True
    position_offset: ClassVar[int] = 2  # fairseq counts positions from its padding id + 1
    norm_embedding: ClassVar[bool] = True
    starts_with: ClassVar[Literal["pad", "eos"]] = "eos"
    texts_begin_with_cls: ClassVar[bool] = True

    @property
    def pretraining(self) -> Pretraining | None:
        return None if self.heads else "denoising"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads and (self.output_bias or not self.tied):
            raise InputError(
                f"heads={self.heads} take the place of an output with parameters of its own (tied={self.tied}, "
                f"output_bias={self.output_bias}); set tied to True and output_bias to False"
            )


def _presets() -> dict[str, EncoderDecoderConfig]:
    base = TransformerConfig()
    big = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, dropout_rate=0.3)
    # English-French has 32,000 word pieces, and a big model with less dropout (section 5.1, table 3's note, 6.1).
    french = {"vocab_size": 32_000}
    bart_large = {"embed_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_encoder_layers": 12}
    return {
        "transformer-base-en-de": base,
        "transformer-big-en-de": big,
        "transformer-base-en-fr": replace(base, **french),
        "transformer-big-en-fr": replace(big, dropout_rate=0.1, **french),
        "bart-base": BartConfig(),
        "bart-large": BartConfig(**bart_large, num_decoder_layers=12),
    }


PRESETS: dict[str, EncoderDecoderConfig] = _presets()
"""The two sizes of Vaswani et al. with their two vocabularies, `transformer-base-en-de` .. `transformer-big-en-fr`; and
`bart-base`, `bart-large`."""
