"""Residual networks of pictures (He et al. 2016), with the strides of a bottleneck at its 3 x 3 convolution (v1.5)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.convolution import BatchNorm, Conv, constrain_picture
from t5x_lite.layers.heads import Classifier
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, ModelConfig
from t5x_lite.validation import MOST_LAYERS, NormEpsilon, Positive

Images = Float[Array, "B H W C"]


@dataclass(frozen=True)
class ResNetConfig(ModelConfig):
    """A stem and stages of residual blocks, each of which halves the picture but the first."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    """Blocks of each stage."""
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    """Channels that each stage ends with."""
    bottleneck: bool = True
    """Blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions, of which the first two have a quarter of the channels; otherwise
    of two 3 x 3 convolutions."""
    stem_width: Positive = 64
    """Channels of the first convolution."""
    stem: Literal["halved twice", "whole", "deep"] = "halved twice"
    """A 7 x 7 convolution and a pooling, each with stride 2; or for small pictures, as He et al. (section 4.2) had it
    on CIFAR-10, one 3 x 3 convolution that keeps the size; or three 3 x 3 convolutions, the first with stride 2 and
    half the channels as the second, and a mean of 2 x 2 (He et al. 2019, figure 2b; CLIP)."""
    downsampling: Literal["strided", "averaged"] = "strided"
    """What halves a picture in a block and its shortcut: a convolution with stride 2, or the mean of 2 x 2 before the
    next 1 x 1 convolution (He et al. 2019, section 4.2; on both sides as CLIP has it)."""
    num_channels: Positive = 3
    """Of the pictures: 3, or 1 for grey ones."""
    num_classes: Positive = 1000
    heads: tuple[Literal["classification"], ...] = ("classification",)
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in BatchNorm."""
    norm_momentum: float = 0.9
    """The share of the old running statistics in the next ones."""
    frozen_norm: bool = False
    """Pictures are normalized by the running statistics in training too, and these, scales and biases never change: of
    a backbone whose batches are too small for statistics of their own."""
    dilated: bool = False
    """The last stage keeps the size of the one before: instead of strides its 3 x 3 convolutions are dilated (DC5 in
    Carion et al. 2020, section 3.2)."""
    zero_init: bool = False
    """Each block begins as its shortcut: the scale of its last norm begins at 0 (Goyal et al. 2017, section 5.1)."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification",)
    architecture: ClassVar[Architecture | None] = "images"
    below_layers: ClassVar[tuple[str, ...]] = ("stem",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.depths or len(self.depths) != len(self.widths) or min(*self.depths, *self.widths) < 1:
            raise InputError(
                f"depths={self.depths} and widths={self.widths} are not two numbers, 1 or more, for each stage; give "
                "as many of one as of the other"
            )
        if sum(self.depths) > MOST_LAYERS:
            raise InputError(f"depths={self.depths} are more than {MOST_LAYERS} blocks; choose fewer")
        if self.bottleneck and any(width % 4 for width in self.widths):
            raise InputError(f"widths={self.widths} are not multiples of 4, as the blocks of bottleneck=True need")
        if not 0 <= self.norm_momentum < 1:
            raise InputError(f"norm_momentum={self.norm_momentum} is not a share of old statistics; choose e.g. 0.9")

    @property
    def reduction(self) -> int:
        """By what the last feature map's sides are smaller than those of a picture."""
        return 2 ** (len(self.depths) - 1 - self.dilated) * (1 if self.stem == "whole" else 4)

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 32, 32, self.num_channels), jnp.float32),)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ResNet":
        return ResNet(self, dtype, remat)


class Block(nn.Module):
    """activation(x + convolutions of x): a residual block (He et al. 2016, figures 2 and 5)."""

    config: ResNetConfig
    width: int
    strides: int
    dtype: Any = jnp.float32
    dilation: int = 1

    @nn.compact
    def __call__(self, x: Images, deterministic: bool) -> Float[Array, "B h w D"]:
        c = self.config
        norm = partial(BatchNorm, c.norm_momentum, c.norm_epsilon, self.dtype, frozen=c.frozen_norm)
        averages = c.downsampling == "averaged" and self.strides > 1
        strides = 1 if averages else self.strides
        shortcut = x
        if self.strides > 1 or x.shape[-1] != self.width:
            shortcut = Conv(self.width, 1, strides, self.dtype, name="shortcut_conv")(halve(x) if averages else x)
            shortcut = norm(name="shortcut_norm")(shortcut, deterministic=deterministic)
        inner = self.width // 4 if c.bottleneck else self.width
        sizes = ((inner, 1, 1), (inner, 3, strides), (self.width, 1, 1))
        sizes = sizes if c.bottleneck else ((inner, 3, strides), (self.width, 3, 1))
        for number, size in enumerate(sizes, start=1):
            dilation = self.dilation if size[1] == 3 else 1
            x = Conv(*size, self.dtype, dilation, name=f"conv{number}")(x)
            is_last = number == len(sizes)
            init = nn.initializers.zeros if c.zero_init and is_last else nn.initializers.ones
            x = norm(scale_init=init, name=f"norm{number}")(x, deterministic=deterministic)
            x = nn.relu(x + shortcut if is_last else x)
            x = halve(x) if averages and number == len(sizes) - 1 else x
        return constrain_picture(x)


