"""BERT and SpanBERT: encoders with learned positions and segments.

Devlin et al. 2019 (BERT), Turc et al. 2019 (the 24 small ones), Joshi et al. 2020 (SpanBERT).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from t5x_lite.models.encoder import EncoderConfig
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The architecture of one BERT. The defaults are base, uncased."""

    num_segments: Positive = 2
    """Rows of the segment embedding: the two sentences of a pair."""
    pooler: bool = True
    """A dense layer on the first position, for tasks on whole rows; next-sentence prediction trains it."""

    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm", "sentence_pair", "span_boundary")


def _presets() -> dict[str, BertConfig]:
    base = BertConfig()
    large = replace(base, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    small = {
        (layers, width): replace(base, num_layers=layers, embed_dim=width, num_heads=width // 64, mlp_dim=4 * width)
        for layers in (2, 4, 6, 8, 10, 12)
        for width in (128, 256, 512, 768)
    }
    by_shape = {f"bert-uncased-L-{n}-H-{d}-A-{config.num_heads}": config for (n, d), config in small.items()}
    by_name = {"bert-tiny": (2, 128), "bert-mini": (4, 256), "bert-small": (4, 512), "bert-medium": (8, 512)}
    return {
        "bert-base-uncased": base,
        "bert-base-cased": replace(base, vocab_size=28_996),
        "bert-base-multilingual-cased": replace(base, vocab_size=119_547),
        "bert-base-multilingual-uncased": replace(base, vocab_size=105_879),
        "bert-large-uncased": large,
        "bert-large-cased": replace(large, vocab_size=28_996),
        "spanbert-base-cased": replace(base, vocab_size=28_996),
        "spanbert-large-cased": replace(large, vocab_size=28_996),
        **{name: small[shape] for name, shape in by_name.items()},
        **by_shape,
    }


PRESETS: dict[str, BertConfig] = _presets()
"""The published sizes under their public names: `bert-tiny` .. `bert-large-cased`, `spanbert-*`, and Google's
`bert-uncased-L-<layers>-H-<embed_dim>-A-<num_heads>`. Without heads: name those that the objective trains."""
