"""Hugging Face's `distilbert`: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import encoders, task_heads
from t5x_lite.convert.encoders import TokenOutput
from t5x_lite.convert.fields import read_activation, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import DistilBertConfig

MODEL_TYPES = ("distilbert",)
CONFIG = DistilBertConfig
IDS = {"pad_token_id": 0}

_FIELDS = {
    "vocab_size": "vocab_size",
    "dim": "embed_dim",
    "n_layers": "num_layers",
    "n_heads": "num_heads",
    "hidden_dim": "mlp_dim",
    "max_position_embeddings": "max_length",
    "dropout": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
}
# What a config.json means where it is silent.
_DEFAULTS = {"max_position_embeddings": 512, "dropout": 0.1, "attention_dropout": 0.1}
_NORM_EPSILON = 1e-12  # no field there
_OUTPUT = TokenOutput(
    kernel="vocab_projector.weight",
    bias="vocab_projector.bias",
    table="distilbert.embeddings.word_embeddings.weight",
)
_ROW_LAYERS = {"dense": "pre_classifier", "scores": "classifier"}
_TASK_LAYERS = task_heads.TASK_LAYERS | {"classification": _ROW_LAYERS, "multiple_choice": _ROW_LAYERS}
_LAYER = {
    "attention.q_lin": "self_attention/query",
    "attention.k_lin": "self_attention/key",
    "attention.v_lin": "self_attention/value",
    "attention.out_lin": "self_attention/out",
    "sa_layer_norm": "self_attention_norm",
    "ffn.lin1": "feed_forward/wi",
    "ffn.lin2": "feed_forward/wo",
    "output_layer_norm": "feed_forward_norm",
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    parts = ("embeddings", "transformer")
    return encoders.own_names(tensors, "distilbert", parts, _OUTPUT, says_tied(theirs))


def import_config(theirs: dict[str, Any], tensors: Tensors) -> DistilBertConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    return DistilBertConfig(
        **encoders.read_fields(theirs, _FIELDS, _DEFAULTS),
        norm_epsilon=_NORM_EPSILON,
        activation=read_activation(theirs, "activation"),
        tied=says_tied(theirs) and _OUTPUT.kernel not in tensors,
        **task_heads.read_heads(theirs, tensors, {"masked_lm": "vocab_"}, _TASK_LAYERS, "seq_classif_dropout", 0.2),
    )


def export_config(
    config: DistilBertConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None
) -> dict[str, Any]:
    """The config.json of an architecture."""
    if config.norm_epsilon != _NORM_EPSILON:
        raise InputError(
            f"norm_epsilon={config.norm_epsilon} has no place in Hugging Face's DistilBERT, where it is "
            f"{_NORM_EPSILON}; export is not possible"
        )
    task = task_heads.task_of(config)
    architecture = task_heads.TASK_CLASSES[task] if task else "ForMaskedLM" if config.heads else "Model"
    return encoders.describe(config, _FIELDS, "activation") | {
        "architectures": [f"DistilBert{architecture}"],
        "model_type": "distilbert",
        "sinusoidal_pos_embds": False,
        **task_heads.describe_heads(config, "seq_classif_dropout"),
        **special_ids(vocabulary, **IDS),
    }


def rows(config: DistilBertConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = encoders.embedding_rows("distilbert.embeddings", config)
    table += encoders.layer_rows("distilbert.transformer.layer.{layer}", _LAYER)
    if "masked_lm" in config.heads:
        table += dense("vocab_transform", "masked_lm/transform/dense")
        table += norm("vocab_layer_norm", "masked_lm/transform/norm")
        table += encoders.output_rows(_OUTPUT, config)
    return table + task_heads.task_rows(config, _TASK_LAYERS)


def repeated(config: DistilBertConfig) -> dict[str, str]:
    """Further names for some of the tensors: none."""
    return {}
