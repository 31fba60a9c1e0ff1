"""Hugging Face's `bert` (SpanBERT's too), `roberta`, `xlm-roberta`, `albert`, `distilbert` and `electra`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t5x_lite.convert.family import HuggingFaceFamily, with_prefix
from t5x_lite.convert.fields import ActivationName, Constants, Numbers, Only, is_tied
from t5x_lite.convert.heads import TASK_CLASSES, TASK_LAYERS, Heads
from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, AlbertConfig, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig

_NUMBERS = Numbers(
    {
        "vocab_size": "vocab_size",
        "hidden_size": "embed_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "mlp_dim",
        "max_position_embeddings": "max_length",
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "attention_dropout_rate",
        "layer_norm_eps": "norm_epsilon",
        "type_vocab_size": "num_segments",
    },
    {
        "max_position_embeddings": 512,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
    },
)
_CONSTANTS = (
    Constants({"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}),
    Constants({"initializer_range": 0.02, "is_encoder_decoder": False}, checked=False),
)
_BODY = ("embeddings", "embeddings_project", "encoder", "transformer", "pooler")
_LAYER = {
    "attention.self.query": "self_attention/query",
    "attention.self.key": "self_attention/key",
    "attention.self.value": "self_attention/value",
    "attention.output.dense": "self_attention/out",
    "attention.output.LayerNorm": "self_attention_norm",
    "intermediate.dense": "feed_forward/wi",
    "output.dense": "feed_forward/wo",
    "output.LayerNorm": "feed_forward_norm",
}


@dataclass(frozen=True, kw_only=True)
class EncoderFamily(HuggingFaceFamily):
    """What Hugging Face's encoders have in common; the defaults are BERT's."""

    prefix: str
    """Of the tensors below the heads."""
    layers: str = "encoder.layer.{layer}"
    layer: Mapping[str, str]
    """Ours, by theirs, behind `layers`."""
    projection: str = "embeddings_project"
    pooler: str = "pooler.dense"
    """Empty: there is none."""
    kernel: str
    """Of the output that scores tokens, which repeats the token embedding where the two are tied."""
    bias: str
    repeated_bias: str = ""
    """Another name of the bias; where both are there, this one is computed with."""

    def own_names(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        # Without constants and with today's names of norms, both of which early versions wrote otherwise.
        renamed = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): value
            for name, value in with_prefix(tensors, self.prefix, _BODY).items()
            if not name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))
        }
        kernel, table = renamed.get(self.kernel), renamed.get(f"{self.prefix}.embeddings.word_embeddings.weight")
        # Where config.json says that they are not tied, even an equal kernel is one of its own.
        if is_tied(theirs) and kernel is not None and table is not None and np.array_equal(kernel, table):
            del renamed[self.kernel]
        if self.repeated_bias in renamed:
            renamed[self.bias] = renamed.pop(self.repeated_bias)
        return renamed

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        if self.pooler:
            fields["pooler"] = has(tensors, f"{self.prefix}.pooler.")
        return super().import_config(theirs, tensors, tied=is_tied(theirs) and self.kernel not in tensors, **fields)

    def rows(self, config: Any) -> list[Row]:
        embeddings, kinds = f"{self.prefix}.embeddings", {"word": "token", "position": "position"}
        kinds |= {"token_type": "segment"} if config.num_segments else {}
        table = [
            Row(f"{embeddings}.{name}_embeddings.weight", f"embeddings/{ours}/embedding")
            for name, ours in kinds.items()
        ]
        table += norm(f"{embeddings}.LayerNorm", "embeddings/norm")
        if config.projects_embeddings:
            table += dense(f"{self.prefix}.{self.projection}", "projection")
        for name, ours in self.layer.items():
            kind = norm if ours.endswith("_norm") else dense
            table += kind(f"{self.prefix}.{self.layers}.{name}", f"encoder/layers/{ours}")
        if config.pooler:
            table += dense(f"{self.prefix}.{self.pooler}", "pooler/dense")
        if "masked_lm" in config.heads:
            table.append(Row(self.bias, "masked_lm/scores/bias"))
            if not config.tied:
                table.append(Row(self.kernel, "masked_lm/scores/kernel", transpose=True))
        return table + self.heads.rows(config)

    def repeated(self, config: Any) -> dict[str, str]:
        # Transformers reads the bias under this name where the kernel is not tied.
        if config.tied or "masked_lm" not in config.heads or not self.repeated_bias:
            return {}
        return {self.repeated_bias: self.bias}


class _FairseqPositions(Numbers):
    """Numbers whose positions begin behind the padding id."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        rows_before = fields["pad_id"] + 1
        if fields["max_length"] <= rows_before:
            raise InputError(
                f"max_position_embeddings={fields['max_length']} in config.json leaves no positions behind "
                f"pad_token_id={fields['pad_id']}; the file is damaged: fetch it again"
            )
        return fields | {"max_length": fields["max_length"] - rows_before}

    def write(self, config: RobertaConfig, family: str) -> dict[str, Any]:
        return super().write(config, family) | {"max_position_embeddings": config.max_length + config.pad_id + 1}


