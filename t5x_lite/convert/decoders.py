"""What Hugging Face's `gpt2` and `openai-gpt` have in common: fields of config.json and names of parameters."""

from typing import Any

import numpy as np

from t5x_lite.convert import task_heads
from t5x_lite.convert.fields import OURS, OUTPUT, check_output, our_fields, read_numbers, refuse, says_tied
from t5x_lite.convert.special_ids import special_ids
from t5x_lite.convert.table import Row, Tensors, dense, norm
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig

_FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "embed_dim",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_positions": "max_length",
    "resid_pdrop": "dropout_rate",
    "attn_pdrop": "attention_dropout_rate",
    "embd_pdrop": "embedding_dropout_rate",
    "layer_norm_epsilon": "norm_epsilon",
}
# What a config.json means where it is silent.
_DEFAULTS = {"resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
_LAYER = "transformer.h.{layer}"
_CLASSES, _CHOICES = "score", "multiple_choice_head.summary"
_CLASSES_OF_HEADS = {"classification": "ForSequenceClassification", "multiple_choice": "DoubleHeadsModel"}


def own_names(theirs: dict[str, Any], tensors: Tensors, table: str) -> Tensors:
    """Their tensors under the names of `rows`; those of a model without a head come without their prefix.

    `table` is the name of the token embedding, which the output repeats where the two are tied.
    """
    alone = not any(name.startswith("transformer.") for name in tensors)
    heads = ("lm_head.", "score.", "multiple_choice_head.")
    renamed = {}
    for name, value in tensors.items():
        # Causal masks, which early versions wrote along.
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        renamed[f"transformer.{name}" if alone and not name.startswith(heads) else name] = value
    kernel, embedding = renamed.get(OUTPUT), renamed.get(table)
    if says_tied(theirs) and kernel is not None and (embedding is None or np.array_equal(kernel, embedding)):
        # Of two that are one, some classes write the output alone.
        renamed[table] = renamed.pop(OUTPUT)
    return renamed


def read_fields(theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The fields that both have. Raises `InputError` for what we do not have."""
    refuse(theirs, add_cross_attention=False, scale_attn_by_inverse_layer_idx=False, is_encoder_decoder=False)
    heads = _read_heads(theirs, tensors)
    if heads.get("heads") != ("classification",):  # that class has no output which could be tied
        check_output(tensors, says_tied(theirs))
    return read_numbers(theirs, _FIELDS, _DEFAULTS) | {"tied": OUTPUT not in tensors} | heads


def _read_heads(theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """Our fields of the head of a task, which its tensors identify."""
    if f"{_CLASSES}.weight" in tensors:
        # Theirs drops nothing there.
        rate = our_fields(theirs).get("head_dropout_rate", 0.0)
        classes = len(tensors[f"{_CLASSES}.weight"])
        return {"heads": ("classification",), "num_classes": classes, "head_dropout_rate": rate}
    if f"{_CHOICES}.weight" not in tensors:
        return {}
    refuse(theirs, summary_type="cls_index", summary_use_proj=True, summary_proj_to_labels=True)
    refuse(theirs, summary_activation=None, summary_last_dropout=0.0)
    rate = theirs.get("summary_first_dropout")
    return {"heads": ("multiple_choice",), "head_dropout_rate": 0.1 if rate is None else rate}


def describe(
    config: GptConfig, vocabulary: Vocabulary | None, family: str, published: dict[str, int]
) -> dict[str, Any]:
    """What both say in config.json, for a model whose heads have the usual width."""
    if config.head_dim not in (None, config.embed_dim / config.num_heads):
        raise InputError(
            f"head_dim={config.head_dim} with embed_dim={config.embed_dim} and num_heads={config.num_heads} has no "
            f"place in Hugging Face's {family}, whose heads are embed_dim / num_heads wide; export is not possible"
        )
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")) | published
    if vocabulary is not None:
        ids = special_ids(vocabulary, pad_token_id=0, eos_token_id=0)
        if not vocabulary.has_padding:
            ids["pad_token_id"] = None
        ids["bos_token_id"] = ids["eos_token_id"] if vocabulary.cls_id is None else vocabulary.cls_id
    task = task_heads.task_of(config)
    if task == "classification" and not config.tied:
        raise InputError(
            f"tied=False with heads={config.heads} is an output that Hugging Face's {family} has no place for beside "
            "that head; export is not possible"
        )
    described = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    described |= task_heads.describe_heads(config, "summary_first_dropout")
    return described | {
        "tie_word_embeddings": config.tied,
        "initializer_range": 0.02,
        **ids,
        **({OURS: {"head_dropout_rate": config.head_dropout_rate}} if task else {}),
    }


def architecture(config: GptConfig, family: str) -> str:
    """The name of their class; `family` is what it begins with."""
    task = task_heads.task_of(config)
    return family + (_CLASSES_OF_HEADS[task] if task else "LMHeadModel")


def rows(config: GptConfig, tables: dict[str, str]) -> list[Row]:
    """The names of every parameter; `tables` maps theirs to ours for token and position embeddings."""
    # Their kernels are [in, out], as ours; query, key and value stand side by side in one.
    products = {"attn.c_proj": "self_attention/out", "mlp.c_fc": "feed_forward/wi", "mlp.c_proj": "feed_forward/wo"}
    kinds = {"weight": "kernel", "bias": "bias"}
    layers = "decoder/layers"
    table = [Row(f"transformer.{theirs}.weight", ours) for theirs, ours in tables.items()]
    for theirs, ours in kinds.items():
        table += [
            Row(f"{_LAYER}.attn.c_attn.{theirs}", f"{layers}/self_attention/{name}/{ours}", part=(part, 3))
            for part, name in enumerate(("query", "key", "value"))
        ]
        table += [Row(f"{_LAYER}.{name}.{theirs}", f"{layers}/{path}/{ours}") for name, path in products.items()]
    table += norm(f"{_LAYER}.ln_1", f"{layers}/self_attention_norm")
    table += norm(f"{_LAYER}.ln_2", f"{layers}/feed_forward_norm")
    if "classification" in config.heads:
        table.append(Row(f"{_CLASSES}.weight", "classification/scores/kernel", transpose=True))
    if "multiple_choice" in config.heads:
        table += dense(_CHOICES, "multiple_choice/scores")
    return table if config.tied else [*table, Row(OUTPUT, "output/kernel", transpose=True)]
