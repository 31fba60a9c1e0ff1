"""Hugging Face's `bert` (SpanBERT's too), `roberta`, `xlm-roberta`, `albert`, `distilbert`, `electra` and
`big_bird`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from t5x_lite.convert.family import (
    TASK_CLASSES,
    TASK_LAYERS,
    ActivationName,
    Classes,
    Constants,
    Heads,
    HuggingFaceFamily,
    Layers,
    Numbers,
    check_exportable,
    checked_fields,
    is_tied,
    refuse,
)
from t5x_lite.convert.table import Names, Tensors, drop_copy, has
from t5x_lite.errors import InputError
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.models import (
    PRESETS,
    AlbertConfig,
    BertConfig,
    BigBirdConfig,
    BigBirdPegasusConfig,
    DistilBertConfig,
    ElectraConfig,
    RobertaConfig,
)

_NUMBERS = {
    "vocab_size": "vocab_size",
    "hidden_size": "embed_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "max_position_embeddings": ("max_length", 512),
    "hidden_dropout_prob": ("dropout_rate", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout_rate", 0.1),
    "layer_norm_eps": ("norm_epsilon", 1e-12),
    "type_vocab_size": ("num_segments", 2),
}
_CONSTANTS = (
    Constants(
        {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
        ours={"attention": None},
    ),
    Constants({"initializer_range": 0.02, "is_encoder_decoder": False}, checked=False),
)


_LAYER = (
    *(f"self_attention/{name}" for name in ("query", "key", "value", "out")),
    *("feed_forward/wi", "feed_forward/wo", "self_attention_norm", "feed_forward_norm"),
)


@dataclass(frozen=True, kw_only=True)
class EncoderFamily(HuggingFaceFamily):
    """What Hugging Face's encoders have in common; the defaults are BERT's."""

    ids: Mapping[str, int] = field(default_factory=lambda: {"pad_token_id": 0})
    body: tuple[str, ...] = ("embeddings", "embeddings_project", "encoder", "transformer", "pooler")
    constants: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")
    layers: str = "encoder.layer.{layer}"
    attention: tuple[str, ...] = (
        *(f"attention.self.{name}" for name in ("query", "key", "value")),
        "attention.output.dense",
    )
    """In a layer: query, key, value and output."""
    feed_forward: tuple[str, str] = ("intermediate.dense", "output.dense")
    norms: tuple[str, str] = ("attention.output.LayerNorm", "output.LayerNorm")
    """In a layer: after the attention and after the feed-forward layers."""
    projection: str = "embeddings_project"
    pooler: str = "pooler.dense"
    """Empty: there is none."""
    output: str
    """The layer that scores tokens. Its kernel repeats the token embedding where the two are tied."""
    bias: str = ""
    """The layer that has its bias, where that is another one."""

    def names(self, config: Any) -> Names:
        embeddings = f"{self.prefix}.embeddings"
        names = {
            "embeddings/token": f"{embeddings}.word_embeddings",
            "embeddings/position": f"{embeddings}.position_embeddings",
            "embeddings/segment": f"{embeddings}.token_type_embeddings",
            "embeddings/norm": f"{embeddings}.LayerNorm",
            "projection": f"{self.prefix}.{self.projection}",
            "pooler/dense": f"{self.prefix}.{self.pooler}",
            "masked_lm/scores": self.output,
            "masked_lm/scores/bias": f"{self.bias or self.output}.bias",
        }
        layer = zip(_LAYER, self.attention + self.feed_forward + self.norms, strict=True)
        names |= {f"encoder/layers/{ours}": f"{self.prefix}.{self.layers}.{theirs}" for ours, theirs in layer}
        return names | self.heads.names

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        # Early versions have other names for the parameters of norms.
        renamed = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): value
            for name, value in super().canonical_tensors(theirs, tensors).items()
        }
        # Where config.json unties them, an equal kernel is a parameter too.
        if is_tied(theirs):
            drop_copy(renamed, f"{self.output}.weight", f"{self.prefix}.embeddings.word_embeddings.weight")
        if self.bias and f"{self.output}.bias" in renamed:
            renamed[f"{self.bias}.bias"] = renamed.pop(f"{self.output}.bias")
        return renamed

    def further_tensors(self, config: Any, tensors: Tensors) -> dict[str, np.ndarray]:
        # Transformers reads the bias under this name where the output is not tied.
        is_repeated = self.bias and f"{self.output}.weight" in tensors
        return {f"{self.output}.bias": tensors[f"{self.bias}.bias"]} if is_repeated else {}

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        if self.pooler:
            fields["pooler"] = has(tensors, f"{self.prefix}.pooler.")
        tied = is_tied(theirs) and f"{self.output}.weight" not in tensors
        return super().import_config(theirs, tensors, tied=tied, **fields)


class _FairseqPositions(Numbers):
    """Numbers whose positions begin after the padding id."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        rows_before = fields["pad_id"] + 1
        if fields["max_length"] <= rows_before:
            raise InputError(
                f"max_position_embeddings={fields['max_length']} in config.json leaves no positions after "
                f"pad_token_id={fields['pad_id']}; the file is damaged: fetch it again"
            )
        return fields | {"max_length": fields["max_length"] - rows_before}

    def write(self, config: RobertaConfig, family: str) -> dict[str, Any]:
        return super().write(config, family) | {"max_position_embeddings": config.max_length + config.pad_id + 1}


