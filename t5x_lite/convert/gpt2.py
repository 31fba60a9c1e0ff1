"""Hugging Face's `gpt2`: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import decoders
from t5x_lite.convert.fields import ACTIVATIONS, read_activation
from t5x_lite.convert.table import Row, Tensors, norm
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig

MODEL_TYPES = ("gpt2",)
CONFIG = GptConfig
IDS = {"bos_token_id": 50_256, "eos_token_id": 50_256}

_TABLES = {"wte": "token_embedding/embedding", "wpe": "position/embedding"}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    return decoders.own_names(theirs, tensors, "transformer.wte.weight")


def import_config(theirs: dict[str, Any], tensors: Tensors) -> GptConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    fields = decoders.read_fields(theirs, tensors)
    return GptConfig(
        **fields,
        mlp_dim=4 * fields["embed_dim"] if theirs.get("n_inner") is None else theirs["n_inner"],
        activation=read_activation(theirs, "activation_function", default="gelu_new"),
        attention_scale=1.0 if theirs.get("scale_attn_weights") is False else None,
    )


def export_config(config: GptConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    usual = (config.embed_dim // config.num_heads) ** -0.5
    if config.attention_scale not in (None, 1.0, usual):
        raise InputError(
            f"attention_scale={config.attention_scale} has no place in Hugging Face's GPT-2, where it is 1 or "
            f"head_dim ** -0.5; export is not possible"
        )
    return decoders.describe(config, vocabulary, "GPT-2", IDS) | {
        "architectures": [decoders.architecture(config, "GPT2")],
        "model_type": "gpt2",
        "n_inner": config.mlp_dim,
        "activation_function": ACTIVATIONS[config.activation][0],
        "scale_attn_weights": config.attention_scale != 1.0,
    }


def rows(config: GptConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    return decoders.rows(config, _TABLES) + norm("transformer.ln_f", "decoder/final_norm")


def repeated(config: GptConfig) -> dict[str, str]:
    """Further names for some of the tensors: none."""
    return {}
