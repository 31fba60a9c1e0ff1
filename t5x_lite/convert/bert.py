"""Hugging Face's `bert`, SpanBERT's too: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import encoders, task_heads
from t5x_lite.convert.encoders import DEFAULTS, FIELDS, TokenOutput
from t5x_lite.convert.fields import read_activation, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.models import BertConfig

MODEL_TYPES = ("bert",)
CONFIG = BertConfig
IDS = {"pad_token_id": 0}

_OUTPUT = TokenOutput(
    kernel="cls.predictions.decoder.weight",
    bias="cls.predictions.bias",
    repeated_bias="cls.predictions.decoder.bias",
    table="bert.embeddings.word_embeddings.weight",
)
# The class that has just these heads.
_CLASSES = {
    (): "BertModel",
    ("masked_lm",): "BertForMaskedLM",
    ("sentence_pair",): "BertForNextSentencePrediction",
    ("masked_lm", "sentence_pair"): "BertForPreTraining",
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    parts = ("embeddings", "encoder", "pooler")
    return encoders.own_names(tensors, "bert", parts, _OUTPUT, says_tied(theirs))


def import_config(theirs: dict[str, Any], tensors: Tensors) -> BertConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    starts = {"masked_lm": "cls.predictions.", "sentence_pair": "cls.seq_relationship."}
    return BertConfig(
        **encoders.read_fields(theirs, FIELDS, DEFAULTS),
        activation=read_activation(theirs),
        tied=says_tied(theirs) and _OUTPUT.kernel not in tensors,
        **task_heads.read_heads(theirs, tensors, starts, task_heads.TASK_LAYERS),
        pooler=has(tensors, "bert.pooler."),
    )


def export_config(config: BertConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    task = task_heads.task_of(config)
    heads = tuple(head for head in ("masked_lm", "sentence_pair") if head in config.heads)
    return encoders.describe(config) | {
        "architectures": [f"Bert{task_heads.TASK_CLASSES[task]}" if task else _CLASSES[heads]],
        "model_type": "bert",
        **task_heads.describe_heads(config),
        **special_ids(vocabulary, **IDS),
    }


def rows(config: BertConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = encoders.encoder_rows("bert", config)
    if config.pooler:
        table += dense("bert.pooler.dense", "pooler/dense")
    if "masked_lm" in config.heads:
        table += dense("cls.predictions.transform.dense", "masked_lm/transform/dense")
        table += norm("cls.predictions.transform.LayerNorm", "masked_lm/transform/norm")
        table += encoders.output_rows(_OUTPUT, config)
    if "sentence_pair" in config.heads:
        table += dense("cls.seq_relationship", "sentence_pair/dense")
    return table + task_heads.task_rows(config)


def repeated(config: BertConfig) -> dict[str, str]:
    """Further names for some of the tensors."""
    return encoders.repeated_output(_OUTPUT, config)