def _heads(
    dense: str, norm: str, layers: Layers, classes: Classes | None = None, kind: type[Heads] = Heads, **dropout: Any
) -> Heads:
    """A family's heads: its masked language model's layers, and what differs from `TASK_LAYERS` and `TASK_CLASSES`."""
    masked_lm = {"masked_lm": {"transform/dense": dense, "transform/norm": norm}}
    model = {("masked_lm",): "ForMaskedLM", (): "Model"}
    return kind(masked_lm | TASK_LAYERS | layers, TASK_CLASSES | (classes or {}) | model, **dropout)


class _ElectraHeads(Heads):
    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        if fields["heads"] == ("multiple_choice",):
            refuse(theirs, summary_type="first", summary_use_proj=True, summary_activation="gelu")
        return fields


class BlockSparse:
    """Which tokens attend to each other; theirs has no seed of the random blocks."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        kind = theirs.get("attention_type") or "block_sparse"
        if kind not in ("block_sparse", "original_full"):
            raise InputError(
                f"attention_type={kind!r} in config.json is unknown; known are block_sparse and original_full"
            )
        sizes = Numbers({"block_size": ("block_size", 64), "num_random_blocks": ("num_random_blocks", 3)})
        fields = checked_fields(BigBird, sizes.read(theirs, tensors))
        return {"attention": BigBird(**fields) if kind == "block_sparse" else None}

    def write(self, config: BigBirdConfig | BigBirdPegasusConfig, family: str) -> dict[str, Any]:
        attention = config.attention
        if not isinstance(attention, BigBird):
            check_exportable(family, "attention", attention, None)
            return {"attention_type": "original_full"}
        for name, only in (("num_window_blocks", 3), ("num_global_tokens", 0)):
            check_exportable(family, f"attention.{name}", getattr(attention, name), only)
        sizes = {name: getattr(attention, name) for name in ("block_size", "num_random_blocks")}
        return {"attention_type": "block_sparse"} | sizes


BERT = EncoderFamily(
    model_type="bert",
    name="Bert",
    config=BertConfig,
    fields=(*_CONSTANTS, Numbers(_NUMBERS), ActivationName()),
    prefix="bert",
    output="cls.predictions.decoder",
    bias="cls.predictions",
    heads=_heads(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        {"sentence_pair": {"dense": "cls.seq_relationship"}},
        {("masked_lm", "sentence_pair"): "ForPreTraining", ("sentence_pair",): "ForNextSentencePrediction"},
    ),
)
ROBERTA = EncoderFamily(
    model_type="roberta",
    name="Roberta",
    config=RobertaConfig,
    ids={"bos_token_id": 0, "eos_token_id": 2},
    fields=(*_CONSTANTS, _FairseqPositions(_NUMBERS | {"pad_token_id": ("pad_id", 1)}), ActivationName()),
    prefix="roberta",
    output="lm_head.decoder",
    bias="lm_head",
    heads=_heads(
        "lm_head.dense",
        "lm_head.layer_norm",
        {"classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"}},
    ),
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    name="XLMRoberta",
    # A RoBERTa with another tokenizer; nothing else tells them apart.
    fits=lambda config, tokenizer: (
        config.vocab_size == PRESETS["xlm-roberta-base"].vocab_size
        or getattr(tokenizer, "layout", None) == "xlm-roberta"
    ),
)
ALBERT = EncoderFamily(
    model_type="albert",
    name="Albert",
    config=AlbertConfig,
    ids={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    fields=(
        *_CONSTANTS,
        # The published models' layers are all one and the same.
        Constants({"num_hidden_groups": 1, "inner_group_num": 1}),
        Numbers(
            _NUMBERS
            | {
                "hidden_dropout_prob": ("dropout_rate", 0.0),
                "attention_probs_dropout_prob": ("attention_dropout_rate", 0.0),
                "embedding_size": ("token_embed_dim", 128),
            }
        ),
        ActivationName(default="gelu_new"),
        # The head of the sentence pair has dropout there; the authors' has none, and neither has ours.
        Constants({"classifier_dropout_prob": 0.0}, checked=False),
    ),
    prefix="albert",
    layers="encoder.albert_layer_groups.0.albert_layers.0",
    attention=("attention.query", "attention.key", "attention.value", "attention.dense"),
    feed_forward=("ffn", "ffn_output"),
    norms=("attention.LayerNorm", "full_layer_layer_norm"),
    projection="encoder.embedding_hidden_mapping_in",
    pooler="pooler",
    output="predictions.decoder",
    bias="predictions",
    heads=_heads(
        "predictions.dense",
        "predictions.LayerNorm",
        {"sentence_pair": {"dense": "sop_classifier.classifier"}},
        {("sentence_pair",): "ForPreTraining"},  # which has the masked language model's head too
        dropout="classifier_dropout_prob",
        default=0.1,
    ),
)
DISTILBERT = EncoderFamily(
    model_type="distilbert",
    name="DistilBert",
    config=DistilBertConfig,
    fields=(
        *_CONSTANTS,
        Constants({"sinusoidal_pos_embds": False}, checked=False, ours={"norm_epsilon": 1e-12, "attention": None}),
        Numbers(
            {
                "vocab_size": "vocab_size",
                "dim": "embed_dim",
                "n_layers": "num_layers",
                "n_heads": "num_heads",
                "hidden_dim": "mlp_dim",
                "max_position_embeddings": ("max_length", 512),
                "dropout": ("dropout_rate", 0.1),
                "attention_dropout": ("attention_dropout_rate", 0.1),
            }
        ),
        ActivationName("activation"),
    ),
    prefix="distilbert",
    layers="transformer.layer.{layer}",
    attention=("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    feed_forward=("ffn.lin1", "ffn.lin2"),
    norms=("sa_layer_norm", "output_layer_norm"),
    pooler="",
    output="vocab_projector",
    heads=_heads(
        "vocab_transform",
        "vocab_layer_norm",
        {task: {"dense": "pre_classifier", "scores": "classifier"} for task in ("classification", "multiple_choice")},
        dropout="seq_classif_dropout",
        default=0.2,
    ),
)
ELECTRA = EncoderFamily(
    model_type="electra",
    name="Electra",
    config=ElectraConfig,
    fields=(*_CONSTANTS, Numbers(_NUMBERS | {"embedding_size": ("token_embed_dim", 128)}), ActivationName()),
    prefix="electra",
    pooler="",
    output="generator_lm_head",
    heads=_heads(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        {
            "replaced_token": {
                "dense": "discriminator_predictions.dense",
                "scores": "discriminator_predictions.dense_prediction",
            },
            "classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"},
            "multiple_choice": {"dense": "sequence_summary.summary", "scores": "classifier"},
        },
        {("replaced_token",): "ForPreTraining"},
        _ElectraHeads,
    ),
)
BIG_BIRD = replace(
    BERT,
    model_type="big_bird",
    name="BigBird",
    config=BigBirdConfig,
    fields=(
        Constants({"is_decoder": False, "add_cross_attention": False, "use_bias": True, "rescale_embeddings": False}),
        Constants({"initializer_range": 0.02, "is_encoder_decoder": False}, checked=False),
        Numbers(_NUMBERS | {"max_position_embeddings": ("max_length", 4096)}),
        ActivationName(default="gelu_new"),
        BlockSparse(),
    ),
    pooler="pooler",
    heads=Heads(
        BERT.heads.layers
        | {
            "classification": ROBERTA.heads.layers["classification"],
            "question_answering": {
                "feed_forward/wi": "qa_classifier.intermediate.dense",
                "feed_forward/wo": "qa_classifier.output.dense",
                "norm": "qa_classifier.output.LayerNorm",
                "scores": "qa_classifier.qa_outputs",
            },
        },
        # None of their classes is for pairs alone.
        {of: end for of, end in BERT.heads.classes.items() if of != ("sentence_pair",)},
    ),
)
FAMILIES = (BERT, ROBERTA, XLM_ROBERTA, ALBERT, DISTILBERT, ELECTRA, BIG_BIRD)
