"""What Hugging Face's encoders have in common: fields of config.json, names of parameters, and what to do with repeats.

A family's file says how it differs: see `t5x_lite.convert.bert` for the shape of one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.fields import ACTIVATIONS, read_numbers
from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.errors import InputError
from t5x_lite.models import EncoderConfig

FIELDS = {
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
}
"""The numbers of a config.json, and our names for them."""
DEFAULTS = {
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
}
"""What a config.json means where it is silent."""

LAYER = {
    "attention.self.query": "self_attention/query",
    "attention.self.key": "self_attention/key",
    "attention.self.value": "self_attention/value",
    "attention.output.dense": "self_attention/out",
    "attention.output.LayerNorm": "self_attention_norm",
    "intermediate.dense": "feed_forward/wi",
    "output.dense": "feed_forward/wo",
    "output.LayerNorm": "feed_forward_norm",
}
"""A layer's parameters as BERT, RoBERTa and ELECTRA name them."""

TASK_CLASSES = {
    "classification": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
    "tagging": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
}
"""How the classes end that have the head of a task. None has another head beside it."""

TASK_LAYERS = {
    "classification": {"scores": "classifier"},
    "multiple_choice": {"scores": "classifier"},
    "tagging": {"scores": "classifier"},
    "question_answering": {"scores": "qa_outputs"},
}
"""The dense layers of those heads, by our name and theirs, as BERT and ALBERT have them."""


@dataclass(frozen=True)
class TokenOutput:
    """Where the output that scores tokens stands among their tensors."""

    kernel: str
    """Repeats the token embedding where the two are tied."""
    bias: str
    table: str
    """The token embedding."""
    repeated_bias: str = ""
    """Another name of the bias; where both are there, this one is computed with."""


def own_names(tensors: Tensors, prefix: str, parts: tuple[str, ...], output: TokenOutput, tied: bool) -> Tensors:
    """Their tensors under the names of today, each value once.

    Args:
      prefix: of the encoder's tensors in a model with heads; those of an encoder alone come without.
      parts: what the encoder's tensors begin with behind the prefix.
      output: its kernel is dropped where it repeats the token embedding.
      tied: whether config.json says so; otherwise even an equal kernel is one of its own.
    """
    renamed = {}
    alone = not any(name.startswith(f"{prefix}.") for name in tensors)
    for name, value in tensors.items():
        # Constants, which early versions wrote along.
        if name.endswith(("embeddings.position_ids", "embeddings.token_type_ids")):
            continue
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        renamed[f"{prefix}.{name}" if alone and name.split(".")[0] in parts else name] = value
    kernel, table = renamed.get(output.kernel), renamed.get(output.table)
    if tied and kernel is not None and table is not None and np.array_equal(kernel, table):
        del renamed[output.kernel]
    if output.repeated_bias in renamed:
        renamed[output.bias] = renamed.pop(output.repeated_bias)
    return renamed


def read_fields(theirs: dict[str, Any], fields: dict[str, str], defaults: dict[str, Any]) -> dict[str, Any]:
    """`read_numbers`; raises `InputError` also for architectures that we do not have."""
    _refuse_other_architectures(theirs)
    return read_numbers(theirs, fields, defaults)


def read_heads(
    theirs: dict[str, Any],
    tensors: Tensors,
    starts: dict[str, str],
    layers: dict[str, dict[str, str]],
    dropout: str = "classifier_dropout",
    default: float | None = None,
) -> dict[str, Any]:
    """Our fields of the heads that are there.

    Args:
      starts: what the tensors of each head of pretraining begin with.
      layers: as `TASK_LAYERS`. The class in config.json says which task it is, and where it does not, the tensors.
      dropout: the field of dropout in a task's head.
      default: what silence means there; None: the same as hidden_dropout_prob.
    """
    heads = tuple(head for head, start in starts.items() if has(tensors, start))
    task = _read_task(theirs, tensors, layers)
    if task is None:
        return {"heads": heads}
    rate = theirs.get(dropout)
    if rate is None:
        rate = theirs.get("hidden_dropout_prob", 0.1) if default is None else default
    fields = {"heads": (*heads, task), "head_dropout_rate": rate}
    if task in ("classification", "tagging"):
        fields["num_classes"] = len(tensors[f"{layers[task]['scores']}.weight"])
    return fields


