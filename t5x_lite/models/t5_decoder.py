"""T5's decoder alone: a language model, or a prefix language model (Raffel et al. 2020, section 3.2)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from flax import linen as nn

from t5x_lite.layers.dense import Activation
from t5x_lite.layers.transformer import LayerConfig
from t5x_lite.models.decoder import DecoderConfig
from t5x_lite.models.t5 import PRESETS as T5_PRESETS
from t5x_lite.models.t5 import T5Config, check_buckets
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate


@dataclass(frozen=True)
class T5DecoderConfig(DecoderConfig):
    """The architecture of one T5 decoder. The defaults are those of T5 v1.0 small's, as a language model."""

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
    num_layers: Positive = 6
    """Layers: as many as one of T5's stacks (P parameters), or as both together (2P)."""
    activation: Activation = "relu"
    """Of the feed-forward layer: relu (v1.0), gelu_tanh (v1.1), gelu, silu or tanh."""
    gated: bool = False
    """Gated feed-forward layer (v1.1)."""
    full_prefix: bool = False
    """A prefix LM: inputs see each other whole (figure 4); otherwise they too see only what is before them."""
    scale_output: bool = True
    """Multiply the last layer's output by embed_dim ** -0.5 before the projection (v1.0)."""
    relative_buckets: Annotated[int, Range(ge=4)] = 32
    """Buckets of the relative position bias."""
    relative_max_distance: int = 128
    """Distance from which on all positions share a bucket."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings, attention weights, hidden units and residual branches, the same at all positions."""
    norm_epsilon: NormEpsilon = 1e-6
    """Added to the mean square in RMSNorm."""

    answers_prompts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_buckets(self)

    def layer(self) -> LayerConfig:
        return self._as_t5().layer()

    def _as_t5(self) -> T5Config:
        shared = ("vocab_size", "num_heads", "embed_dim", "head_dim", "mlp_dim", "activation", "gated", "dropout_rate")
        return T5Config(**{name: getattr(self, name) for name in shared}, norm_epsilon=self.norm_epsilon)

    @property
    def embedding_dropout_rate(self) -> float:
        return self.dropout_rate

    @property
    def output_dropout_rate(self) -> float:
        return self.dropout_rate

    @property
    def output_scale(self) -> float:
        return self.embed_dim**-0.5 if self.scale_output else 1.0

    @property
    def embedding_init(self) -> Any:
        return nn.initializers.normal(1.0)


def _of(t5: T5Config, *, stacks: int, full_prefix: bool) -> T5DecoderConfig:
    shared = ("vocab_size", "num_heads", "embed_dim", "head_dim", "mlp_dim", "activation", "gated", "tied")
    return T5DecoderConfig(
        **{name: getattr(t5, name) for name in shared},
        num_layers=stacks * t5.num_decoder_layers,
        full_prefix=full_prefix,
        scale_output=t5.scale_output,
        dropout_rate=t5.dropout_rate,
    )


def _presets() -> dict[str, T5DecoderConfig]:
    kinds = {"lm": {"full_prefix": False}, "prefix-lm": {"full_prefix": True}}
    sizes = {
        name.removeprefix("t5-"): T5_PRESETS[name] for name in ("t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b")
    }
    return {
        f"t5-{kind}-{size}{suffix}": _of(t5, stacks=stacks, **options)
        for kind, options in kinds.items()
        for size, t5 in sizes.items()
        for suffix, stacks in (("", 1), ("-2p", 2))
    }


PRESETS: dict[str, T5DecoderConfig] = _presets()
"""`t5-lm-*` and `t5-prefix-lm-*`, small to 11b: one of T5's stacks (P parameters, table 2), or `-2p` both together."""
