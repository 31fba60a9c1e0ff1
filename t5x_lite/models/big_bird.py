"""BigBird's encoder: BERT over rows of 4,096 tokens, by block-sparse attention (Zaheer et al. 2020)."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from flax import linen as nn

from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.dense import Activation
from t5x_lite.layers.heads import SpanClassifier
from t5x_lite.layers.linformer import Linformer
from t5x_lite.models.bert import BertConfig
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


def _presets() -> dict[str, BigBirdConfig]:
    base = BigBirdConfig()
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    return {"bigbird-roberta-base": base, "bigbird-roberta-large": large}


PRESETS: dict[str, BigBirdConfig] = _presets()
"""The published sizes under their public names."""
