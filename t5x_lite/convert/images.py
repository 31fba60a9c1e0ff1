"""Hugging Face's `vit`, `deit` and `vit_mae`, with the tensors' names on the hub and those of Transformers 5."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t5x_lite.convert.family import (
    OURS,
    ActivationName,
    Classes,
    Constants,
    Heads,
    HuggingFaceFamily,
    Numbers,
    our_fields,
)
from t5x_lite.convert.table import Names, TensorName, Tensors, has
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS, PixelStatistics
from t5x_lite.models import DeiTConfig, MAEConfig, ViTConfig

_NUMBERS = {
    "hidden_size": ("embed_dim", 768),
    "num_hidden_layers": ("num_layers", 12),
    "num_attention_heads": ("num_heads", 12),
    "intermediate_size": ("mlp_dim", 3072),
    "hidden_dropout_prob": ("dropout_rate", 0.0),
    "attention_probs_dropout_prob": ("attention_dropout_rate", 0.0),
    "layer_norm_eps": ("norm_epsilon", 1e-12),
    "num_channels": ("num_channels", 3),
}
_DECODER_NUMBERS = {
    "decoder_hidden_size": ("decoder_embed_dim", 512),
    "decoder_num_attention_heads": ("decoder_num_heads", 16),
    "decoder_num_hidden_layers": ("decoder_num_layers", 8),
    "decoder_intermediate_size": ("decoder_mlp_dim", 2048),
    "mask_ratio": ("mask_ratio", 0.75),
}
_LAYER = {
    "self_attention/query": "attention.attention.query",
    "self_attention/key": "attention.attention.key",
    "self_attention/value": "attention.attention.value",
    "self_attention/out": "attention.output.dense",
    "self_attention_norm": "layernorm_before",
    "feed_forward/wi": "intermediate.dense",
    "feed_forward/wo": "output.dense",
    "feed_forward_norm": "layernorm_after",
}
_OLD_NAMES = (
    # Transformers 5 saves an MAE's decoder under a name that is neither its own nor the hub's.
    (r"^decoder\.decoder_encoder\.layer\.", "decoder.decoder_layers."),
    (r"^((?:\w+\.)?)layers\.(?=\d)", r"\1encoder.layer."),
    (r"\.attention\.q_proj\.", ".attention.attention.query."),
    (r"\.attention\.k_proj\.", ".attention.attention.key."),
    (r"\.attention\.v_proj\.", ".attention.attention.value."),
    (r"\.attention\.o_proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
)
"""What tensors are called on the hub, by patterns of the names in Transformers 5."""


@dataclass(frozen=True)
class PatchSizes:
    """Height and width of pictures and of patches, each one number or two; a patch's are equal."""

    usual: int = 16
    """That of patches where a config.json leaves it out."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        pairs = {}
        for name, usual in (("image_size", 224), ("patch_size", self.usual)):
            value = usual if theirs.get(name) is None else theirs[name]
            pair = value if isinstance(value, list) else [value, value]
            if len(pair) != 2 or not all(type(side) is int for side in pair):
                raise InputError(
                    f"{name}={value!r:.99} in config.json is not a number or two; it is damaged: fetch it again"
                )
            pairs[name] = tuple(pair)
        height, width = pairs["patch_size"]
        if height != width:
            raise InputError(
                f"patch_size={[height, width]} in config.json is not one that we have; choose a model with square "
                "patches"
            )
        return {"image_size": pairs["image_size"], "patch_size": height}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        height, width = config.image_size
        return {"image_size": height if height == width else [height, width], "patch_size": config.patch_size}


class _DropPath:
    """Stochastic depth, which Transformers does not have: kept among the fields that it ignores."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        ours = our_fields(theirs)
        schedule = "constant" if ours.get("drop_path_is_constant") else "linear"
        return {"drop_path_rate": ours.get("drop_path_rate", 0.0), "drop_path_schedule": schedule}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        if not config.drop_path_rate:
            return {}
        is_constant = config.drop_path_schedule == "constant"
        return {OURS: {"drop_path_rate": config.drop_path_rate, "drop_path_is_constant": is_constant}}


