"""Hugging Face's `openai-gpt`, the first GPT: its config.json and its parameter names."""

from typing import Any

from t5x_lite.convert import decoders
from t5x_lite.convert.fields import read_activation
from t5x_lite.convert.table import Row, Tensors
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig

MODEL_TYPES = ("openai-gpt",)
CONFIG = GptConfig
IDS: dict[str, int] = {}

_TABLES = {"tokens_embed": "token_embedding/embedding", "positions_embed": "position/embedding"}
# Unlike in the other families, "gelu" means the approximation.
_ACTIVATIONS = {"gelu_tanh": ("gelu",), "relu": ("relu",), "silu": ("silu", "swish")}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`."""
    return decoders.own_names(theirs, tensors, "transformer.tokens_embed.weight")


def import_config(theirs: dict[str, Any], tensors: Tensors) -> GptConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    fields = decoders.read_fields(theirs, tensors)
    return GptConfig(
        **fields,
        mlp_dim=4 * fields["embed_dim"],
        activation=read_activation(theirs, "afn", names=_ACTIVATIONS),
        norm_first=False,
    )


def export_config(config: GptConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The config.json of an architecture."""
    usual = (config.embed_dim // config.num_heads) ** -0.5
    for name, value, allowed in (
        ("mlp_dim", config.mlp_dim, (4 * config.embed_dim,)),
        ("activation", config.activation, tuple(_ACTIVATIONS)),
        ("attention_scale", config.attention_scale, (None, usual)),
    ):
        if value not in allowed:
            raise InputError(
                f"{name}={value!r} has no place in Hugging Face's openai-gpt, which takes "
                f"{' or '.join(map(str, allowed))}; export is not possible"
            )
    ids = decoders.describe(config, vocabulary, "openai-gpt", IDS)
    # Its <unk> stands for the ids that it does not have.
    if vocabulary is not None and vocabulary.eos_id == vocabulary.unk_id:
        ids |= {"bos_token_id": None, "eos_token_id": None}
    return ids | {
        "architectures": [decoders.architecture(config, "OpenAIGPT")],
        "model_type": "openai-gpt",
        "afn": _ACTIVATIONS[config.activation][0],
    }


def rows(config: GptConfig) -> list[Row]:
    """The names of every parameter of this architecture."""
    return decoders.rows(config, _TABLES)


def repeated(config: GptConfig) -> dict[str, str]:
    """Further names for some of the tensors: none."""
    return {}
