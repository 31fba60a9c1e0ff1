"""Hugging Face's `resnet`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict

from t5x_lite.convert.family import Constants, Numbers
from t5x_lite.convert.images import CLASSIFIER, ImageFamily, ImageHeads
from t5x_lite.convert.table import Names, TensorName, Tensors
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS
from t5x_lite.models import ResNetConfig, abstract_params

_LEAVES = {"mean": "running_mean", "variance": "running_var", "bias": "bias"}


class Stages:
    """Blocks and channels of each stage, and the type of the blocks."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        lists = {"depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048]}
        lists = {name: theirs.get(name) or usual for name, usual in lists.items()}
        for name, values in lists.items():
            if not isinstance(values, list) or not all(type(value) is int for value in values):
                raise InputError(
                    f"{name}={values!r:.99} in config.json is not a list of numbers; it is damaged: fetch it again"
                )
        kind = theirs.get("layer_type") or "bottleneck"
        if kind not in ("basic", "bottleneck"):
            raise InputError(f"layer_type={kind!r:.99} in config.json is unknown; known are basic and bottleneck")
        depths, widths = map(tuple, lists.values())
        return {"depths": depths, "widths": widths, "bottleneck": kind == "bottleneck"}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return {
            "depths": list(config.depths),
            "hidden_sizes": list(config.widths),
            "layer_type": "bottleneck" if config.bottleneck else "basic",
        }


@dataclass(frozen=True, kw_only=True)
class ResNetFamily(ImageFamily):
    """Convolutions and norms in blocks of stages, which theirs count from 0 and ours from 1."""

    def names(self, config: Any) -> Names:
        names: dict[str, str | TensorName] = dict(self.heads.names)
        return names | backbone_names(config, self.prefix)

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        return {name: turned(value) for name, value in super().canonical_tensors(theirs, tensors).items()}

    def further_tensors(self, config: Any, tensors: Tensors) -> dict[str, np.ndarray]:
        # How many batches torch's statistics are of, which count where a momentum is not given.
        ends, batches = ".running_mean", np.zeros((), np.int64)
        counts = {name.removesuffix(ends) + self.constants[0]: batches for name in tensors if name.endswith(ends)}
        return counts | {name: turned(value) for name, value in tensors.items() if value.ndim == 4}

    def processor_sizes(self, config: Any) -> dict[str, Any]:
        return {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3}


def backbone_names(config: Any, prefix: str, layer_name: Callable[[str], str] | None = None) -> Names:
    """The names of convolutions, norms and running statistics; `layer_name` gives those of layers, by default as
    Transformers' ResNet has them."""
    names: dict[str, str] = {}
    for path in flatten_dict(nn.unbox(abstract_params(config)), sep="/"):
        layer, _, leaf = path.rpartition("/")
        if layer.startswith(("stem_", "stage")):
            names[path] = f"{prefix}.{(layer_name or _layer_name)(layer)}.{_LEAVES.get(leaf, 'weight')}"
    return names


def _layer_name(layer: str) -> str:
    """
    >>> _layer_name("stem_conv"), _layer_name("stage2_block1/norm3")
    ('embedder.embedder.convolution', 'encoder.stages.1.layers.0.layer.2.normalization')
    """
    kind = "convolution" if "conv" in layer else "normalization"
    if layer.startswith("stem_"):
        return f"embedder.embedder.{kind}"
    stage, block, shortcut, number = re.fullmatch(
        r"stage(\d+)_block(\d+)/(shortcut_)?(?:conv|norm)(\d*)", layer
    ).groups()
    inside = "shortcut" if shortcut else f"layer.{int(number) - 1}"
    return f"encoder.stages.{int(stage) - 1}.layers.{int(block) - 1}.{inside}.{kind}"


def turned(value: np.ndarray) -> np.ndarray:
    """A kernel [O I h w] as [O I w h], whose transpose is ours, or the other way; anything else as it is."""
    return np.ascontiguousarray(value.swapaxes(2, 3)) if value.ndim == 4 else value


RESNET = ResNetFamily(
    model_type="resnet",
    name="ResNet",
    config=ResNetConfig,
    fields=(
        Constants({"hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False}),
        Constants(ours={"stem": "halved twice", "downsampling": "strided", "norm_epsilon": 1e-5, "norm_momentum": 0.9}),
        Constants(ours={"frozen_norm": False, "dilated": False}),
        Numbers({"num_channels": ("num_channels", 3), "embedding_size": ("stem_width", 64)}),
        Stages(),
    ),
    prefix="resnet",
    body=("embedder", "encoder"),
    constants=(".num_batches_tracked",),
    processor="ConvNextImageProcessor",
    statistics=STATISTICS["imagenet"],
    heads=ImageHeads({"classification": {"scores": "classifier.1"}}, CLASSIFIER),
)
FAMILIES = (RESNET,)
