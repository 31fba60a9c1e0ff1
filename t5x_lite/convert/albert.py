"""Hugging Face's `albert`: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import encoders, task_heads
from t5x_lite.convert.encoders import DEFAULTS, FIELDS, TokenOutput
from t5x_lite.convert.fields import read_activation, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import AlbertConfig

MODEL_TYPES = ("albert",)
CONFIG = AlbertConfig
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}

_FIELDS = FIELDS | {"embedding_size": "token_embed_dim"}
_DEFAULTS = DEFAULTS | {"embedding_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_OUTPUT = TokenOutput(
    kernel="predictions.decoder.weight",
    bias="predictions.bias",
    repeated_bias="predictions.decoder.bias",
    table="albert.embeddings.word_embeddings.weight",
)
_LAYER = {
    "attention.query": "self_attention/query",
    "attention.key": "self_attention/key",
    "attention.value": "self_attention/value",
    "attention.dense": "self_attention/out",
    "attention.LayerNorm": "self_attention_norm",
    "ffn": "feed_forward/wi",
    "ffn_output": "feed_forward/wo",
    "full_layer_layer_norm": "feed_forward_norm",
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    parts = ("embeddings", "encoder", "pooler")
    return encoders.own_names(tensors, "albert", parts, _OUTPUT, says_tied(theirs))


def import_config(theirs: dict[str, Any], tensors: Tensors) -> AlbertConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    for name in ("num_hidden_groups", "inner_group_num"):
        if theirs.get(name, 1) != 1:
            raise InputError(
                f"{name}={theirs[name]} in config.json is not one that we have; choose a model whose layers are all "
                "one and the same, as the published ones are"
            )
    starts = {"masked_lm": "predictions.", "sentence_pair": "sop_classifier."}
    return AlbertConfig(
        **encoders.read_fields(theirs, _FIELDS, _DEFAULTS),
        # Unlike the other families, what is silent here means the approximation.
        activation=read_activation(theirs, default="gelu_new"),
        tied=says_tied(theirs) and _OUTPUT.kernel not in tensors,
        **task_heads.read_heads(theirs, tensors, starts, task_heads.TASK_LAYERS, "classifier_dropout_prob", 0.1),
        pooler=has(tensors, "albert.pooler."),
    )


def export_config(config: AlbertConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    # No class has the sentence pair's head alone.
    architecture = "ForPreTraining" if "sentence_pair" in config.heads else "ForMaskedLM" if config.heads else "Model"
    if task := task_heads.task_of(config):
        architecture = task_heads.TASK_CLASSES[task]
    return encoders.describe(config, _FIELDS) | {
        "architectures": [f"Albert{architecture}"],
        "model_type": "albert",
        "num_hidden_groups": 1,
        "inner_group_num": 1,
        # The head of the sentence pair has dropout there; the authors' has none, and neither has ours.
        "classifier_dropout_prob": 0.0,
        **task_heads.describe_heads(config, "classifier_dropout_prob"),
        **special_ids(vocabulary, **IDS),
    }


def rows(config: AlbertConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = encoders.embedding_rows("albert.embeddings", config)
    table += dense("albert.encoder.embedding_hidden_mapping_in", "projection")
    table += encoders.layer_rows("albert.encoder.albert_layer_groups.0.albert_layers.0", _LAYER)
    if config.pooler:
        table += dense("albert.pooler", "pooler/dense")
    if "masked_lm" in config.heads:
        table += dense("predictions.dense", "masked_lm/transform/dense")
        table += norm("predictions.LayerNorm", "masked_lm/transform/norm")
        table += encoders.output_rows(_OUTPUT, config)
    if "sentence_pair" in config.heads:
        table += dense("sop_classifier.classifier", "sentence_pair/dense")
    return table + task_heads.task_rows(config)


def repeated(config: AlbertConfig) -> dict[str, str]:
    """Further names for some of the tensors."""
    return encoders.repeated_output(_OUTPUT, config)
