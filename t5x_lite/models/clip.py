"""CLIP: a tower for pictures and one for texts, whose vectors are compared (Radford et al. 2021)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.attention import dot_product_attention
from t5x_lite.layers.dense import Activation, Dense, LayerConfig
from t5x_lite.layers.patches import Grid, PatchPositions, PatchPositionTable
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Ids
from t5x_lite.models.image_text import ImageTextConfig, ImageTextModel, TextTower, TextTowerConfig
from t5x_lite.models.resnet import ResNet, ResNetConfig
from t5x_lite.models.vit import Images, ImageTransformer, ImageTransformerConfig, check_image_size
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegative, NormEpsilon, Positive, Rate


@dataclass(frozen=True)
class ClipImageConfig(ImageTransformerConfig):
    """The tower of pictures of one CLIP: a ViT with a norm before its layers and patches without a bias (section 2.4).
    The defaults are ViT-B/32's."""

    patch_size: Positive = 32
    activation: Activation = "quick_gelu"
    norm_epsilon: NormEpsilon = 1e-5

    positions: ClassVar[PatchPositions] = "learned"
    patch_bias: ClassVar[bool] = False
    embedding_norm: ClassVar[bool] = True
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings", "embedding_norm")
    projection_bias: ClassVar[bool] = False

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(self.embed_dim**-0.5)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ClipImageTower":
        return ClipImageTower(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """As PyTorch begins its layers, which the authors' code left as they were."""
        return replace(
            super().layer(),
            query_init=nn.initializers.variance_scaling(0.5, "fan_in", "uniform"),
            kernel_init=nn.initializers.variance_scaling(0.5, "fan_in", "uniform"),
            mlp_init=nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"),
            residual_init=nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"),
        )


@dataclass(frozen=True)
class ClipResNetConfig(ResNetConfig):
    """The tower of pictures of a CLIP with a ResNet: of He et al. 2019 (ResNet-D), with attention instead of the mean
    at its end (section 2.4). The defaults are RN50's."""

    image_size: tuple[int, int] = (224, 224)
    """Height and width that there are positions for; those of pictures of another size are interpolated."""
    num_heads: Positive = 32
    """Attention heads of the pooling."""
    stem: Literal["halved twice", "whole", "deep"] = "deep"
    downsampling: Literal["strided", "averaged"] = "averaged"
    heads: tuple[Literal["classification"], ...] = ()
    zero_init: bool = True

    task_heads: ClassVar[tuple[str, ...]] = ()
    projection_bias: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads:
            raise InputError(f"heads={self.heads}: a tower of CLIP has no head; choose ()")
        check_image_size(self.image_size)
        if self.embed_dim % self.num_heads:
            raise InputError(
                f"num_heads={self.num_heads} does not divide the channels of the last stage, {self.embed_dim}; choose "
                "a number that does"
            )
        self.grid_of(self.image_size)

    @property
    def embed_dim(self) -> int:
        """Width of the vector of a picture before its projection."""
        return self.widths[-1]

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    @property
    def positioned_tokens(self) -> tuple[str, ...]:
        """What has a position before those of the last feature map."""
        return ("mean",)

    @property
    def grid(self) -> Grid:
        """Rows and columns of the last feature map."""
        return self.grid_of(self.image_size)

    def grid_of(self, image_size: tuple[int, ...]) -> Grid:
        """Rows and columns that are left of pictures of another size; `InputError` where that is no whole number."""
        factor = self.reduction
        if min(image_size) < factor or any(side % factor for side in image_size):
            raise InputError(
                f"image_size={tuple(image_size)} is not a multiple of {factor}, by which the tower divides its sides; "
                f"choose one (e.g. {tuple(max(1, round(side / factor)) * factor for side in image_size)})"
            )
        return image_size[0] // factor, image_size[1] // factor

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, *self.image_size, self.num_channels), jnp.float32),)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ClipResNetTower":
        return ClipResNetTower(self, dtype, remat)


@dataclass(frozen=True)
class ClipTextConfig(TextTowerConfig):
    """The tower of texts of one CLIP: GPT-2's layers over lower-cased BPE (section 2.4). The defaults are B/32's."""

    vocab_size: Positive = 49_408
    max_length: Positive = 77
    """Ids of a text, with the two around it."""
    embed_dim: Positive = 512
    num_heads: Positive = 8
    mlp_dim: Positive = 2048
    num_layers: Positive = 12
    activation: Activation = "quick_gelu"
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    norm_epsilon: NormEpsilon = 1e-5
    eos_id: NonNegative | None = None
    """What ends a text, and where its vector is read: at the first of them; None: at the largest id, which is the same
    where EOS is the last of the vocabulary, as in the published models."""

    causal: ClassVar[bool] = True

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raises `InputError` where the vector of a text would not be read at its end."""
        if self.eos_id is None and vocabulary.eos_id < vocabulary.size - 1:
            raise InputError(
                f"model.text.eos_id=None reads texts at their largest id, and EOS is {vocabulary.eos_id} of the "
                f"tokenizer's {vocabulary.size} ids; choose {vocabulary.eos_id}"
            )
        if self.eos_id not in (None, vocabulary.eos_id):
            raise InputError(
                f"model.text.eos_id={self.eos_id} is not the tokenizer's {vocabulary.eos_id}; choose "
                f"{vocabulary.eos_id}"
            )

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ClipTextTower":
        return ClipTextTower(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """With the deviations of the authors' code."""
        width = self.embed_dim
        return replace(
            super().layer(),
            query_init=nn.initializers.normal(width**-0.5),
            kernel_init=nn.initializers.normal(width**-0.5),
            mlp_init=nn.initializers.normal((2 * width) ** -0.5),
            residual_init=nn.initializers.normal((2 * width * self.num_layers) ** -0.5),
        )


