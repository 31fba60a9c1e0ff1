"""What Hugging Face's encoders have in common: fields of config.json, names of parameters, and what to do with repeats.

A family's file says how it differs: see `t5x_lite.convert.bert` for the shape of one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.fields import ACTIVATIONS, read_numbers
from t5x_lite.convert.table import Row, Tensors, dense, norm
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
