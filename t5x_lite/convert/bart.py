"""Hugging Face's `bart`: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import encoder_decoders, task_heads
from t5x_lite.convert.encoder_decoders import SHARED, SIDES
from t5x_lite.convert.fields import OUTPUT
from t5x_lite.convert.table import Row, Tensors, Zeros, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig

MODEL_TYPES = ("bart",)
CONFIG = BartConfig
IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_TASK_LAYERS = {
    "classification": {"dense": "classification_head.dense", "scores": "classification_head.out_proj"},
    "question_answering": {"scores": "qa_outputs"},
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    return encoder_decoders.own_names(theirs, tensors)


def import_config(theirs: dict[str, Any], tensors: Tensors) -> BartConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    silent = IDS | {"decoder_start_token_id": 2}
    heads = task_heads.read_heads(theirs, tensors, {}, _TASK_LAYERS, default=0.0)
    has_output = not heads["heads"]
    fields = encoder_decoders.read_fields(theirs, tensors, silent, BartConfig.starts_with, has_output=has_output)
    return BartConfig(**fields | heads)


def export_config(config: BartConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    task = task_heads.task_of(config)
    if task is not None and task not in _TASK_LAYERS:
        raise InputError(f"heads={config.heads} has no class among Transformers' BARTs; export is not possible")
    ours = ("start_id",) if task else ()
    return encoder_decoders.describe(config, vocabulary, "BART", IDS, *ours) | {
        "architectures": [f"Bart{task_heads.TASK_CLASSES[task]}" if task else "BartForConditionalGeneration"],
        "model_type": "bart",
        # All three tables are one there, or none are.
        "tie_word_embeddings": config.tied and config.shared_embedding,
        "classifier_dropout": 0.0,
        **task_heads.describe_heads(config),
    }


def rows(config: BartConfig) -> list[Row | Zeros]:
    """The names of every parameter of this architecture."""
    table = encoder_decoders.rows(config)
    for side in SIDES:
        theirs, ours = f"model.{side}", f"{side}_embeddings"
        table.append(Row(f"{theirs}.embed_positions.weight", f"{ours}/position/embedding"))
        table += norm(f"{theirs}.layernorm_embedding", f"{ours}/norm")
    return table + task_heads.task_rows(config, _TASK_LAYERS)


def repeated(config: BartConfig) -> dict[str, str]:
    """Further names for some of the tensors."""
    if config.shared_embedding:
        return {} if config.tied else dict.fromkeys(SIDES.values(), SHARED)
    return {SHARED: SIDES["encoder"]} | ({OUTPUT: SIDES["decoder"]} if config.tied and not config.heads else {})
