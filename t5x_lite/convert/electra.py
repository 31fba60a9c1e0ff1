"""Hugging Face's `electra`, generators and discriminators: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import encoders, task_heads
from t5x_lite.convert.encoders import DEFAULTS, FIELDS, TokenOutput
from t5x_lite.convert.fields import read_activation, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.models import ElectraConfig

MODEL_TYPES = ("electra",)
CONFIG = ElectraConfig
IDS = {"pad_token_id": 0}

_FIELDS = FIELDS | {"embedding_size": "token_embed_dim"}
_DEFAULTS = DEFAULTS | {"embedding_size": 128}
_OUTPUT = TokenOutput(
    kernel="generator_lm_head.weight",
    bias="generator_lm_head.bias",
    table="electra.embeddings.word_embeddings.weight",
)
_TASK_LAYERS = task_heads.TASK_LAYERS | {
    "classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"},
    "multiple_choice": {"dense": "sequence_summary.summary", "scores": "classifier"},
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    parts = ("embeddings", "embeddings_project", "encoder")
    return encoders.own_names(tensors, "electra", parts, _OUTPUT, says_tied(theirs))


def import_config(theirs: dict[str, Any], tensors: Tensors) -> ElectraConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    starts = {"masked_lm": "generator_", "replaced_token": "discriminator_predictions."}
    return ElectraConfig(
        **encoders.read_fields(theirs, _FIELDS, _DEFAULTS),
        activation=read_activation(theirs),
        tied=says_tied(theirs) and _OUTPUT.kernel not in tensors,
        **task_heads.read_heads(theirs, tensors, starts, _TASK_LAYERS),
    )


def export_config(config: ElectraConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    architecture = "ForPreTraining" if "replaced_token" in config.heads else "ForMaskedLM" if config.heads else "Model"
    if task := task_heads.task_of(config):
        architecture = task_heads.TASK_CLASSES[task]
    return encoders.describe(config, _FIELDS) | {
        "architectures": [f"Electra{architecture}"],
        "model_type": "electra",
        **task_heads.describe_heads(config),
        **special_ids(vocabulary, **IDS),
    }


def rows(config: ElectraConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = encoders.encoder_rows("electra", config)
    if config.projects_embeddings:
        table += dense("electra.embeddings_project", "projection")
    if "masked_lm" in config.heads:
        table += dense("generator_predictions.dense", "masked_lm/transform/dense")
        table += norm("generator_predictions.LayerNorm", "masked_lm/transform/norm")
        table += encoders.output_rows(_OUTPUT, config)
    if "replaced_token" in config.heads:
        table += dense("discriminator_predictions.dense", "replaced_token/dense")
        table += dense("discriminator_predictions.dense_prediction", "replaced_token/scores")
    return table + task_heads.task_rows(config, _TASK_LAYERS)


def repeated(config: ElectraConfig) -> dict[str, str]:
    """Further names for some of the tensors: none."""
    return {}
