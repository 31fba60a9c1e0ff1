"""Hugging Face's `t5` and `mt5`."""

from dataclasses import replace
from typing import Any

import numpy as np

from t5x_lite.convert.family import HuggingFaceFamily
from t5x_lite.convert.fields import OUTPUT, Constants, Numbers, check_exportable, is_tied
from t5x_lite.convert.heads import Heads
from t5x_lite.convert.table import Row, Tensors
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, T5Config

# What feed_forward_proj may say after "gated-"; "gated-gelu" alone means the tanh approximation there.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class _Sizes(Numbers):
    """Numbers with as many layers on either side where those of the decoder are not said."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        if theirs.get("num_decoder_layers") is None:
            theirs = theirs | {"num_decoder_layers": theirs.get("num_layers")}
        return super().read(theirs, tensors)


class _FeedForward:
    """The activation, and whether it is gated, which are one field there."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        projection = theirs.get("feed_forward_proj", "relu")
        activation = projection.removeprefix("gated-")
        if activation not in _ACTIVATIONS:
            raise InputError(
                f"feed_forward_proj={projection!r} in config.json is unknown; known are {', '.join(_ACTIVATIONS)}"
            )
        ours = "gelu_tanh" if projection == "gated-gelu" else _ACTIVATIONS[activation]
        return {"activation": ours, "gated": projection.startswith("gated-")}

    def write(self, config: T5Config, family: str) -> dict[str, Any]:
        activation = {ours: theirs for theirs, ours in _ACTIVATIONS.items() if theirs != "swish"}[config.activation]
        if config.gated and config.activation == "gelu_tanh":
            activation = "gelu"
        elif config.gated and config.activation == "gelu":
            raise InputError(
                f"activation='gelu' with gated=True has no name in Hugging Face's {family}, where gated-gelu means "
                "gelu_tanh; export is not possible"
            )
        return {"feed_forward_proj": f"gated-{activation}" if config.gated else activation}


class _Output:
    """Whether the output is tied and scaled."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        # Only v1.0 scales the output. Transformers 4 tells by the tied embedding, 5 by a flag of its own; mT5 never
        # does.
        scaled = theirs["model_type"] != "mt5" and theirs.get("scale_decoder_outputs", is_tied(theirs))
        return {"tied": OUTPUT not in tensors, "scale_output": scaled}

    def write(self, config: T5Config, family: str) -> dict[str, Any]:
        check_exportable(family, "stacks_share_parameters", config.stacks_share_parameters, False)
        tied = config.tied and config.scale_output
        return {"tie_word_embeddings": tied, "scale_decoder_outputs": config.scale_output}


class _T5Family(HuggingFaceFamily):
    def own_names(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """Without those that repeat another one, or that no layer reads."""
        head, shared = (tensors.get(name) for name in (OUTPUT, "shared.weight"))
        shared = tensors.get("encoder.embed_tokens.weight") if shared is None else shared
        repeated = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
        # The cross-attention of early exports carries a bias that no model ever used.
        unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        renamed = {name: value for name, value in tensors.items() if name not in repeated | {unused}}
        if shared is not None:
            renamed["shared.weight"] = shared
        if head is not None and shared is not None and np.array_equal(head, shared):
            del renamed[OUTPUT]
        return renamed

    def special_ids(self, config: T5Config, vocabulary: Vocabulary | None) -> dict[str, Any]:
        ids = super().special_ids(config, vocabulary)
        return ids | {"decoder_start_token_id": ids["pad_token_id"]}

    def rows(self, config: T5Config) -> list[Row]:
        table = [
            Row("shared.weight", "token_embedding/embedding"),
            *_stack_rows("encoder", config, ["SelfAttention", "DenseReluDense"]),
            *_stack_rows("decoder", config, ["SelfAttention", "EncDecAttention", "DenseReluDense"]),
        ]
        return table if config.tied else [*table, Row(OUTPUT, "output/kernel", transpose=True)]

    def repeated(self, config: T5Config) -> dict[str, str]:
        # Transformers 4 takes an output that is not scaled for one that is not tied.
        return {OUTPUT: "shared.weight"} if config.tied and not config.scale_output else {}


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


T5 = _T5Family(
    model_type="t5",
    name="T5",
    config=T5Config,
    ids={"pad_token_id": 0, "eos_token_id": 1},
    fields=(
        _Sizes(
            {
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
            },
            {
                "relative_attention_num_buckets": 32,
                "relative_attention_max_distance": 128,
                "dropout_rate": 0.1,
                "layer_norm_epsilon": 1e-6,
            },
        ),
        _FeedForward(),
        _Output(),
        Constants({"is_encoder_decoder": True, "use_cache": True, "initializer_factor": 1.0}, checked=False),
    ),
    heads=Heads({}, {(): "ForConditionalGeneration"}),
)
MT5 = replace(
    T5,
    model_type="mt5",
    name="MT5",
    # A T5 v1.1 with mT5's vocabulary; nothing else tells them apart.
    fits=lambda config, tokenizer: config.vocab_size == PRESETS["mt5-small"].vocab_size and not config.scale_output,
)
FAMILIES = (T5, MT5)