@dataclass(frozen=True)
class ClipConfig(ImageTextConfig):
    """The architecture of one CLIP. The defaults are ViT-B/32's."""

    image: ClipImageConfig | ClipResNetConfig = ClipImageConfig()
    text: ClipTextConfig = ClipTextConfig()
    projection_dim: Positive = 512
    """Width of the vectors that are compared."""

    # Products are never scaled by more than 100 (section 2.5).
    upper_bounds: ClassVar[dict[str, float]] = {"logit_scale": math.log(100.0)}
    below_layers: ClassVar[tuple[str, ...]] = (
        *(f"image/{name}" for name in ClipImageConfig.below_layers),
        *(f"text/{name}" for name in ClipTextConfig.below_layers),
    )

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Clip":
        return Clip(self, dtype=dtype, remat=remat)


class ClipImageTower(ImageTransformer):
    """A Transformer of pictures, read at its class token."""

    config: ClipImageConfig

    def setup(self) -> None:
        self.setup_encoder()

    def __call__(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B D"]:
        """The vectors of pictures before their projection."""
        return self.hidden_states(images, deterministic=deterministic)[:, 0]


class ClipResNetTower(ResNet):
    """A ResNet whose last feature map is read by attention."""

    config: ClipResNetConfig

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.pooler = _MeanAttention(c.num_heads, c.grid, self.dtype)

    def __call__(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B D"]:
        """The vectors of pictures before their projection."""
        grid = self.config.grid_of(images.shape[1:3])
        return self.pooler(self.hidden_states(images, deterministic=deterministic), grid)


class _MeanAttention(nn.Module):
    """What the mean of all positions attends to, among itself and them (section 2.4)."""

    num_heads: int
    grid: Grid
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B P D"], grid: Grid) -> Float[Array, "B D"]:
        width = hidden.shape[-1]
        init = nn.initializers.normal(width**-0.5)
        table = PatchPositionTable(self.grid, width, 1, "learned", self.dtype, init, name="position")
        positions = jnp.concatenate(table(grid))
        x = jnp.concatenate([hidden.mean(axis=1, keepdims=True), hidden], axis=1) + positions[None]

        def heads(name: str, x: Float[Array, "B L D"]) -> Float[Array, "B L H K"]:
            return Dense(width, ("embed", "heads"), True, self.dtype, init, width // self.num_heads, name=name)(x)

        attended = dot_product_attention(heads("query", x[:, :1]), heads("key", x), heads("value", x))
        return attended.reshape(len(x), width)


class ClipTextTower(TextTower):
    """A causal Transformer of texts, read at their end."""

    config: ClipTextConfig

    def __call__(self, ids: Ids, *, deterministic: bool = True) -> Float[Array, "B D"]:
        """The vectors of texts before their projection: what the last layer gives at the position of EOS, the only one
        that sees all of its text. What follows it is not seen."""
        hidden = self.hidden_states(ids, deterministic=deterministic)
        eos_id = self.config.eos_id
        # Of equal ones the first: EOS may fill up the row.
        ends = jnp.argmax(ids if eos_id is None else ids == eos_id, axis=1)
        return jnp.take_along_axis(hidden, ends[:, None, None], axis=1)[:, 0]


class Clip(ImageTextModel):
    """Both towers, their projections, and the temperature by which products are scaled."""

    config: ClipConfig

    def setup(self) -> None:
        c = self.config
        self.image = c.image.build(dtype=self.dtype, remat=self.remat)
        self.text = c.text.build(dtype=self.dtype, remat=self.remat)
        self.image_projection = self._projection(c.image.embed_dim, c.image.projection_bias)
        self.text_projection = self._projection(c.text.embed_dim)
        self.logit_scale = self.scalar("logit_scale", math.log(1 / 0.07))

    def _projection(self, width: int, use_bias: bool = False) -> Dense:
        init = nn.initializers.normal(width**-0.5)
        return Dense(self.config.projection_dim, ("embed", "hidden"), use_bias, self.dtype, init)


def _presets() -> dict[str, ClipConfig]:
    base = ClipConfig()
    image = replace(base.image, patch_size=14, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    text = replace(base.text, embed_dim=768, num_heads=12, mlp_dim=3072)
    large = ClipConfig(image, text, projection_dim=768)
    return {
        "clip-b-32": base,
        "clip-b-16": replace(base, image=replace(base.image, patch_size=16)),
        "clip-l-14": large,
        "clip-l-14-336": replace(large, image=replace(image, image_size=(336, 336))),
        "clip-rn50": ClipConfig(ClipResNetConfig(), projection_dim=1024),
    }


PRESETS = _presets()
"""The sizes of Radford et al. 2021, tables 19 and 20."""
