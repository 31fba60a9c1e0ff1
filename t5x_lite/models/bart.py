"""BART: a post-LN encoder-decoder that learned to undo noise (Lewis et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from t5x_lite.models.encoder_decoder import EncoderDecoderConfig


@dataclass(frozen=True)
class BartConfig(EncoderDecoderConfig):
    """The architecture of one BART. The defaults are base."""

    vocab_size: int = 50_265
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    num_heads: int = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: int = 768
    """Width of the residual stream (d_model)."""
    mlp_dim: int = 3072
    """Width of the feed-forward layers (d_ff)."""
    activation: str = "gelu"
    """Of the feed-forward layers: gelu, gelu_tanh, relu, silu or tanh."""
    attention_dropout_rate: float = 0.1
    """Dropout on attention weights."""
    scale_embedding: bool = False
    """Multiply the embeddings by sqrt(embed_dim)."""

    position_offset: ClassVar[int] = 2  # fairseq counts positions from its padding id + 1
    norm_embedding: ClassVar[bool] = True
    starts_with: ClassVar[Literal["pad", "eos"]] = "eos"


PRESETS: dict[str, BartConfig] = {
    "bart-base": BartConfig(),
    "bart-large": BartConfig(embed_dim=1024, num_heads=16, mlp_dim=4096, num_encoder_layers=12, num_decoder_layers=12),
}
"""The published sizes under their public names."""
