"""GPT, GPT-2 and GPT-3: language models with learned positions (Radford et al. 2018, 2019; Brown et al. 2020)."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from flax import linen as nn

from t5x_lite.layers.dense import LayerConfig
from t5x_lite.models.base import TaskHead
from t5x_lite.models.decoder import DecoderConfig
from t5x_lite.validation import Positive, Range, Rate


@dataclass(frozen=True)
class GptConfig(DecoderConfig):
    """The architecture of one GPT. The defaults are GPT-2 small."""

    vocab_size: Positive = 50_257
    max_length: Annotated[int, Range(ge=4)] = 1024
    """Positions that can be used, prompt and answer together."""
    head_dim: Positive | None = None
    """Width of one head; None means embed_dim / num_heads."""
    norm_first: bool = True
    """Pre-LN, with a norm after the stack (GPT-2, GPT-3); otherwise post-LN (GPT)."""
    attention_scale: Annotated[float, Range(gt=0, remedy="choose e.g. 1.0, or None")] | None = None
    """Factor of the attention's logits; None means head_dim ** -0.5."""
    dropout_rate: Rate = 0.1
    """Dropout on residual branches."""
    attention_dropout_rate: Rate = 0.1
    """Dropout on attention weights."""
    embedding_dropout_rate: Rate = 0.1
    """Dropout on the embeddings."""
    heads: tuple[TaskHead, ...] = ()
    """Heads of tasks beside the output: classification, multiple_choice."""
    num_classes: Positive = 2
    """Logits of the head classification; 1: a number is predicted."""
    head_dropout_rate: Rate = 0.1
    """Dropout in the heads."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification", "multiple_choice")
    classes_have_bias: ClassVar[bool] = False  # as in equation 3 of GPT's paper

    def layer(self) -> LayerConfig:
        # GPT-2 keeps the sum of its residual branches as it is at any depth (Radford et al. 2019, section 2.3).
        ends = nn.initializers.normal(0.02 * (2 * self.num_layers) ** -0.5) if self.norm_first else None
        return replace(super().layer(), attention_scale=self.attention_scale, residual_init=ends)


def _gpt3(num_layers: int, embed_dim: int, num_heads: int) -> GptConfig:
    rates = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "embedding_dropout_rate"), 0.0)
    widths = {"embed_dim": embed_dim, "num_heads": num_heads, "mlp_dim": 4 * embed_dim}
    return GptConfig(num_layers=num_layers, max_length=2048, **widths, **rates)


PRESETS: dict[str, GptConfig] = {
    "openai-gpt": GptConfig(vocab_size=40_478, max_length=512, norm_first=False),
    "gpt2": GptConfig(),
    "gpt2-medium": GptConfig(num_layers=24, embed_dim=1024, num_heads=16, mlp_dim=4096),
    "gpt2-large": GptConfig(num_layers=36, embed_dim=1280, num_heads=20, mlp_dim=5120),
    "gpt2-xl": GptConfig(num_layers=48, embed_dim=1600, num_heads=25, mlp_dim=6400),
    # Brown et al. 2020, table 2.1; dense attention in every layer. Where the table contradicts itself, its heads of 128
    # and its number of parameters are kept: XL has 16 heads, not 24, and 13B is 5,120 wide, not 5,140.
    "gpt3-small": _gpt3(12, 768, 12),
    "gpt3-medium": _gpt3(24, 1024, 16),
    "gpt3-large": _gpt3(24, 1536, 16),
    "gpt3-xl": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12_288, 96),
}
"""The published sizes under their public names."""