def _read_task(theirs: dict[str, Any], tensors: Tensors, layers: dict[str, dict[str, str]]) -> str | None:
    fitting = [task for task, names in layers.items() if all(f"{name}.weight" in tensors for name in names.values())]
    fullest = max((len(layers[task]) for task in fitting), default=0)
    fitting = [task for task in fitting if len(layers[task]) == fullest]
    named = str((theirs.get("architectures") or [""])[0])
    for task in fitting:
        if named.endswith(TASK_CLASSES[task]):
            return task
    # Tasks on whole rows come with a pooler where they have no dense layer of their own.
    by_token = "tagging" in fitting and not any(".pooler." in name for name in tensors)
    return "tagging" if by_token else next(iter(fitting), None)


def describe_heads(config: EncoderConfig, dropout: str = "classifier_dropout") -> dict[str, Any]:
    """What config.json says of a task's head; nothing where there is none."""
    if not (task := task_of(config)):
        return {}
    described = {dropout: config.head_dropout_rate}
    if task in ("classification", "tagging"):
        names = {index: f"LABEL_{index}" for index in range(config.num_classes)}
        described |= {"id2label": names, "label2id": {name: index for index, name in names.items()}}
        if config.num_classes == 1:
            described["problem_type"] = "regression"
    return described


def task_of(config: EncoderConfig) -> str | None:
    """The task whose head the encoder has; `InputError` where it has another head too, which no class of theirs has."""
    tasks = [head for head in config.heads if head in TASK_CLASSES]
    if tasks and len(config.heads) > 1:
        raise InputError(
            f"heads={config.heads} have no class in Transformers together; export a model with {tasks[0]!r} alone"
        )
    return tasks[0] if tasks else None


def task_rows(config: EncoderConfig, layers: dict[str, dict[str, str]] = TASK_LAYERS) -> list[Row]:
    """The parameters of a task's head."""
    task = task_of(config)
    names = layers[task] if task else {}
    return [row for ours, theirs in names.items() for row in dense(theirs, f"{task}/{ours}")]


def describe(config: EncoderConfig, fields: dict[str, str] = FIELDS, activation: str = "hidden_act") -> dict[str, Any]:
    """What every config.json says; `fields` as in `read_fields`, `activation` is the name of that field."""
    return {theirs: getattr(config, ours) for theirs, ours in fields.items()} | {
        activation: ACTIVATIONS[config.activation][0],
        "tie_word_embeddings": config.tied,
        "initializer_range": 0.02,
        "is_encoder_decoder": False,
    }


def encoder_rows(prefix: str, config: EncoderConfig) -> list[Row]:
    """Embeddings and layers, named as in BERT behind `prefix`."""
    table = embedding_rows(f"{prefix}.embeddings", config)
    return table + layer_rows(f"{prefix}.encoder.layer.{{layer}}", LAYER)


def embedding_rows(theirs: str, config: EncoderConfig) -> list[Row]:
    """The tables of the embeddings and their norm."""
    kinds = {"word": "token", "position": "position"} | ({"token_type": "segment"} if config.num_segments else {})
    tables = [Row(f"{theirs}.{name}_embeddings.weight", f"embeddings/{ours}/embedding") for name, ours in kinds.items()]
    return tables + norm(f"{theirs}.LayerNorm", "embeddings/norm")


def layer_rows(theirs: str, names: dict[str, str]) -> list[Row]:
    """The parameters of the layers; `names` maps theirs to ours behind `theirs` and `encoder/layers`."""
    table = []
    for name, ours in names.items():
        kind = norm if ours.endswith("_norm") else dense
        table += kind(f"{theirs}.{name}", f"encoder/layers/{ours}")
    return table


def output_rows(output: TokenOutput, config: EncoderConfig) -> list[Row]:
    """The bias of the scores of tokens, and the kernel where it is not the token embedding."""
    table = [Row(output.bias, "masked_lm/scores/bias")]
    return table if config.tied else [*table, Row(output.kernel, "masked_lm/scores/kernel", transpose=True)]


def repeated_output(output: TokenOutput, config: EncoderConfig) -> dict[str, str]:
    """The bias under its other name, which Transformers reads where the kernel is not tied."""
    if config.tied or "masked_lm" not in config.heads or not output.repeated_bias:
        return {}
    return {output.repeated_bias: output.bias}


def _refuse_other_architectures(theirs: dict[str, Any]) -> None:
    positions = theirs.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise InputError(
            f"position_embedding_type={positions!r} in config.json is not one that we have; choose a model with "
            "absolute positions"
        )
    for name in ("is_decoder", "add_cross_attention"):
        if theirs.get(name):
            raise InputError(f"{name}=true in config.json makes it a decoder, which we do not have; choose an encoder")
