"""Hugging Face's `gpt2`, and `openai-gpt`, the first GPT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.family import HuggingFaceFamily, with_prefix
from t5x_lite.convert.fields import (
    OURS,
    OUTPUT,
    ActivationName,
    Constants,
    Numbers,
    Only,
    check_exportable,
    check_output,
    is_tied,
    our_fields,
    refuse,
)
from t5x_lite.convert.generation import special_ids
from t5x_lite.convert.heads import Heads, task_of
from t5x_lite.convert.table import Row, Tensors, norm
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig


class _GptHeads(Heads):
    """The heads of tasks, with the output beside them or not."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        if fields["heads"] == ("multiple_choice",):
            refuse(theirs, summary_type="cls_index", summary_use_proj=True, summary_proj_to_labels=True)
            refuse(theirs, summary_activation=None, summary_last_dropout=0.0)
        if fields["heads"] != ("classification",):  # that class has no output which could be tied
            check_output(tensors, is_tied(theirs))
        return fields | {"tied": OUTPUT not in tensors}

    def dropout_rate(self, theirs: dict[str, Any], task: str) -> float:
        if task == "classification":
            # Theirs drops nothing there.
            return our_fields(theirs).get("head_dropout_rate", 0.0)
        return super().dropout_rate(theirs, task)

    def write(self, config: GptConfig, family: str) -> dict[str, Any]:
        task = task_of(config)
        if task == "classification" and not config.tied:
            raise InputError(
                f"tied=False with heads={config.heads} is an output that Hugging Face's {family} has no place for "
                "beside that head; export is not possible"
            )
        return super().write(config, family) | ({OURS: {"head_dropout_rate": config.head_dropout_rate}} if task else {})

    def rows(self, config: GptConfig) -> list[Row]:
        return [row for row in super().rows(config) if row.ours != "classification/scores/bias"]


