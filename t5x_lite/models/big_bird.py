"""BigBird's encoder, BERT over rows of 4,096 tokens by block-sparse attention (Zaheer et al. 2020), and Pegasus with
one like it."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.dense import Activation, LayerConfig
from t5x_lite.layers.heads import SpanClassifier
from t5x_lite.layers.linformer import Linformer
from t5x_lite.models.base import Positions
from t5x_lite.models.bert import BertConfig
from t5x_lite.models.transformer import AbsolutePositionsConfig
from t5x_lite.validation import Positive, Range


@dataclass(frozen=True)
class BigBirdConfig(BertConfig):
    """The architecture of one BigBird encoder. The defaults are base, without its head.

    The first and the last block of a row are its global tokens (BigBird-ITC).
    """

    vocab_size: Positive = 50_358
    max_length: Annotated[int, Range(ge=2)] = 4096
    """Positions that can be used: the longest row."""
    activation: Activation = "gelu_tanh"
    attention: Linformer | BigBird | None = BigBird()
    """What tokens attend to each other by; None: every token to all others."""

    row_activation: ClassVar[str] = "gelu_tanh"
    drops_first: ClassVar[bool] = True

    def question_answering_head(self, dtype: Any) -> nn.Module:
        return SpanClassifier(self.layer(), self.dropout_rate, dtype)

    def reads_pooled(self, head: str) -> bool:
        return head in ("sentence_pair", "multiple_choice")


@dataclass(frozen=True)
class BigBirdPegasusConfig(AbsolutePositionsConfig):
    """The architecture of one encoder-decoder for long inputs (section 4 and appendix E.5). The defaults are large.

    Pegasus's stacks (Zhang et al. 2020) with norms before their layers, of which the encoder's attends by blocks.
    """

    vocab_size: Positive = 96_103
    num_heads: Positive = 16
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 1024
    mlp_dim: Positive = 4096
    num_encoder_layers: Positive = 16
    num_decoder_layers: Positive = 16
    activation: Activation = "gelu_tanh"
    max_length: Annotated[int, Range(ge=2)] = 4096
    """Positions that can be used: the longest row of either side."""
    attention: BigBird | None = BigBird()
    """What the encoder's tokens attend to each other by; None: every token to all others."""
    attention_bias: bool = False
    """Biases in the projections of the attention."""

    positions: ClassVar[Positions] = "learned"
    norm_first: ClassVar[bool] = True
    packs_rows: ClassVar[bool] = False  # blocks know of no segments

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention is not None and self.attention.num_global_tokens:
            raise InputError(
                f"attention.num_global_tokens={self.attention.num_global_tokens} are for encoders without a decoder; "
                "choose 0, so that the first and the last block are global"
            )

    def layer(self) -> LayerConfig:
        return replace(super().layer(), attention=self.attention, max_length=self.max_length)

    def decoder_layer(self) -> LayerConfig:
        return replace(super().decoder_layer(), attention=None)

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.02)

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.02)


def _presets() -> dict[str, BigBirdConfig | BigBirdPegasusConfig]:
    base = BigBirdConfig()
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    return {
        "bigbird-roberta-base": base,
        "bigbird-roberta-large": large,
        "bigbird-pegasus-large": BigBirdPegasusConfig(),
    }


PRESETS: dict[str, BigBirdConfig | BigBirdPegasusConfig] = _presets()
"""The published sizes under their public names."""
