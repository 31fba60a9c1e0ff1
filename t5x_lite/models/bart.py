"""BART: a post-LN encoder-decoder that learned to undo noise (Lewis et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation
from t5x_lite.models.base import Pretraining
from t5x_lite.models.encoder_decoder import EncoderDecoderConfig
from t5x_lite.models.task_heads import TaskHead, check_head_names
from t5x_lite.validation import Positive, Rate


@dataclass(frozen=True)
class BartConfig(EncoderDecoderConfig):
    """The architecture of one BART. The defaults are base."""

    vocab_size: Positive = 50_265
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    num_heads: Positive = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 768
    """Width of the residual stream (d_model)."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layers (d_ff)."""
    activation: Activation = "gelu"
    """Of the feed-forward layers: gelu, gelu_tanh, relu, silu or tanh."""
    attention_dropout_rate: Rate = 0.1
    """Dropout on attention weights."""
    scale_embedding: bool = False
    """Multiply the embeddings by sqrt(embed_dim)."""
    heads: tuple[TaskHead, ...] = ()
    """Heads of tasks on the decoder: classification, tagging, question_answering."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.0
    """Dropout in the heads classification and tagging."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification", "tagging", "question_answering")
    position_offset: ClassVar[int] = 2  # fairseq counts positions from its padding id + 1
    norm_embedding: ClassVar[bool] = True
    starts_with: ClassVar[Literal["pad", "eos"]] = "eos"
    texts_begin_with_cls: ClassVar[bool] = True

    @property
    def pretraining(self) -> Pretraining | None:
        return None if self.heads else "denoising"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_head_names(self, self.task_heads)
        if self.heads and (self.output_bias or not self.tied):
            raise InputError(
                f"heads={self.heads} take the place of an output with parameters of its own (tied={self.tied}, "
                f"output_bias={self.output_bias}); set tied to True and output_bias to False"
            )


PRESETS: dict[str, BartConfig] = {
    "bart-base": BartConfig(),
    "bart-large": BartConfig(embed_dim=1024, num_heads=16, mlp_dim=4096, num_encoder_layers=12, num_decoder_layers=12),
}
"""The published sizes under their public names."""