@dataclass(frozen=True)
class _Widths:
    """Widths of heads and of the feed-forward layer, and the attention's scale."""

    are_fields: bool
    """Whether config.json has fields for the latter two; otherwise they have the usual values."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        if not self.are_fields:
            return {"mlp_dim": 4 * theirs["n_embd"]}
        inner, unscaled = theirs.get("n_inner"), theirs.get("scale_attn_weights") is False
        return {
            "mlp_dim": 4 * theirs["n_embd"] if inner is None else inner,
            "attention_scale": 1.0 if unscaled else None,
        }

    def write(self, config: GptConfig, family: str) -> dict[str, Any]:
        if config.head_dim not in (None, config.embed_dim / config.num_heads):
            raise InputError(
                f"head_dim={config.head_dim} with embed_dim={config.embed_dim} and num_heads={config.num_heads} has no "
                f"place in Hugging Face's {family}, whose heads are embed_dim / num_heads wide; export is not possible"
            )
        usual = (config.embed_dim // config.num_heads) ** -0.5
        if self.are_fields:
            check_exportable(family, "attention_scale", config.attention_scale, None, usual, 1.0)
            return {"n_inner": config.mlp_dim, "scale_attn_weights": config.attention_scale != 1.0}
        check_exportable(family, "attention_scale", config.attention_scale, None, usual)
        check_exportable(family, "mlp_dim", config.mlp_dim, 4 * config.embed_dim)
        return {}


_FIELDS = (
    Constants({"add_cross_attention": False, "scale_attn_by_inverse_layer_idx": False, "is_encoder_decoder": False}),
    Constants({"initializer_range": 0.02}, checked=False),
    Numbers(
        {
            "vocab_size": "vocab_size",
            "n_embd": "embed_dim",
            "n_layer": "num_layers",
            "n_head": "num_heads",
            "n_positions": "max_length",
            "resid_pdrop": "dropout_rate",
            "attn_pdrop": "attention_dropout_rate",
            "embd_pdrop": "embedding_dropout_rate",
            "layer_norm_epsilon": "norm_epsilon",
        },
        {"resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5},
    ),
)
_LAYER = "transformer.h.{layer}"


@dataclass(frozen=True, kw_only=True)
class _GptFamily(HuggingFaceFamily):
    """What the two have in common."""

    tables: Mapping[str, str]
    """Of token and position embeddings: ours, by theirs."""
    heads: Heads = _GptHeads(
        {"classification": {"scores": "score"}, "multiple_choice": {"scores": "multiple_choice_head.summary"}},
        {
            ("classification",): "ForSequenceClassification",
            ("multiple_choice",): "DoubleHeadsModel",
            (): "LMHeadModel",
        },
        dropout="summary_first_dropout",
        default=0.1,
    )

    def own_names(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        # Without causal masks, which early versions wrote along.
        tensors = {
            name: value for name, value in tensors.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))
        }
        renamed = with_prefix(tensors, "transformer", ("h", "ln_f", *self.tables))
        table = f"transformer.{next(iter(self.tables))}.weight"
        kernel, embedding = renamed.get(OUTPUT), renamed.get(table)
        if is_tied(theirs) and kernel is not None and (embedding is None or np.array_equal(kernel, embedding)):
            # Of two that are one, some classes write the output alone.
            renamed[table] = renamed.pop(OUTPUT)
        return renamed

    def special_ids(self, config: GptConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        if vocabulary is None:
            return {**dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")), **self.ids}
        ids: dict[str, Any] = special_ids(vocabulary, pad_token_id=0, eos_token_id=0)
        if not vocabulary.has_padding:
            ids["pad_token_id"] = None
        ids["bos_token_id"] = ids["eos_token_id"] if vocabulary.cls_id is None else vocabulary.cls_id
        # The first GPT's <unk> stands for the ids that it does not have.
        if not self.ids and vocabulary.eos_id == vocabulary.unk_id:
            ids |= {"bos_token_id": None, "eos_token_id": None}
        return ids

    def rows(self, config: GptConfig) -> list[Row]:
        # Their kernels are [in, out], as ours; query, key and value stand side by side in one.
        products = {"attn.c_proj": "self_attention/out", "mlp.c_fc": "feed_forward/wi", "mlp.c_proj": "feed_forward/wo"}
        layers = "decoder/layers"
        table = [Row(f"transformer.{theirs}.weight", f"{ours}/embedding") for theirs, ours in self.tables.items()]
        for theirs, ours in {"weight": "kernel", "bias": "bias"}.items():
            table += [
                Row(f"{_LAYER}.attn.c_attn.{theirs}", f"{layers}/self_attention/{name}/{ours}", part=(part, 3))
                for part, name in enumerate(("query", "key", "value"))
            ]
            table += [Row(f"{_LAYER}.{name}.{theirs}", f"{layers}/{path}/{ours}") for name, path in products.items()]
        table += norm(f"{_LAYER}.ln_1", f"{layers}/self_attention_norm")
        table += norm(f"{_LAYER}.ln_2", f"{layers}/feed_forward_norm")
        if config.norm_first:
            table += norm("transformer.ln_f", "decoder/final_norm")
        if not config.tied:
            table.append(Row(OUTPUT, "output/kernel", transpose=True))
        return table + self.heads.rows(config)


GPT2 = _GptFamily(
    model_type="gpt2",
    name="GPT2",
    config=GptConfig,
    fits=lambda config, tokenizer: config.norm_first,
    ids={"bos_token_id": 50_256, "eos_token_id": 50_256},
    tables={"wte": "token_embedding", "wpe": "position"},
    fields=(
        *_FIELDS,
        _Widths(are_fields=True),
        ActivationName("activation_function", "gelu_new"),
        Only({"norm_first": True}),
    ),
)
OPENAI_GPT = _GptFamily(
    model_type="openai-gpt",
    name="OpenAIGPT",
    config=GptConfig,
    fits=lambda config, tokenizer: not config.norm_first,
    ids={},
    tables={"tokens_embed": "token_embedding", "positions_embed": "position"},
    fields=(
        *_FIELDS,
        _Widths(are_fields=False),
        # Unlike in the other families, "gelu" means the approximation.
        ActivationName("afn", names={"gelu_tanh": ("gelu",), "relu": ("relu",), "silu": ("silu", "swish")}),
        Only({"norm_first": False}),
    ),
)
FAMILIES = (GPT2, OPENAI_GPT)
