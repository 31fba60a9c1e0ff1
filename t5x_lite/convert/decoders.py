"""Hugging Face's `gpt2`, and `openai-gpt`, the first GPT."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.family import (
    OURS,
    OUTPUT,
    ActivationName,
    Constants,
    Heads,
    HuggingFaceFamily,
    Numbers,
    check_exportable,
    check_output,
    is_tied,
    refuse,
    task_of,
)
from t5x_lite.convert.table import Names, TensorName, Tensors, drop_copy
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

    def write(self, config: GptConfig, family: str) -> dict[str, Any]:
        task = task_of(config)
        if task == "classification" and not config.tied:
            raise InputError(
                f"tied=False with heads={config.heads} is an output that Hugging Face's {family} has no place for "
                "beside that head; export is not possible"
            )
        return super().write(config, family) | ({OURS: {"head_dropout_rate": config.head_dropout_rate}} if task else {})


@dataclass(frozen=True)
class _Widths:
    """Widths of heads and of the feed-forward layer, and the attention's scale."""

    are_fields: bool
    """Whether config.json has fields for the latter two; otherwise they have the usual values."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        usual = {"mlp_dim": 4 * theirs["n_embd"]}
        if not self.are_fields:
            return usual
        inner, unscaled = theirs.get("n_inner"), theirs.get("scale_attn_weights") is False
        return (usual if inner is None else {"mlp_dim": inner}) | {"attention_scale": 1.0 if unscaled else None}

    def write(self, config: GptConfig, family: str) -> dict[str, Any]:
        if config.head_dim not in (None, config.embed_dim / config.num_heads):
            raise InputError(
                f"head_dim={config.head_dim} with embed_dim={config.embed_dim} and num_heads={config.num_heads} has no "
                f"place in Hugging Face's {family}, whose heads are embed_dim / num_heads wide; export is not possible"
            )
        scales = (None, (config.embed_dim // config.num_heads) ** -0.5)
        if self.are_fields:
            check_exportable(family, "attention_scale", config.attention_scale, *scales, 1.0)
            return {"n_inner": config.mlp_dim, "scale_attn_weights": config.attention_scale != 1.0}
        check_exportable(family, "attention_scale", config.attention_scale, *scales)
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
            "resid_pdrop": ("dropout_rate", 0.1),
            "attn_pdrop": ("attention_dropout_rate", 0.1),
            "embd_pdrop": ("embedding_dropout_rate", 0.1),
            "layer_norm_epsilon": ("norm_epsilon", 1e-5),
        }
    ),
)
# Their names of the products in a layer, and the part of it that is ours: query, key and value are one there.
_PRODUCTS = {
    "self_attention/query": ("attn.c_attn", (0, 3)),
    "self_attention/key": ("attn.c_attn", (1, 3)),
    "self_attention/value": ("attn.c_attn", (2, 3)),
    "self_attention/out": ("attn.c_proj", (0, 1)),
    "feed_forward/wi": ("mlp.c_fc", (0, 1)),
    "feed_forward/wo": ("mlp.c_proj", (0, 1)),
}


@dataclass(frozen=True, kw_only=True)
class _GptFamily(HuggingFaceFamily):
    prefix: str = "transformer"
    constants: tuple[str, ...] = (".attn.bias", ".attn.masked_bias")  # causal masks in early files
    body: tuple[str, ...]
    """The token and the position embedding first."""
    heads: Heads = _GptHeads(
        {"classification": {"scores": "score"}, "multiple_choice": {"scores": "multiple_choice_head.summary"}},
        {("classification",): "ForSequenceClassification", ("multiple_choice",): "DoubleHeadsModel", (): "LMHeadModel"},
        dropout="summary_first_dropout",
        undropped=("classification",),
        default=0.1,
    )

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        tensors = super().canonical_tensors(theirs, tensors)
        if is_tied(theirs) and OUTPUT in tensors:
            table = f"transformer.{self.body[0]}.weight"
            tensors.setdefault(table, tensors[OUTPUT])  # some classes write the output alone
            drop_copy(tensors, OUTPUT, table)
        return tensors

    def special_ids(self, config: GptConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        if vocabulary is None:
            return dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")) | self.ids
        eos = vocabulary.eos_id
        bos = eos if vocabulary.cls_id is None else vocabulary.cls_id
        # The first GPT's <unk> stands for the ids that it does not have.
        if not self.ids and eos == vocabulary.unk_id:
            bos = eos = None
        pad = vocabulary.pad_id if vocabulary.has_padding else None
        return {"pad_token_id": pad, "eos_token_id": eos, "bos_token_id": bos}

    def names(self, config: GptConfig) -> Names:
        layer, layers = "transformer.h.{layer}", "decoder/layers"
        # Their kernels are [in, out], as ours.
        products = {
            f"{layers}/{ours}/{leaf}": TensorName(f"{layer}.{theirs}.{name}", part=part)
            for ours, (theirs, part) in _PRODUCTS.items()
            for leaf, name in (("kernel", "weight"), ("bias", "bias"))
        }
        others = {
            "token_embedding": f"transformer.{self.body[0]}",
            "position": f"transformer.{self.body[1]}",
            f"{layers}/self_attention_norm": f"{layer}.ln_1",
            f"{layers}/feed_forward_norm": f"{layer}.ln_2",
            "decoder/final_norm": "transformer.ln_f",
            "output": "lm_head",
        }
        return products | others | self.heads.names


GPT2 = _GptFamily(
    model_type="gpt2",
    name="GPT2",
    config=GptConfig,
    fits=lambda config, tokenizer: config.norm_first,
    ids={"bos_token_id": 50_256, "eos_token_id": 50_256},
    body=("wte", "wpe", "h", "ln_f"),
    fields=(
        *_FIELDS,
        _Widths(are_fields=True),
        ActivationName("activation_function", "gelu_new"),
        Constants(ours={"norm_first": True}),
    ),
)
OPENAI_GPT = _GptFamily(
    model_type="openai-gpt",
    name="OpenAIGPT",
    config=GptConfig,
    fits=lambda config, tokenizer: not config.norm_first,
    ids={},
    body=("tokens_embed", "positions_embed", "h", "ln_f"),
    fields=(
        *_FIELDS,
        _Widths(are_fields=False),
        # Unlike in the other families, "gelu" means the approximation.
        ActivationName("afn", names={"gelu_tanh": ("gelu",), "relu": ("relu",), "silu": ("silu", "swish")}),
        Constants(ours={"norm_first": False}),
    ),
)
FAMILIES = (GPT2, OPENAI_GPT)
