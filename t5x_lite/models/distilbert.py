"""DistilBERT: a BERT of half the depth, without segments and pooler (Sanh et al. 2019)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from t5x_lite.models.encoder import EncoderConfig
from t5x_lite.validation import Positive, Rate


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """The architecture of one DistilBERT. The defaults are base, uncased."""

    num_layers: Positive = 6
    """Layers."""
    head_dropout_rate: Rate = 0.2
    """Dropout in the heads of tasks."""

    row_activation: ClassVar[str] = "relu"


def _presets() -> dict[str, DistilBertConfig]:
    base = DistilBertConfig()
    return {
        "distilbert-base-uncased": base,
        "distilbert-base-cased": replace(base, vocab_size=28_996),
        "distilbert-base-multilingual-cased": replace(base, vocab_size=119_547),
    }


PRESETS: dict[str, DistilBertConfig] = _presets()
"""The published sizes under their public names. Without heads."""
