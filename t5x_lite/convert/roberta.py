"""Hugging Face's `roberta` and `xlm-roberta`: their config.json and their parameter names."""

from typing import Any

from t5x_lite.convert import encoders, task_heads
from t5x_lite.convert.encoders import DEFAULTS, FIELDS, TokenOutput
from t5x_lite.convert.fields import read_activation, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, RobertaConfig

MODEL_TYPES = ("roberta", "xlm-roberta")
CONFIG = RobertaConfig
IDS = {"bos_token_id": 0, "eos_token_id": 2}

_FIELDS = FIELDS | {"pad_token_id": "pad_id"}
_DEFAULTS = DEFAULTS | {"pad_token_id": 1}
_OUTPUT = TokenOutput(
    kernel="lm_head.decoder.weight",
    bias="lm_head.bias",
    repeated_bias="lm_head.decoder.bias",
    table="roberta.embeddings.word_embeddings.weight",
)
_TASK_LAYERS = task_heads.TASK_LAYERS | {
    "classification": {"dense": "classifier.dense", "scores": "classifier.out_proj"}
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    parts = ("embeddings", "encoder", "pooler")
    return encoders.own_names(tensors, "roberta", parts, _OUTPUT, says_tied(theirs))


def import_config(theirs: dict[str, Any], tensors: Tensors) -> RobertaConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    fields = encoders.read_fields(theirs, _FIELDS, _DEFAULTS)
    rows_before = fields["pad_id"] + 1
    if fields["max_length"] <= rows_before:
        raise InputError(
            f"max_position_embeddings={fields['max_length']} in config.json leaves no positions behind "
            f"pad_token_id={fields['pad_id']}; the file is damaged: fetch it again"
        )
    return RobertaConfig(
        **fields | {"max_length": fields["max_length"] - rows_before},
        activation=read_activation(theirs),
        tied=says_tied(theirs) and _OUTPUT.kernel not in tensors,
        **task_heads.read_heads(theirs, tensors, {"masked_lm": "lm_head."}, _TASK_LAYERS),
        pooler=has(tensors, "roberta.pooler."),
    )


def export_config(config: RobertaConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    # XLM-R is a RoBERTa with another tokenizer; nothing else tells them apart.
    multilingual = config.vocab_size == PRESETS["xlm-roberta-base"].vocab_size
    multilingual |= getattr(tokenizer, "layout", None) == "xlm-roberta"
    family = "XLMRoberta" if multilingual else "Roberta"
    task = task_heads.task_of(config)
    architecture = task_heads.TASK_CLASSES[task] if task else "ForMaskedLM" if config.heads else "Model"
    return encoders.describe(config, _FIELDS) | {
        "architectures": [f"{family}{architecture}"],
        "model_type": "xlm-roberta" if multilingual else "roberta",
        "max_position_embeddings": config.max_length + config.pad_id + 1,
        **task_heads.describe_heads(config),
        **special_ids(vocabulary, **IDS),
    }


def rows(config: RobertaConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = encoders.encoder_rows("roberta", config)
    if config.pooler:
        table += dense("roberta.pooler.dense", "pooler/dense")
    if "masked_lm" in config.heads:
        table += dense("lm_head.dense", "masked_lm/transform/dense")
        table += norm("lm_head.layer_norm", "masked_lm/transform/norm")
        table += encoders.output_rows(_OUTPUT, config)
    return table + task_heads.task_rows(config, _TASK_LAYERS)


def repeated(config: RobertaConfig) -> dict[str, str]:
    """Further names for some of the tensors."""
    return encoders.repeated_output(_OUTPUT, config)
