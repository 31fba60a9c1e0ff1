"""The Transformer of Vaswani et al. 2017, and Marian's, which has further biases (Junczys-Dowmunt et al. 2018)."""

from dataclasses import dataclass, replace

from flax import linen as nn

from t5x_lite.models.encoder_decoder import EncoderDecoderConfig, Positions
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class TransformerConfig(EncoderDecoderConfig):
    """The architecture of one Transformer. The defaults are base (table 3), with the vocabulary of WMT14 en-de."""

    vocab_size: Positive = 37_000
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    positions: Positions = "sinusoidal"
    """Sines and cosines (section 3.5), or a learned vector for each position (table 3, row E)."""
    norm_first: bool = False
    """Pre-LN (Xiong et al. 2020), with a norm behind each stack; otherwise post-LN, as published."""
    attention_bias: bool = False
    """Biases in the projections of the attention (Marian has them)."""

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.xavier_uniform()

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        # So that the embeddings, scaled by sqrt(embed_dim), begin with variance one.
        return nn.initializers.normal(self.embed_dim**-0.5 if self.scale_embedding else 0.02)


def _presets() -> dict[str, TransformerConfig]:
    base = TransformerConfig()
    big = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, dropout_rate=0.3)
    # English-French has 32,000 word pieces, and a big model with less dropout (section 5.1, table 3's note, 6.1).
    french = {"vocab_size": 32_000}
    return {
        "transformer-base-en-de": base,
        "transformer-big-en-de": big,
        "transformer-base-en-fr": replace(base, **french),
        "transformer-big-en-fr": replace(big, dropout_rate=0.1, **french),
    }


PRESETS: dict[str, TransformerConfig] = _presets()
"""The two sizes with the two vocabularies of the paper: `transformer-base-en-de` .. `transformer-big-en-fr`."""
