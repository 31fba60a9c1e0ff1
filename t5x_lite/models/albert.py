"""ALBERT: narrow embeddings, and one layer's parameters for all layers (Lan et al. 2020)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from t5x_lite.layers.dense import Activation
from t5x_lite.models.base import Pretraining
from t5x_lite.models.encoder import EncoderConfig
from t5x_lite.validation import Positive, Rate


@dataclass(frozen=True)
class AlbertConfig(EncoderConfig):
    """The architecture of one ALBERT. The defaults are base, version 2."""

    vocab_size: Positive = 30_000
    """Rows of the token embedding: the tokenizer's ids or more."""
    activation: Activation = "gelu_tanh"
    """Of the feed-forward layer: gelu, gelu_tanh, relu, silu or tanh."""
    dropout_rate: Rate = 0.0
    """Dropout on embeddings and residual branches (0.1 in version 1 up to xlarge)."""
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights (0.1 in version 1 up to xlarge)."""
    token_embed_dim: Positive = 128
    """Width of the embeddings, which a dense layer projects to embed_dim."""
    num_segments: Positive = 2
    """Rows of the segment embedding: the two segments of a pair."""
    pooler: bool = True
    """A dense layer on the first position, for tasks on whole rows; sentence-order prediction trains it."""

    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm", "sentence_pair")
    layers_share_parameters: ClassVar[bool] = True
    projects_embeddings: ClassVar[bool] = True

    @property
    def pretraining(self) -> Pretraining | None:
        usual = super().pretraining
        return "masked language model, sentence order" if "sentence_pair" in self.heads and usual else usual


def _presets() -> dict[str, AlbertConfig]:
    base = AlbertConfig()
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    xlarge = replace(large, embed_dim=2048, mlp_dim=8192)
    xxlarge = replace(base, embed_dim=4096, num_heads=64, mlp_dim=16_384)
    sizes = {"base": base, "large": large, "xlarge": xlarge, "xxlarge": xxlarge}
    # Version 2 was trained without dropout, version 1 without it in xxlarge alone.
    rates = {size: 0.0 if size == "xxlarge" else 0.1 for size in sizes}
    version_1 = {
        size: replace(config, dropout_rate=rates[size], attention_dropout_rate=rates[size])
        for size, config in sizes.items()
    }
    return {f"albert-{size}-v1": config for size, config in version_1.items()} | {
        f"albert-{size}-v2": config for size, config in sizes.items()
    }


PRESETS: dict[str, AlbertConfig] = _presets()
"""The published sizes under their public names: `albert-base-v1` .. `albert-xxlarge-v2`. Without heads."""
