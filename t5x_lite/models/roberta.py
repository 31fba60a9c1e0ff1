"""RoBERTa and XLM-R: BERT's architecture, one segment, positions counted as in fairseq.

Liu et al. 2019 (RoBERTa), Conneau et al. 2020 (XLM-R).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from t5x_lite.errors import InputError
from t5x_lite.models.encoder import EncoderConfig, Head
from t5x_lite.validation import NormEpsilon, Positive


@dataclass(frozen=True)
class RobertaConfig(EncoderConfig):
    """The architecture of one RoBERTa. The defaults are base."""

    vocab_size: Positive = 50_265
    """Rows of the token embedding: the tokenizer's ids or more."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in LayerNorm."""
    num_segments: Positive = 1
    """Rows of the segment embedding; the one row of the published models is added to every token."""
    pooler: bool = True
    """A dense layer on the first position, for tasks on whole rows; the published objective does not train it."""
    pad_id: int = 1
    """The tokenizer's padding id: positions count the ids that are another one, from pad_id + 1 on."""

    # Their head has the exact GELU whatever the layers have.
    token_activation: ClassVar[str] = "gelu"
    row_activation: ClassVar[str] = "tanh"
    drops_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pad_id < self.vocab_size:
            raise InputError(
                f"pad_id={self.pad_id} is no id of vocab_size={self.vocab_size}; choose the tokenizer's padding id"
            )

    def reads_pooled(self, head: Head) -> bool:
        # Transformers' head of multiple choice alone.
        return head == "multiple_choice"


def _presets() -> dict[str, RobertaConfig]:
    base = RobertaConfig()
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    sizes = {"base": base, "large": large}
    return {f"roberta-{size}": config for size, config in sizes.items()} | {
        f"xlm-roberta-{size}": replace(config, vocab_size=250_002) for size, config in sizes.items()
    }


PRESETS: dict[str, RobertaConfig] = _presets()
"""The published sizes under their public names: `roberta-*`, `xlm-roberta-*`. Without heads."""
