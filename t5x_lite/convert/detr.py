"""Hugging Face's `detr`, whose backbone is a ResNet of Transformers' own or of timm."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from t5x_lite.convert.family import ActivationName, Constants, Field, Heads, HuggingFaceFamily, Numbers, checked_fields
from t5x_lite.convert.resnet import Stages, backbone_names, turned
from t5x_lite.convert.table import Names, TensorName, Tensors
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS
from t5x_lite.models import PRESETS, DetrConfig, ResNetConfig

_BACKBONE = "model.backbone.conv_encoder.model"
_CLASSES = "class_labels_classifier"
_PROJECTION = "model.input_projection.weight"
_NEW_NAMES = (
    (r"^model\.backbone\.model\.", f"{_BACKBONE}."),
    (r"(_attn)\.o_proj\.", r"\1.out_proj."),
    (r"(layers\.\d+)\.mlp\.(fc\d)\.", r"\1.\2."),
)
"""What Transformers 5 calls tensors in memory, and what it writes."""
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}


class _Sizes:
    """Those that encoder and decoder have each for itself there, and share here."""

    names: Mapping[str, tuple[str, int]] = {"attention_heads": ("num_heads", 8), "ffn_dim": ("mlp_dim", 2048)}

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        sizes = {}
        for name, (ours, usual) in self.names.items():
            both = [theirs.get(f"{stack}_{name}") or usual for stack in ("encoder", "decoder")]
            if both[0] != both[1]:
                raise InputError(
                    f"encoder_{name}={both[0]!r:.99} and decoder_{name}={both[1]!r:.99} in config.json differ; choose "
                    "a model in which they are the same"
                )
            sizes[ours] = both[0]
        return sizes

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return {
            f"{stack}_{name}": getattr(config, ours)
            for name, (ours, _) in self.names.items()
            for stack in ("encoder", "decoder")
        }


class _Backbone:
    """A ResNet: by its name in timm, or with a config of its own."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        own = theirs.get("backbone_config") or {}
        dilated = bool(theirs.get("dilation") or False)
        if not isinstance(own, dict):
            raise InputError("backbone_config in config.json is not an object; it is damaged: fetch it again")
        if own.get("model_type") == "resnet":
            if dilated:
                raise InputError("dilation=true in config.json is not one of a backbone_config; choose another model")
            read = Numbers({"num_channels": ("num_channels", 3), "embedding_size": ("stem_width", 64)}).read(own, {})
            known = Constants({"hidden_act": "relu", "downsample_in_first_stage": False}).read(own, {})
            return {"backbone": ResNetConfig(**checked_fields(ResNetConfig, read | known), **self._rest(own, dilated))}
        name = own.get("backbone") or theirs.get("backbone") or "resnet50"
        preset = PRESETS.get(str(name).replace("resnet", "resnet-"))
        if not isinstance(preset, ResNetConfig):
            raise InputError(
                f"backbone={name!r:.99} in config.json is not one that we have; choose a model with resnet50 or "
                "resnet101"
            )
        options = {"heads": (), "frozen_norm": True, "dilated": dilated}
        return {"backbone": replace(preset, num_channels=theirs.get("num_channels") or 3, **options)}

    def _rest(self, own: dict[str, Any], dilated: bool) -> dict[str, Any]:
        return Stages().read(own, {}) | {"heads": (), "frozen_norm": True, "dilated": dilated}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        backbone = config.backbone
        usual = {"stem": "halved twice", "downsampling": "strided", "norm_epsilon": 1e-5}
        Constants(ours=usual).write(backbone, f"{family} backbone")
        numbers = {"num_channels": backbone.num_channels}
        if backbone.dilated:
            known = {name: one for name, one in PRESETS.items() if isinstance(one, ResNetConfig)}
            sizes = ("depths", "widths", "bottleneck", "stem_width")
            same = [n for n, one in known.items() if all(getattr(one, s) == getattr(backbone, s) for s in sizes)]
            if not same:
                raise InputError(
                    "backbone.dilated=True has a place in Hugging Face's DETR only with the sizes of a published "
                    "ResNet; export is not possible"
                )
            return {"use_timm_backbone": True, "backbone": same[0].replace("-", ""), "dilation": True} | numbers
        described = {
            "model_type": "resnet",
            "embedding_size": backbone.stem_width,
            "out_features": [f"stage{len(backbone.depths)}"],
            **Stages().write(backbone, family),
        }
        return {"use_timm_backbone": False, "backbone": None, "backbone_config": described | numbers} | numbers