def _masked_lm(dense: str, norm: str) -> dict[str, dict[str, str]]:
    return {"masked_lm": {"transform/dense": dense, "transform/norm": norm}}


def _numbers(defaults: dict[str, Any], **names: str) -> Numbers:
    return Numbers({**_NUMBERS.names, **names}, {**_NUMBERS.defaults, **defaults})


_MODEL = {("masked_lm",): "ForMaskedLM", (): "Model"}

BERT = EncoderFamily(
    model_type="bert",
    name="Bert",
    config=BertConfig,
    ids={"pad_token_id": 0},
    fields=(*_CONSTANTS, _NUMBERS, ActivationName()),
    prefix="bert",
    layer=_LAYER,
    kernel="cls.predictions.decoder.weight",
    bias="cls.predictions.bias",
    repeated_bias="cls.predictions.decoder.bias",
    heads=Heads(
        _masked_lm("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
        | {"sentence_pair": {"dense": "cls.seq_relationship"}}
        | TASK_LAYERS,
        {
            **TASK_CLASSES,
            ("masked_lm", "sentence_pair"): "ForPreTraining",
            ("sentence_pair",): "ForNextSentencePrediction",
            **_MODEL,
        },
    ),
)
_ROBERTA_NUMBERS = _numbers({"pad_token_id": 1}, pad_token_id="pad_id")
ROBERTA = EncoderFamily(
    model_type="roberta",
    name="Roberta",
    config=RobertaConfig,
    ids={"bos_token_id": 0, "eos_token_id": 2},
    fields=(
        *_CONSTANTS,
        _FairseqPositions(_ROBERTA_NUMBERS.names, _ROBERTA_NUMBERS.defaults),
        ActivationName(),
    ),
    prefix="roberta",
    layer=_LAYER,
    kernel="lm_head.decoder.weight",
    bias="lm_head.bias",
    repeated_bias="lm_head.decoder.bias",
    heads=Heads(
        _masked_lm("lm_head.dense", "lm_head.layer_norm")
        | TASK_LAYERS
        | {"classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"}},
        TASK_CLASSES | _MODEL,
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
        _numbers(
            {"embedding_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
            embedding_size="token_embed_dim",
        ),
        # Unlike the other families, what is silent here means the approximation.
        ActivationName(default="gelu_new"),
        # The head of the sentence pair has dropout there; the authors' has none, and neither has ours.
        Constants({"classifier_dropout_prob": 0.0}, checked=False),
    ),
    prefix="albert",
    layers="encoder.albert_layer_groups.0.albert_layers.0",
    layer={
        "attention.query": "self_attention/query",
        "attention.key": "self_attention/key",
        "attention.value": "self_attention/value",
        "attention.dense": "self_attention/out",
        "attention.LayerNorm": "self_attention_norm",
        "ffn": "feed_forward/wi",
        "ffn_output": "feed_forward/wo",
        "full_layer_layer_norm": "feed_forward_norm",
    },
    projection="encoder.embedding_hidden_mapping_in",
    pooler="pooler",
    kernel="predictions.decoder.weight",
    bias="predictions.bias",
    repeated_bias="predictions.decoder.bias",
    heads=Heads(
        _masked_lm("predictions.dense", "predictions.LayerNorm")
        | {"sentence_pair": {"dense": "sop_classifier.classifier"}}
        | TASK_LAYERS,
        # No class has the sentence pair's head alone.
        {**TASK_CLASSES, ("sentence_pair",): "ForPreTraining", **_MODEL},
        dropout="classifier_dropout_prob",
        default=0.1,
    ),
)
_DISTILBERT_ROW = {"dense": "pre_classifier", "scores": "classifier"}
DISTILBERT = EncoderFamily(
    model_type="distilbert",
    name="DistilBert",
    config=DistilBertConfig,
    ids={"pad_token_id": 0},
    fields=(
        *_CONSTANTS,
        Constants({"sinusoidal_pos_embds": False}, checked=False),
        Numbers(
            {
                "vocab_size": "vocab_size",
                "dim": "embed_dim",
                "n_layers": "num_layers",
                "n_heads": "num_heads",
                "hidden_dim": "mlp_dim",
                "max_position_embeddings": "max_length",
                "dropout": "dropout_rate",
                "attention_dropout": "attention_dropout_rate",
            },
            {"max_position_embeddings": 512, "dropout": 0.1, "attention_dropout": 0.1},
        ),
        ActivationName("activation"),
        Only({"norm_epsilon": 1e-12}),
    ),
    prefix="distilbert",
    layers="transformer.layer.{layer}",
    layer={
        "attention.q_lin": "self_attention/query",
        "attention.k_lin": "self_attention/key",
        "attention.v_lin": "self_attention/value",
        "attention.out_lin": "self_attention/out",
        "sa_layer_norm": "self_attention_norm",
        "ffn.lin1": "feed_forward/wi",
        "ffn.lin2": "feed_forward/wo",
        "output_layer_norm": "feed_forward_norm",
    },
    pooler="",
    kernel="vocab_projector.weight",
    bias="vocab_projector.bias",
    heads=Heads(
        _masked_lm("vocab_transform", "vocab_layer_norm")
        | TASK_LAYERS
        | {"classification": _DISTILBERT_ROW, "multiple_choice": _DISTILBERT_ROW},
        TASK_CLASSES | _MODEL,
        dropout="seq_classif_dropout",
        default=0.2,
    ),
)
ELECTRA = EncoderFamily(
    model_type="electra",
    name="Electra",
    config=ElectraConfig,
    ids={"pad_token_id": 0},
    fields=(*_CONSTANTS, _numbers({"embedding_size": 128}, embedding_size="token_embed_dim"), ActivationName()),
    prefix="electra",
    layer=_LAYER,
    pooler="",
    kernel="generator_lm_head.weight",
    bias="generator_lm_head.bias",
    heads=Heads(
        _masked_lm("generator_predictions.dense", "generator_predictions.LayerNorm")
        | {
            "replaced_token": {
                "dense": "discriminator_predictions.dense",
                "scores": "discriminator_predictions.dense_prediction",
            },
        }
        | TASK_LAYERS
        | {
            "classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"},
            "multiple_choice": {"dense": "sequence_summary.summary", "scores": "classifier"},
        },
        {**TASK_CLASSES, ("replaced_token",): "ForPreTraining", **_MODEL},
    ),
)
FAMILIES = (BERT, ROBERTA, XLM_ROBERTA, ALBERT, DISTILBERT, ELECTRA)
