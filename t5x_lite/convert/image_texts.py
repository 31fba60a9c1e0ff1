"""Hugging Face's `clip` and `siglip`: two towers, each with a config.json's worth of fields in one of them all."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
from t5x_lite.convert.table import Names, TensorName, Tensors
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS, PixelStatistics
from t5x_lite.models import (
    ClipConfig,
    ClipImageConfig,
    ClipTextConfig,
    ModelConfig,
    SiglipConfig,
    SiglipImageConfig,
    SiglipTextConfig,
)
from t5x_lite.models.image_text import ImageTextConfig

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


_B32_IMAGE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
_B32_TEXT = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8}


def _numbers(norm_epsilon: float, **usual: int) -> Numbers:
    """Of a tower, with the published numbers where a config.json leaves them out."""
    names = {
        "hidden_size": "embed_dim",
        "intermediate_size": "mlp_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_length",
        "num_channels": "num_channels",
    }
    fixed = {"layer_norm_eps": ("norm_epsilon", norm_epsilon), "attention_dropout": ("attention_dropout_rate", 0.0)}
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


_CLIP_IMAGE = _Tower(
    "vision_config",
    ClipImageConfig,
    (
        PatchSizes(32),
        _numbers(1e-5, **_B32_IMAGE, num_channels=3),
        ActivationName(default="quick_gelu"),
        Constants(ours={"dropout_rate": 0.0}),
    ),
)
_CLIP_TEXT = _Tower(
    "text_config",
    ClipTextConfig,
    (
        _numbers(1e-5, **_B32_TEXT, vocab_size=49_408, max_position_embeddings=77),
        ActivationName(default="quick_gelu"),
        _EosId(),
    ),
)
_SIGLIP_IMAGE = _Tower(
    "vision_config",
    SiglipImageConfig,
    (
        PatchSizes(16),
        _numbers(1e-6, **_B32_IMAGE, num_channels=3),
        ActivationName(default="gelu_tanh"),
        Constants({"vision_use_head": True}, ours={"dropout_rate": 0.0}),
    ),
)
_SIGLIP_TEXT = _Tower(
    "text_config",
    SiglipTextConfig,
    (
        _numbers(1e-6, **_B32_IMAGE, vocab_size=32_000, max_position_embeddings=64),
        ActivationName(default="gelu_tanh"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class ImageTextFamily(HuggingFaceFamily):
    """What the fields and tensors of two towers have in common."""

    fields: tuple[Field, ...] = ()
    heads: Heads = Heads({}, {(): "Model"})
    ids: Mapping[str, int] = field(default_factory=dict)
    image: _Tower
    text: _Tower
    processor: Mapping[str, Any]
    """What the preprocessor_config.json of published models says beside sizes and statistics."""
    statistics: PixelStatistics
    """Mean and standard deviation by which their pictures are normalized."""

    scalars: ClassVar[tuple[str, ...]] = ()
    """Numbers that theirs has as vectors of one."""

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> ImageTextConfig:
        return self.config(self.image.read(theirs, tensors), self.text.read(theirs, tensors), **fields)

    def export_config(self, config: ImageTextConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        if not isinstance(config.image, self.image.config):
            raise InputError(
                f"a {type(config.image).__name__} has no place in Hugging Face's {self.name}, which takes a "
                f"{self.image.config.__name__}; export is not possible"
            )
        special = {"bos_token_id": "cls_id", "pad_token_id": "pad_id"}
        values = {} if vocabulary is None else {name: getattr(vocabulary, ours) for name, ours in special.items()}
        return {
            "model_type": self.model_type,
            "architectures": [f"{self.name}Model"],
            "vision_config": self.image.write(config.image, self.name),
            "text_config": self.text.write(config.text, self.name)
            | {name: value for name, value in values.items() if value is not None},
        }

    def names(self, config: ImageTextConfig) -> Names:
        image, text = "vision_model", "text_model"
        names: dict[str, str | TensorName] = {
            "image/embeddings/patch": f"{image}.embeddings.patch_embedding",
            "image/embeddings/position/embedding": f"{image}.embeddings.position_embedding.weight",
            "image/encoder/final_norm": f"{image}.post_layernorm",
            "text/token_embedding": f"{text}.embeddings.token_embedding",
            "text/position": f"{text}.embeddings.position_embedding",
            "text/encoder/final_norm": f"{text}.final_layer_norm",
            "logit_scale": "logit_scale",
        }
        for ours, theirs in (("image", image), ("text", text)):
            layer = f"{theirs}.encoder.layers.{{layer}}"
            names |= {f"{ours}/encoder/layers/{path}": f"{layer}.{name}" for path, name in _LAYER.items()}
        return names | self.own_names

    @property
    @abstractmethod
    def own_names(self) -> Names:
        """What the other families do not have."""

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        tensors = super().canonical_tensors(theirs, tensors)
        flat = {name: tensors[name].reshape(()) for name in self.scalars if name in tensors and tensors[name].size == 1}
        return {name: flat_patches(value) if name == _PATCHES else value for name, value in tensors.items()} | flat

    def further_tensors(self, config: ImageTextConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        size, channels = config.image.patch_size, config.image.num_channels
        scalars = {name: tensors[name].reshape(1) for name in self.scalars}
        return {_PATCHES: shaped_patches(tensors[_PATCHES], size, channels)} | scalars

    def image_processor(self, config: ImageTextConfig) -> dict[str, Any]:
        height, width = config.image.image_size
        mean, std = self.statistics
        if len(mean) != config.image.num_channels:
            mean, std = ((0.5,) * config.image.num_channels,) * 2
        crops = {"size": {"shortest_edge": min(height, width)}, "crop_size": {"height": height, "width": width}}
        return {
            **self.processor,
            "do_convert_rgb": True,
            "do_resize": True,
            **(crops if self.processor.get("do_center_crop") else {"size": {"height": height, "width": width}}),
            "resample": 3,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(mean),
            "image_std": list(std),
        }


@dataclass(frozen=True, kw_only=True)
class _ClipFamily(ImageTextFamily):
    """A CLIP with a ViT."""

    own_names: ClassVar[Names] = {
        "image/embeddings/class_token": "vision_model.embeddings.class_embedding",
        "image/embedding_norm": "vision_model.pre_layrnorm",
        "image_projection": "visual_projection",
        "text_projection": "text_projection",
    }

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> ImageTextConfig:
        width = Numbers({"projection_dim": ("projection_dim", 512)}).read(theirs, tensors)
        return super().import_config(theirs, tensors, **checked_fields(ClipConfig, width), **fields)

    def export_config(self, config: ClipConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        written, width = super().export_config(config, vocabulary), {"projection_dim": config.projection_dim}
        return written | width | {name: written[name] | width for name in ("vision_config", "text_config")}


_PROBE, _JOINED = "vision_model.head.probe", "vision_model.head.attention.in_proj_weight"
_POOLER = {
    "attention/out": "attention.out_proj",
    "feed_forward/wi": "mlp.fc1",
    "feed_forward/wo": "mlp.fc2",
    "feed_forward_norm": "layernorm",
}


@dataclass(frozen=True, kw_only=True)
class _SiglipFamily(ImageTextFamily):
    """A SigLIP, whose pooling has torch's attention with three matrices in one."""

    own_names: ClassVar[Names] = {
        "image/pooler/query": _PROBE,
        **{f"image/pooler/{ours}": f"vision_model.head.{theirs}" for ours, theirs in _POOLER.items()},
        **{
            f"image/pooler/attention/{of}/{leaf}": TensorName(name, part=(number, 3))
            for number, of in enumerate(("query", "key", "value"))
            for leaf, name in (("kernel", _JOINED), ("bias", _JOINED.replace("weight", "bias")))
        },
        "text_projection": "text_model.head",
        "logit_bias": "logit_bias",
    }
    scalars: ClassVar[tuple[str, ...]] = ("logit_scale", "logit_bias")

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> ImageTextConfig:
        config = super().import_config(theirs, tensors, **fields)
        width = (theirs.get("text_config") or {}).get("projection_size")
        if width not in (None, config.projection_dim):
            raise InputError(
                f"projection_size={width!r:.99} in config.json is not the width of the vectors of pictures, "
                f"{config.projection_dim}; choose a model in which the two can be compared"
            )
        return config

    def export_config(self, config: SiglipConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        written = super().export_config(config, vocabulary)
        return written | {"text_config": written["text_config"] | {"projection_size": config.projection_dim}}

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        shapes = {_PROBE: np.ravel, _JOINED: np.transpose}
        named = super().canonical_tensors(theirs, tensors)
        return named | {name: shape(named[name]) for name, shape in shapes.items() if name in named}

    def further_tensors(self, config: SiglipConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        own = {_PROBE: tensors[_PROBE][None, None], _JOINED: np.ascontiguousarray(tensors[_JOINED].T)}
        return super().further_tensors(config, tensors) | own


CLIP = _ClipFamily(
    model_type="clip",
    name="CLIP",
    config=ClipConfig,
    constants=(".position_ids",),
    image=_CLIP_IMAGE,
    text=_CLIP_TEXT,
    processor={"image_processor_type": "CLIPImageProcessor", "do_center_crop": True},
    statistics=STATISTICS["clip"],
)
SIGLIP = _SiglipFamily(
    model_type="siglip",
    name="Siglip",
    config=SiglipConfig,
    constants=(".position_ids",),
    image=_SIGLIP_IMAGE,
    text=_SIGLIP_TEXT,
    processor={"image_processor_type": "SiglipImageProcessor"},
    statistics=STATISTICS["inception"],
)
FAMILIES = (CLIP, SIGLIP)
