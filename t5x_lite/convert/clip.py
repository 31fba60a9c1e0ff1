"""Hugging Face's `clip`: two towers, each with a config.json's worth of fields in one of them all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t5x_lite.convert.family import (
    ActivationName,
    Constants,
    Field,
    Heads,
    HuggingFaceFamily,
    Numbers,
    checked_fields,
)
from t5x_lite.convert.images import PatchSizes, flat_patches, shaped_patches
from t5x_lite.convert.table import Names, Tensors
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS
from t5x_lite.models import ClipConfig, ClipImageConfig, ClipTextConfig, ModelConfig

_LARGEST_ID = 2
"""The eos_token_id of folders in which a text's vector is read at its largest id (before Transformers 4.32)."""
_LAYER = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/out": "self_attn.out_proj",
    "self_attention_norm": "layer_norm1",
    "feed_forward/wi": "mlp.fc1",
    "feed_forward/wo": "mlp.fc2",
    "feed_forward_norm": "layer_norm2",
}
_PATCHES = "vision_model.embeddings.patch_embedding.weight"


def _numbers(**usual: int) -> Numbers:
    """Of a tower, with the numbers of B/32 where a config.json leaves them out."""
    names = {
        "hidden_size": "embed_dim",
        "intermediate_size": "mlp_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_length",
        "num_channels": "num_channels",
    }
    fixed = {"layer_norm_eps": ("norm_epsilon", 1e-5), "attention_dropout": ("attention_dropout_rate", 0.0)}
    return Numbers({theirs: (names[theirs], number) for theirs, number in usual.items()} | fixed)


class _EosId:
    """Where a text's vector is read."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        eos_id = theirs.get("eos_token_id", 49_407)
        if type(eos_id) is not int or eos_id < 0:
            raise InputError(f"eos_token_id={eos_id!r:.99} in config.json is not an id; it is damaged: fetch it again")
        return {"eos_id": None if eos_id == _LARGEST_ID else eos_id}

    def write(self, config: ClipTextConfig, family: str) -> dict[str, Any]:
        if config.eos_id == _LARGEST_ID:
            raise InputError(
                f"eos_id={_LARGEST_ID} stands for the largest id of a text in Transformers' {family}; export is not "
                "possible"
            )
        return {"eos_token_id": _LARGEST_ID if config.eos_id is None else config.eos_id}


@dataclass(frozen=True)
class _Tower:
    """A tower's fields in a config.json."""

    name: str
    config: type[ModelConfig]
    fields: tuple[Field, ...]

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> Any:
        # Early folders have the fields twice, the second time under this name, which counts.
        parts = (theirs.get(name) or {} for name in (self.name, f"{self.name}_dict"))
        merged: dict[str, Any] = {"model_type": theirs.get("model_type")}
        for part in parts:
            if not isinstance(part, dict):
                raise InputError(f"{self.name} in config.json is not an object; it is damaged: fetch it again")
            merged |= part
        known: dict[str, Any] = {}
        for entry in self.fields:
            known |= entry.read(merged, tensors)
        return self.config(**checked_fields(self.config, known))

    def write(self, config: Any, family: str) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for entry in self.fields:
            written |= entry.write(config, family)
        return written


_IMAGE = _Tower(
    "vision_config",
    ClipImageConfig,
    (
        PatchSizes(32),
        _numbers(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, num_channels=3),
        ActivationName(default="quick_gelu"),
        Constants(ours={"dropout_rate": 0.0}),
    ),
)
_TEXT = _Tower(
    "text_config",
    ClipTextConfig,
    (
        _numbers(
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=8,
            vocab_size=49_408,
            max_position_embeddings=77,
        ),
        ActivationName(default="quick_gelu"),
        _EosId(),
    ),
)


@dataclass(frozen=True, kw_only=True)
class ClipFamily(HuggingFaceFamily):
    """The fields and tensors of a CLIP with a ViT."""

    fields: tuple[Field, ...] = ()
    heads: Heads = Heads({}, {(): "Model"})
    ids: Mapping[str, int] = field(default_factory=dict)

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> ClipConfig:
        width = Numbers({"projection_dim": ("projection_dim", 512)}).read(theirs, tensors)
        towers = {"image": _IMAGE.read(theirs, tensors), "text": _TEXT.read(theirs, tensors)}
        return ClipConfig(**towers, **checked_fields(ClipConfig, width))

    def export_config(self, config: ClipConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        width = {"projection_dim": config.projection_dim}
        special = {} if vocabulary is None else {"bos_token_id": vocabulary.cls_id, "pad_token_id": vocabulary.pad_id}
        special = {name: value for name, value in special.items() if value is not None}
        return {
            "model_type": self.model_type,
            "architectures": ["CLIPModel"],
            **width,
            "vision_config": _IMAGE.write(config.image, self.name) | width,
            "text_config": _TEXT.write(config.text, self.name) | width | special,
        }

    def names(self, config: ClipConfig) -> Names:
        image, text = "vision_model", "text_model"
        names = {
            "image/embeddings/patch": f"{image}.embeddings.patch_embedding",
            "image/embeddings/class_token": f"{image}.embeddings.class_embedding",
            "image/embeddings/position/embedding": f"{image}.embeddings.position_embedding.weight",
            "image/embedding_norm": f"{image}.pre_layrnorm",
            "image/encoder/final_norm": f"{image}.post_layernorm",
            "text/token_embedding": f"{text}.embeddings.token_embedding",
            "text/position": f"{text}.embeddings.position_embedding",
            "text/encoder/final_norm": f"{text}.final_layer_norm",
            "image_projection": "visual_projection",
            "text_projection": "text_projection",
            "logit_scale": "logit_scale",
        }
        for ours, theirs in (("image", image), ("text", text)):
            layer = f"{theirs}.encoder.layers.{{layer}}"
            names |= {f"{ours}/encoder/layers/{path}": f"{layer}.{name}" for path, name in _LAYER.items()}
        return names

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        tensors = super().canonical_tensors(theirs, tensors)
        return {name: flat_patches(value) if name == _PATCHES else value for name, value in tensors.items()}

    def further_tensors(self, config: ClipConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        size, channels = config.image.patch_size, config.image.num_channels
        return {_PATCHES: shaped_patches(tensors[_PATCHES], size, channels)}

    def image_processor(self, config: ClipConfig) -> dict[str, Any]:
        height, width = config.image.image_size
        mean, std = STATISTICS["clip"]
        if len(mean) != config.image.num_channels:
            mean, std = ((0.5,) * config.image.num_channels,) * 2
        return {
            "image_processor_type": "CLIPImageProcessor",
            "do_convert_rgb": True,
            "do_resize": True,
            "size": {"shortest_edge": min(height, width)},
            "resample": 3,
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(mean),
            "image_std": list(std),
        }


CLIP = ClipFamily(model_type="clip", name="CLIP", config=ClipConfig, constants=(".position_ids",))
FAMILIES = (CLIP,)
