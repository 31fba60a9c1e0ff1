"""Hugging Face's `marian`, which is the Transformer of 2017: its config.json and its parameter names."""

from typing import Any

import numpy as np

from t5x_lite.convert import encoder_decoders
from t5x_lite.convert.encoder_decoders import SHARED, SIDES
from t5x_lite.convert.fields import our_fields
from t5x_lite.convert.table import Row, Tensors, Zeros
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import TransformerConfig

MODEL_TYPES = ("marian",)
CONFIG = TransformerConfig
IDS = {"pad_token_id": 58_100, "eos_token_id": 0}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`, without the sinusoids."""
    renamed = encoder_decoders.own_names(theirs, tensors)
    return {name: value for name, value in renamed.items() if not name.endswith(".embed_positions.weight")}


def import_config(theirs: dict[str, Any], tensors: Tensors) -> TransformerConfig:
    """The architecture that a config.json and its tensors describe. Raises `InputError` for what we do not have."""
    silent = IDS | {"decoder_start_token_id": 58_100}
    # The paper's projections have no biases; an export of ours gives them zeros, which others may have trained.
    biases = [value for name, value in tensors.items() if "_attn." in name and name.endswith("_proj.bias")]
    return TransformerConfig(
        **encoder_decoders.read_fields(theirs, tensors, silent, TransformerConfig.starts_with),
        attention_bias=our_fields(theirs).get("attention_bias", True) or any(map(np.any, biases)),
    )


def export_config(
    config: TransformerConfig, tokenizer: Tokenizer | None, vocabulary: Vocabulary | None
) -> dict[str, Any]:
    """The config.json of an architecture."""
    for name, value, only in (
        ("positions", config.positions, "sinusoidal"),
        ("norm_first", config.norm_first, False),
    ):
        if value != only:
            raise InputError(
                f"{name}={value!r} has no place in Hugging Face's marian, where it is {only!r}; export is not possible"
            )
    return encoder_decoders.describe(config, vocabulary, "marian", IDS, "attention_bias") | {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "bos_token_id": None,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.shared_embedding,
    }


def rows(config: TransformerConfig) -> list[Row | Zeros]:
    """The names of every parameter of this architecture."""
    return encoder_decoders.rows(config)


def repeated(config: TransformerConfig) -> dict[str, str]:
    """Further names for some of the tensors."""
    # Where the output is not tied, nothing is.
    return dict.fromkeys(SIDES.values(), SHARED) if config.shared_embedding and not config.tied else {}