def halve(x: Float[Array, "B H W D"]) -> Float[Array, "B h w D"]:
    """The means of 2 x 2 pixels; what is left of an odd side has none."""
    return nn.avg_pool(x, (2, 2), (2, 2))


class ResNet(nn.Module):
    """Stem, stages, and the head that the config names."""

    config: ResNetConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        half = c.stem_width // 2
        sizes = {
            "halved twice": ((c.stem_width, 7, 2),),
            "whole": ((c.stem_width, 3, 1),),
            "deep": ((half, 3, 2), (half, 3, 1), (c.stem_width, 3, 1)),
        }[c.stem]
        ends = [""] if len(sizes) == 1 else [str(number) for number in range(1, len(sizes) + 1)]
        self.stem = [
            (
                Conv(*size, self.dtype, name=f"stem_conv{end}"),
                BatchNorm(c.norm_momentum, c.norm_epsilon, self.dtype, frozen=c.frozen_norm, name=f"stem_norm{end}"),
            )
            for size, end in zip(sizes, ends, strict=True)
        ]
        block = Block if self.remat in ("none", "unroll") else nn.remat(Block, static_argnums=(2,))
        self.stages = [
            [
                block(
                    c,
                    width,
                    2 if stage > 1 and number == 1 and not (c.dilated and stage == len(c.depths)) else 1,
                    self.dtype,
                    # The first block still has the dilation of the stage before.
                    2 if c.dilated and stage == len(c.depths) and number > 1 else 1,
                    name=f"stage{stage}_block{number}",
                )
                for number in range(1, depth + 1)
            ]
            for stage, (depth, width) in enumerate(zip(c.depths, c.widths, strict=True), start=1)
        ]
        if "classification" in c.heads:
            self.classification = Classifier(c.num_classes, dropout_rate=0.0)

    def __call__(self, images: Images, *, deterministic: bool = True) -> dict[str, Array]:
        """All outputs for some pictures: `hidden` [B P D] and, with the head, `classification_logits` [B K]."""
        results = {"hidden": self.hidden_states(images, deterministic=deterministic)}
        if self.config.heads:
            logits = self.classification_logits(results["hidden"], deterministic=deterministic)
            results["classification_logits"] = logits
        return results

    def feature_maps(self, images: Images, *, deterministic: bool = True) -> list[Float[Array, "B _ _ _"]]:
        """What each stage gives, from the largest to the smallest."""
        x = constrain_picture(images.astype(self.dtype))
        for conv, norm in self.stem:
            x = nn.relu(norm(conv(x), deterministic=deterministic))
        if self.config.stem == "halved twice":
            x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        elif self.config.stem == "deep":
            x = halve(x)
        maps = []
        for stage in self.stages:
            for block in stage:
                x = block(x, deterministic)
            maps.append(x)
        return maps

    def hidden_states(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B P D"]:
        """The last feature map, row after row of its positions."""
        x = self.feature_maps(images, deterministic=deterministic)[-1]
        return x.reshape(x.shape[0], -1, x.shape[-1])

    def classification_logits(
        self, hidden: Float[Array, "B P D"], *, deterministic: bool = True
    ) -> Float[Array, "B K"]:
        """From the mean over all positions."""
        return self.classification(hidden.astype(jnp.float32).mean(1), deterministic=deterministic)

    def class_logits(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B K"]:
        """Logits of the classes of pictures."""
        hidden = self.hidden_states(images, deterministic=deterministic)
        return self.classification_logits(hidden, deterministic=deterministic)


def _presets() -> dict[str, ResNetConfig]:
    basic = ResNetConfig(depths=(2, 2, 2, 2), widths=(64, 128, 256, 512), bottleneck=False)
    return {
        "resnet-18": basic,
        "resnet-34": replace(basic, depths=(3, 4, 6, 3)),
        "resnet-50": ResNetConfig(),
        "resnet-101": ResNetConfig(depths=(3, 4, 23, 3)),
        "resnet-152": ResNetConfig(depths=(3, 8, 36, 3)),
    }


PRESETS = _presets()
"""The sizes of He et al. 2016, table 1."""
