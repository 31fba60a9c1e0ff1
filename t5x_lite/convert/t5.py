"""Hugging Face's `t5` and `mt5`: their config.json and their parameter names."""

from typing import Any

import numpy as np

from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models.t5 import PRESETS, T5Config

MODEL_TYPES = ("t5", "mt5")
CONFIG = T5Config
IDS = {"pad_token_id": 0, "eos_token_id": 1}

# What feed_forward_proj may say after "gated-"; "gated-gelu" alone means the tanh approximation there.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

_SIZES = {
    "vocab_size": "vocab_size",
    "d_model": "embed_dim",
    "num_heads": "num_heads",
    "d_kv": "head_dim",
    "d_ff": "mlp_dim",
    "num_layers": "num_encoder_layers",
    "num_decoder_layers": "num_decoder_layers",
    "relative_attention_num_buckets": "relative_buckets",
    "relative_attention_max_distance": "relative_max_distance",
    "dropout_rate": "dropout_rate",
    "layer_norm_epsilon": "norm_epsilon",
}
# What a config.json means where it is silent.
_DEFAULTS = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`; without those that repeat another one, or that no layer reads."""
    head, shared = (tensors.get(name) for name in ("lm_head.weight", "shared.weight"))
    shared = tensors.get("encoder.embed_tokens.weight") if shared is None else shared
    repeated = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    # The cross-attention of early exports carries a bias that no model ever used.
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    renamed = {name: value for name, value in tensors.items() if name not in repeated | {unused}}
    if shared is not None:
        renamed["shared.weight"] = shared
    if head is not None and shared is not None and np.array_equal(head, shared):
        del renamed["lm_head.weight"]
    return renamed


def import_config(theirs: dict[str, Any], tensors: Tensors) -> T5Config:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    theirs = _DEFAULTS | theirs
    if theirs.get("num_decoder_layers") is None:
        theirs["num_decoder_layers"] = theirs.get("num_layers")
    if missing := [name for name in _SIZES if theirs.get(name) is None]:
        raise InputError(f"config.json lacks {', '.join(missing)}; it is not a T5's")
    projection = theirs.get("feed_forward_proj", "relu")
    gated = projection.startswith("gated-")
    activation = projection.removeprefix("gated-")
    if activation not in _ACTIVATIONS:
        raise InputError(
            f"feed_forward_proj={projection!r} in config.json is unknown; known are {', '.join(_ACTIVATIONS)}"
        )
    # Only v1.0 scales the output. Transformers 4 tells by the tied embedding, 5 by a flag of its own; mT5 never does.
    tied_there = theirs.get("tie_word_embeddings") is not False
    scaled = theirs.get("model_type") != "mt5" and theirs.get("scale_decoder_outputs", tied_there)
    return T5Config(
        **{ours: theirs[name] for name, ours in _SIZES.items()},
        activation="gelu_tanh" if projection == "gated-gelu" else _ACTIVATIONS[activation],
        gated=gated,
        tied="lm_head.weight" not in tensors,
        scale_output=scaled,
    )


def export_config(config: T5Config, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    if config.stacks_share_parameters:
        raise InputError("stacks_share_parameters=True has no place in Hugging Face's T5; export is not possible")
    ours_to_theirs = {ours: theirs for theirs, ours in _ACTIVATIONS.items() if theirs != "swish"}
    activation = ours_to_theirs[config.activation]
    if config.gated and config.activation == "gelu_tanh":
        activation = "gelu"
    elif config.gated and config.activation == "gelu":
        raise InputError(
            "activation='gelu' with gated=True has no name in Hugging Face's T5, where gated-gelu means gelu_tanh; "
            "export is not possible"
        )
    # An mT5 is a T5 v1.1 with mT5's vocabulary; nothing else tells them apart.
    multilingual = config.vocab_size == PRESETS["mt5-small"].vocab_size and not config.scale_output
    ids = special_ids(vocabulary, **IDS)
    return {theirs: getattr(config, ours) for theirs, ours in _SIZES.items()} | {
        "architectures": ["MT5ForConditionalGeneration" if multilingual else "T5ForConditionalGeneration"],
        "model_type": "mt5" if multilingual else "t5",
        "feed_forward_proj": f"gated-{activation}" if config.gated else activation,
        "tie_word_embeddings": config.tied and config.scale_output,
        "scale_decoder_outputs": config.scale_output,
        "is_encoder_decoder": True,
        "use_cache": True,
        "initializer_factor": 1.0,
        **ids,
        "decoder_start_token_id": ids["pad_token_id"],
    }


def rows(config: T5Config) -> list[Row]:
    """The names of every parameter of this architecture."""
    table = [
        Row("shared.weight", "token_embedding/embedding"),
        *_stack_rows("encoder", config, ["SelfAttention", "DenseReluDense"]),
        *_stack_rows("decoder", config, ["SelfAttention", "EncDecAttention", "DenseReluDense"]),
    ]
    return table if config.tied else [*table, Row("lm_head.weight", "output/kernel", transpose=True)]


def repeated(config: T5Config) -> dict[str, str]:
    """Further names for some of the tensors."""
    # Transformers 4 takes an output that is not scaled for one that is not tied.
    return {"lm_head.weight": "shared.weight"} if config.tied and not config.scale_output else {}


def _stack_rows(stack: str, config: T5Config, sublayers: list[str]) -> list[Row]:
    kinds = {"SelfAttention": "self_attention", "EncDecAttention": "cross_attention", "DenseReluDense": "feed_forward"}
    attention = {"q": "query", "k": "key", "v": "value", "o": "out"}
    feed_forward = {"wi_0": "gate", "wi_1": "wi", "wo": "wo"} if config.gated else {"wi": "wi", "wo": "wo"}
    table = [
        Row(f"{stack}.final_layer_norm.weight", f"{stack}/final_norm/scale"),
        Row(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{stack}_position_bias/bias"),
    ]
    for index, sublayer in enumerate(sublayers):
        theirs, ours = f"{stack}.block.{{layer}}.layer.{index}", f"{stack}/layers/{kinds[sublayer]}"
        table.append(Row(f"{theirs}.layer_norm.weight", f"{ours}_norm/scale"))
        for their_name, our_name in (feed_forward if sublayer == "DenseReluDense" else attention).items():
            table.append(Row(f"{theirs}.{sublayer}.{their_name}.weight", f"{ours}/{our_name}/kernel", transpose=True))
    return table
