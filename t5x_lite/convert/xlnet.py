"""Hugging Face's `xlnet`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.family import (
    TASK_CLASSES,
    ActivationName,
    Constants,
    Heads,
    HuggingFaceFamily,
    Numbers,
    is_tied,
    refuse,
)
from t5x_lite.convert.table import Names, TensorName, Tensors, drop_copy
from t5x_lite.models import XLNetConfig

_TABLE, _MASK, _OUTPUT = "transformer.word_embedding.weight", "transformer.mask_emb", "lm_loss.weight"


@dataclass(frozen=True)
class _ClampLength:
    """The distance beyond which positions are the same: -1 is none there."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        value = Numbers({"clamp_len": ("clamp_length", -1)}).read(theirs, tensors)["clamp_length"]
        return {"clamp_length": value if value > 0 else None}

    def write(self, config: XLNetConfig, family: str) -> dict[str, Any]:
        return {"clamp_len": -1 if config.clamp_length is None else config.clamp_length}


class _XLNetHeads(Heads):
    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        if fields["heads"] and fields["heads"][0] in ("classification", "multiple_choice"):
            refuse(theirs, summary_type="last", summary_use_proj=True, summary_activation="tanh")
        return fields


@dataclass(frozen=True, kw_only=True)
class _XLNetFamily(HuggingFaceFamily):
    prefix: str = "transformer"
    body: tuple[str, ...] = ("word_embedding", "mask_emb", "layer")

    def names(self, config: XLNetConfig) -> Names:
        layer, layers, heads = "transformer.layer.{layer}", "encoder/layers", config.num_heads
        attention = f"{layers}/self_attention"
        names: dict[str, str | TensorName] = {
            "token_embedding": "transformer.word_embedding",
            "mask_embedding": _MASK,
            "output_bias": "lm_loss.bias",
            f"{attention}/content_bias": f"{layer}.rel_attn.r_w_bias",
            f"{attention}/position_bias": f"{layer}.rel_attn.r_r_bias",
            f"{attention}/segment_bias": f"{layer}.rel_attn.r_s_bias",
            f"{attention}/segment": f"{layer}.rel_attn.seg_embed",
            f"{layers}/self_attention_norm": f"{layer}.rel_attn.layer_norm",
            f"{layers}/feed_forward_norm": f"{layer}.ff.layer_norm",
            f"{layers}/feed_forward/wi": f"{layer}.ff.layer_1",
            f"{layers}/feed_forward/wo": f"{layer}.ff.layer_2",
        }
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("position", "r"), ("out", "o")):
            name = TensorName(f"{layer}.rel_attn.{theirs}", transpose=ours == "out", heads=heads)
            names[f"{attention}/{ours}/kernel"] = name
        return names | self.heads.names

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        tensors = super().canonical_tensors(theirs, tensors)
        if _MASK in tensors:
            tensors[_MASK] = np.asarray(tensors[_MASK]).reshape(-1)
        if is_tied(theirs):
            drop_copy(tensors, _OUTPUT, _TABLE)
        return tensors

    def further_tensors(self, config: XLNetConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        return {_MASK: tensors[_MASK].reshape(1, 1, -1)}


def _heads() -> Heads:
    summary = {"dense": "sequence_summary.summary", "scores": "logits_proj"}
    return _XLNetHeads(
        {
            "permutation_lm": {"": "lm_loss"},
            "classification": summary,
            "multiple_choice": summary,
            "tagging": {"scores": "classifier"},
            "question_answering": {"scores": "qa_outputs"},
        },
        TASK_CLASSES
        | {("question_answering",): "ForQuestionAnsweringSimple", ("permutation_lm",): "LMHeadModel", (): "Model"},
        dropout="summary_last_dropout",
        undropped=("tagging",),
        default=0.1,
    )


XLNET = _XLNetFamily(
    model_type="xlnet",
    name="XLNet",
    config=XLNetConfig,
    ids={"pad_token_id": 5, "bos_token_id": 1, "eos_token_id": 2},
    fields=(
        Constants({"attn_type": "bi", "bi_data": False, "same_length": False, "untie_r": True}),
        Constants({"initializer_range": 0.02, "mem_len": None, "reuse_len": None}, checked=False),
        Constants({"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}, checked=False),
        Numbers(
            {
                "vocab_size": "vocab_size",
                "d_model": "embed_dim",
                "n_layer": "num_layers",
                "n_head": "num_heads",
                "d_inner": "mlp_dim",
                "dropout": ("dropout_rate", 0.1),
                "layer_norm_eps": ("norm_epsilon", 1e-12),
            }
        ),
        _ClampLength(),
        ActivationName("ff_activation"),
    ),
    heads=_heads(),
)
FAMILIES = (XLNET,)