class _Labels:
    """How many classes there are, by the head's tensor."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        name = f"{_CLASSES}.weight"
        if name not in tensors:
            raise InputError(f"the checkpoint has no {name}; save it from DetrForObjectDetection")
        return {"num_classes": len(tensors[name]) - 1}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        names = {index: f"LABEL_{index}" for index in range(config.num_classes)}
        return {"id2label": names, "label2id": {name: index for index, name in names.items()}}


@dataclass(frozen=True, kw_only=True)
class _DetrFamily(HuggingFaceFamily):
    heads: Heads = Heads({}, {(): "ForObjectDetection"})
    ids: Mapping[str, int] = field(default_factory=dict)

    def export_config(self, config: DetrConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        written: dict[str, Any] = {"model_type": self.model_type, "architectures": ["DetrForObjectDetection"]}
        for entry in self.fields:
            written |= entry.write(config, self.name)
        return written

    def names(self, config: DetrConfig) -> Names:
        names: dict[str, str | TensorName] = {
            "queries": "model.query_position_embeddings",
            "projection": "model.input_projection",
            "decoder_norm": "model.decoder.layernorm",
            "class_head": _CLASSES,
            **{f"box_head{number}": f"bbox_predictor.layers.{number - 1}" for number in (1, 2, 3)},
        }
        parts = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
        for stack in ("encoder", "decoder"):
            layer, ours = f"model.{stack}.layers.{{layer}}", f"{stack}/layers"
            for part, name in parts.items():
                names |= {f"{ours}/{part}/{one}": f"{layer}.{name}.{other}" for one, other in _ATTENTION.items()}
                names[f"{ours}/{part}_norm"] = f"{layer}.{name}_layer_norm"
            names |= {f"{ours}/feed_forward/{one}": f"{layer}.{other}" for one, other in (("wi", "fc1"), ("wo", "fc2"))}
            names[f"{ours}/feed_forward_norm"] = f"{layer}.final_layer_norm"
        of_backbone = backbone_names(config.backbone, _BACKBONE, _timm_name if config.backbone.dilated else None)
        return names | {f"backbone/{path}": name for path, name in of_backbone.items()}

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        named = {}
        for name, value in super().canonical_tensors(theirs, tensors).items():
            for new, written in _NEW_NAMES:
                name = re.sub(new, written, name)
            if name.startswith(f"{_BACKBONE}.") and not theirs.get("dilation"):
                name = f"{_BACKBONE}.{_from_timm(name.removeprefix(f'{_BACKBONE}.'))}"
            named[name] = value[..., 0, 0] if name == _PROJECTION and value.ndim == 4 else turned(value)
        return named

    def further_tensors(self, config: DetrConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        kernels = {name: turned(value) for name, value in tensors.items() if value.ndim == 4}
        return kernels | {_PROJECTION: tensors[_PROJECTION][..., None, None]}

    def image_processor(self, config: DetrConfig) -> dict[str, Any]:
        mean, std = STATISTICS["imagenet"]
        if len(mean) != config.num_channels:
            mean, std = ((0.5,) * config.num_channels,) * 2
        return {
            "image_processor_type": "DetrImageProcessor",
            "format": "coco_detection",
            "do_resize": True,
            "size": {"shortest_edge": 800, "longest_edge": 1333},
            "resample": 2,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(mean),
            "image_std": list(std),
            "do_pad": True,
        }


def _timm_name(layer: str) -> str:
    """
    >>> _timm_name("stem_norm"), _timm_name("stage2_block1/conv3"), _timm_name("stage2_block1/shortcut_norm")
    ('bn1', 'layer2.0.conv3', 'layer2.0.downsample.1')
    """
    if layer.startswith("stem_"):
        return "conv1" if layer == "stem_conv" else "bn1"
    stage, block, name = re.fullmatch(r"stage(\d+)_block(\d+)/(\w+)", layer).groups()
    inside = {"shortcut_conv": "downsample.0", "shortcut_norm": "downsample.1"}.get(name) or name.replace("norm", "bn")
    return f"layer{stage}.{int(block) - 1}.{inside}"


def _from_timm(name: str) -> str:
    """Transformers' name of a tensor that timm's ResNet has; other names stay.

    >>> _from_timm("bn1.bias"), _from_timm("layer1.0.downsample.0.weight")
    ('embedder.embedder.normalization.bias', 'encoder.stages.0.layers.0.shortcut.convolution.weight')
    """
    if stem := re.fullmatch(r"(conv|bn)1\.(\w+)", name):
        return f"embedder.embedder.{_KINDS[stem[1]]}.{stem[2]}"
    if inside := re.fullmatch(r"layer(\d+)\.(\d+)\.(conv|bn|downsample\.)(\d+)\.(\w+)", name):
        stage, block, kind, number, leaf = inside.groups()
        start = f"encoder.stages.{int(stage) - 1}.layers.{block}"
        if kind == "downsample.":
            return f"{start}.shortcut.{'normalization' if number == '1' else 'convolution'}.{leaf}"
        return f"{start}.layer.{int(number) - 1}.{_KINDS[kind]}.{leaf}"
    return name


_KINDS = {"conv": "convolution", "bn": "normalization"}
_FIELDS: tuple[Field, ...] = (
    Constants({"position_embedding_type": "sine", "auxiliary_loss": False}),
    Numbers(
        {
            "d_model": ("embed_dim", 256),
            "num_queries": ("num_queries", 100),
            "encoder_layers": ("num_encoder_layers", 6),
            "decoder_layers": ("num_decoder_layers", 6),
            "dropout": ("dropout_rate", 0.1),
            "attention_dropout": ("attention_dropout_rate", 0.0),
            "activation_dropout": ("mlp_dropout_rate", 0.0),
        }
    ),
    Constants(ours={"norm_epsilon": 1e-5}),
    ActivationName("activation_function", "relu"),
    _Sizes(),
    _Backbone(),
    _Labels(),
)
DETR = _DetrFamily(
    model_type="detr", name="Detr", config=DetrConfig, fields=_FIELDS, constants=(".num_batches_tracked",)
)
FAMILIES = (DETR,)