class _NormPix:
    """Whether MAE predicts normalized pixels."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        return {"norm_pix": bool(theirs.get("norm_pix_loss") or False)}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return {"norm_pix_loss": config.norm_pix}


@dataclass(frozen=True)
class ImageHeads(Heads):
    """The heads of a model of pictures: those whose tensors are there."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        names = {head: f"{layers['scores']}.weight" for head, layers in self.layers.items()}
        heads = tuple(head for head, name in names.items() if name in tensors)
        fields: dict[str, Any] = {"heads": heads} if self.layers else {}
        return fields | ({"num_classes": len(tensors[names[heads[0]]])} if heads else {})

    def write(self, config: Any, family: str) -> dict[str, Any]:
        heads = getattr(config, "heads", ())
        pooler = getattr(config, "pooler", False)
        if heads not in self.classes or (heads and pooler):
            raise InputError(
                f"heads={heads} with pooler={pooler} have no class among Transformers' {family} models; export "
                "is not possible"
            )
        written: dict[str, Any] = {"architectures": [family + self.classes[heads]]}
        if heads:
            names = {index: f"LABEL_{index}" for index in range(config.num_classes)}
            written |= {"id2label": names, "label2id": {name: index for index, name in names.items()}}
        return written


@dataclass(frozen=True, kw_only=True)
class ImageFamily(HuggingFaceFamily):
    """What Hugging Face's Transformers of pictures have in common; the defaults are ViT's."""

    ids: Mapping[str, int] = field(default_factory=dict)
    body: tuple[str, ...] = ("embeddings", "encoder", "layernorm", "pooler")
    processor: str = "ViTImageProcessor"
    """The class that prepares pictures."""
    statistics: PixelStatistics = STATISTICS["inception"]
    """Mean and standard deviation by which the published models' pictures are normalized."""

    def names(self, config: Any) -> Names:
        embeddings = f"{self.prefix}.embeddings"
        names: dict[str, str | TensorName] = {
            "embeddings/patch": f"{embeddings}.patch_embeddings.projection",
            "embeddings/class_token": f"{embeddings}.cls_token",
            "embeddings/distillation_token": f"{embeddings}.distillation_token",
            "embeddings/position/embedding": f"{embeddings}.position_embeddings",
            "encoder/final_norm": f"{self.prefix}.layernorm",
            "pooler/dense": f"{self.prefix}.pooler.dense",
        }
        layers = f"{self.prefix}.encoder.layer.{{layer}}"
        names |= {f"encoder/layers/{ours}": f"{layers}.{name}" for ours, name in _LAYER.items()}
        return names | self.heads.names

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        renamed = {}
        for name, value in tensors.items():
            for new, old in _OLD_NAMES:
                name = re.sub(new, old, name)
            renamed[name] = value
        return {name: _flat(name, value) for name, value in super().canonical_tensors(theirs, renamed).items()}

    def export_config(self, config: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
        written = {"model_type": self.model_type}
        for entry in (*self.fields, self.heads):
            written |= entry.write(config, self.name)
        return written

    def further_tensors(self, config: Any, tensors: Tensors) -> dict[str, np.ndarray]:
        return {
            name: shaped for name, value in tensors.items() if (shaped := _shaped(name, value, config)) is not value
        }

    def image_processor(self, config: Any) -> dict[str, Any]:
        mean, std = self.statistics
        if len(mean) != config.num_channels:
            mean, std = ((0.5,) * config.num_channels,) * 2
        return {
            "image_processor_type": self.processor,
            "do_resize": True,
            **self.processor_sizes(config),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(mean),
            "image_std": list(std),
        }

    def processor_sizes(self, config: Any) -> dict[str, Any]:
        """Its fields that say how pictures are scaled and cropped."""
        height, width = config.image_size
        return {"size": {"height": height, "width": width}, "resample": 2}


_POSITIONS = (".position_embeddings", ".decoder_pos_embed")


def flat_patches(value: np.ndarray) -> np.ndarray:
    """[D, p p C] of a convolution [D, C, p, p]: ours are the pixels of a patch, channels last."""
    return value.transpose(0, 2, 3, 1).reshape(len(value), -1) if value.ndim == 4 else value


def shaped_patches(value: np.ndarray, patch_size: int, channels: int) -> np.ndarray:
    """The inverse of `flat_patches`."""
    return np.ascontiguousarray(value.reshape(-1, patch_size, patch_size, channels).transpose(0, 3, 1, 2))


def _flat(name: str, value: np.ndarray) -> np.ndarray:
    """A tensor of theirs in the shape of our parameter, or of its transpose."""
    if name.endswith(".patch_embeddings.projection.weight"):
        return flat_patches(value)
    if name.endswith("_token") and value.ndim == 3 and value.shape[:2] == (1, 1):
        return value[0, 0]
    return value[0] if name.endswith(_POSITIONS) and value.ndim == 3 and len(value) == 1 else value


def _shaped(name: str, value: np.ndarray, config: Any) -> np.ndarray:
    """The inverse of `_flat`."""
    if name.endswith(".patch_embeddings.projection.weight"):
        return shaped_patches(value, config.patch_size, config.num_channels)
    if name.endswith("_token"):
        return value[None, None]
    return value[None] if name.endswith(_POSITIONS) else value


@dataclass(frozen=True, kw_only=True)
class _ViTFamily(ImageFamily):
    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        return super().import_config(theirs, tensors, pooler=has(tensors, f"{self.prefix}.pooler."), **fields)


@dataclass(frozen=True, kw_only=True)
class _DeiTFamily(_ViTFamily):
    """Its class of two heads calls the first one `cls_classifier`, that of one head `classifier`."""

    def names(self, config: Any) -> Names:
        first = "cls_classifier" if "distillation" in config.heads else "classifier"
        return {**super().names(config), "classification/scores": first}

    def processor_sizes(self, config: Any) -> dict[str, Any]:
        (height, width), (larger, wider) = config.image_size, (side * 256 // 224 for side in config.image_size)
        return {
            "size": {"height": larger, "width": wider},
            "resample": 3,
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
        }

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        named = {name.removeprefix("cls_"): value for name, value in tensors.items()}
        return super().import_config(theirs, named, **fields)


@dataclass(frozen=True, kw_only=True)
class _MAEFamily(ImageFamily):
    def names(self, config: Any) -> Names:
        names = {
            "decoder/projection": "decoder.decoder_embed",
            "decoder/mask_token": "decoder.mask_token",
            "decoder/position/embedding": "decoder.decoder_pos_embed",
            "decoder/stack/final_norm": "decoder.decoder_norm",
            "decoder/prediction": "decoder.decoder_pred",
        }
        layer = {f"decoder/stack/layers/{ours}": f"decoder.decoder_layers.{{layer}}.{n}" for ours, n in _LAYER.items()}
        return {**super().names(config), **names, **layer}

    def reads(self, tensors: Tensors) -> bool:
        return has(tensors, "decoder.")


_FIELDS = (
    Constants({"qkv_bias": True}),
    Constants({"initializer_range": 0.02}, checked=False),
    PatchSizes(),
    Numbers(_NUMBERS),
    ActivationName(),
)
_WITHOUT = {"pooling": "cls", "special_positions": True, "layer_scale": 0.0, "head_norm": False}
_VIT_FIELDS = (
    *_FIELDS,
    Constants({"pooler_act": "tanh"}, ours=_WITHOUT),
    _DropPath(),
)
MODEL: Classes = {(): "Model"}
CLASSIFIER: Classes = {("classification",): "ForImageClassification"} | MODEL

VIT = _ViTFamily(
    model_type="vit",
    name="ViT",
    config=ViTConfig,
    fields=_VIT_FIELDS,
    prefix="vit",
    heads=ImageHeads({"classification": {"scores": "classifier"}}, CLASSIFIER),
)
DEIT = _DeiTFamily(
    model_type="deit",
    name="DeiT",
    config=DeiTConfig,
    fields=_VIT_FIELDS,
    prefix="deit",
    processor="DeiTImageProcessor",
    statistics=STATISTICS["imagenet"],
    heads=ImageHeads(
        {"classification": {"scores": "classifier"}, "distillation": {"scores": "distillation_classifier"}},
        {("classification", "distillation"): "ForImageClassificationWithTeacher"} | CLASSIFIER,
    ),
)
VIT_MAE = _MAEFamily(
    model_type="vit_mae",
    name="ViTMAE",
    config=MAEConfig,
    fields=(*_FIELDS, Numbers(_DECODER_NUMBERS), _NormPix()),
    prefix="vit",
    statistics=STATISTICS["imagenet"],
    heads=ImageHeads({}, {(): "ForPreTraining"}),
)
VIT_MAE_ENCODER = _ViTFamily(
    model_type="vit_mae",
    name="ViTMAE",
    config=ViTConfig,
    # What is trained from it is a ViT, and is written as one.
    fits=lambda config, tokenizer: False,
    fields=(*_VIT_FIELDS, Constants(ours={"positions": "sincos", "heads": ()})),
    prefix="vit",
    statistics=STATISTICS["imagenet"],
    heads=ImageHeads({}, MODEL),
)
FAMILIES = (VIT, DEIT, VIT_MAE, VIT_MAE_ENCODER)
