"""BERT and the encoders that vary it: SpanBERT, RoBERTa, XLM-R, ALBERT and DistilBERT.

Devlin et al. 2019 (BERT), Turc et al. 2019 (the 24 small ones), Joshi et al. 2020 (SpanBERT), Liu et al. 2019
(RoBERTa), Conneau et al. 2020 (XLM-R), Lan et al. 2020 (ALBERT), Sanh et al. 2019 (DistilBERT).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation
from t5x_lite.models.base import Pretraining
from t5x_lite.models.encoder import EncoderConfig
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NormEpsilon, Positive, Rate


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The architecture of one BERT: learned positions and segments. The defaults are base, uncased."""

    num_segments: Positive = 2
    """Rows of the segment embedding: the two sentences of a pair."""
    pooler: bool = True
    """A dense layer on the first position, for tasks on whole rows; next-sentence prediction trains it."""

    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm", "sentence_pair", "span_boundary")


@dataclass(frozen=True)
class RobertaConfig(EncoderConfig):
    """The architecture of one RoBERTa: one segment, positions counted as in fairseq. The defaults are base."""

    vocab_size: Positive = 50_265
    norm_epsilon: NormEpsilon = 1e-5
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
    position_offset = property(lambda self: self.pad_id + 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pad_id < self.vocab_size:
            raise InputError(
                f"pad_id={self.pad_id} is not an id of vocab_size={self.vocab_size}; choose the tokenizer's padding id"
            )

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        super().check_vocabulary(vocabulary)
        if self.pad_id != vocabulary.pad_id:
            raise InputError(
                f"model.pad_id={self.pad_id} is not the tokenizer's {vocabulary.pad_id}; choose {vocabulary.pad_id}"
            )

    def reads_pooled(self, head: str) -> bool:
        # Transformers' head of multiple choice alone.
        return head == "multiple_choice"


@dataclass(frozen=True)
class AlbertConfig(EncoderConfig):
    """The architecture of one ALBERT: narrow embeddings, one layer's parameters for all. The defaults are base, v2."""

    vocab_size: Positive = 30_000
    activation: Activation = "gelu_tanh"
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


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """The architecture of one DistilBERT: half the depth, no segments, no pooler. The defaults are base, uncased."""

    num_layers: Positive = 6
    head_dropout_rate: Rate = 0.2

    row_activation: ClassVar[str] = "relu"


def _presets() -> dict[str, EncoderConfig]:
    large = {"embed_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24}
    xlarge = {"embed_dim": 2048, "num_heads": 16, "mlp_dim": 8192, "num_layers": 24}
    bert = {"base": BertConfig(), "large": BertConfig(**large)}
    cased, multilingual = {"vocab_size": 28_996}, {"vocab_size": 119_547}
    small = {
        (layers, width): BertConfig(num_layers=layers, embed_dim=width, num_heads=width // 64, mlp_dim=4 * width)
        for layers in (2, 4, 6, 8, 10, 12)
        for width in (128, 256, 512, 768)
    }
    by_name = {"bert-tiny": (2, 128), "bert-mini": (4, 256), "bert-small": (4, 512), "bert-medium": (8, 512)}
    roberta = {"base": RobertaConfig(), "large": RobertaConfig(**large)}
    albert = {
        "base": AlbertConfig(),
        "large": AlbertConfig(**large),
        "xlarge": AlbertConfig(**xlarge),
        "xxlarge": AlbertConfig(embed_dim=4096, num_heads=64, mlp_dim=16_384),
    }
    # Version 2 was trained without dropout, version 1 without it in xxlarge alone.
    dropout = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1}
    distilbert = DistilBertConfig()
    return {
        **{f"bert-{size}-uncased": config for size, config in bert.items()},
        **{f"bert-{size}-cased": replace(config, **cased) for size, config in bert.items()},
        **{f"spanbert-{size}-cased": replace(config, **cased) for size, config in bert.items()},
        "bert-base-multilingual-cased": replace(bert["base"], **multilingual),
        "bert-base-multilingual-uncased": replace(bert["base"], vocab_size=105_879),
        **{name: small[shape] for name, shape in by_name.items()},
        **{f"bert-uncased-L-{n}-H-{d}-A-{config.num_heads}": config for (n, d), config in small.items()},
        **{f"roberta-{size}": config for size, config in roberta.items()},
        **{f"xlm-roberta-{size}": replace(config, vocab_size=250_002) for size, config in roberta.items()},
        **{f"albert-{size}-v1": replace(config, **dropout) for size, config in albert.items()},
        "albert-xxlarge-v1": albert["xxlarge"],
        **{f"albert-{size}-v2": config for size, config in albert.items()},
        "distilbert-base-uncased": distilbert,
        "distilbert-base-cased": replace(distilbert, **cased),
        "distilbert-base-multilingual-cased": replace(distilbert, **multilingual),
    }


PRESETS: dict[str, EncoderConfig] = _presets()
"""The published sizes under their public names: `bert-tiny` .. `bert-large-cased`, `spanbert-*`, Google's
`bert-uncased-L-<layers>-H-<embed_dim>-A-<num_heads>`, `roberta-*`, `xlm-roberta-*`, `albert-base-v1` ..
`albert-xxlarge-v2` and `distilbert-*`. Without heads: name those that the objective trains."""
