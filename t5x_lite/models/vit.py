"""The Vision Transformer and what was made of it: ViT, DeiT with its distillation token, and DeiT III.

Dosovitskiy et al. 2021 (ViT), Touvron et al. 2021 (DeiT), Touvron et al. 2022 (DeiT III).
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.convolution import BatchNorm
from t5x_lite.layers.dense import Activation, Dropout, LayerConfig
from t5x_lite.layers.heads import Classifier, Pooler
from t5x_lite.layers.patches import Grid, PatchEmbeddings, PatchPositions
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, Hidden, ModelConfig, check_heads
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate

Images = Float[Array, "B H W C"]
"""Pixels, normalized."""
ImageHead = Literal["classification", "distillation"]


@dataclass(frozen=True)
class ImageTransformerConfig(ModelConfig):
    """What all Transformers of pictures have. The defaults are base, with patches of 16 x 16 pixels."""

    image_size: tuple[int, int] = (224, 224)
    """Height and width that there are positions for; those of pictures of another size are interpolated."""
    patch_size: Positive = 16
    """Side of a patch in pixels."""
    num_channels: Positive = 3
    embed_dim: Positive = 768
    """Width of the residual stream."""
    num_heads: Positive = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layers."""
    num_layers: Positive = 12
    activation: Activation = "gelu"
    """Of the feed-forward layers: gelu, gelu_tanh, quick_gelu, relu, silu or tanh."""
    dropout_rate: Rate = 0.0
    """Dropout on embeddings, residual branches and hidden units of feed-forward layers (Dosovitskiy et al. 2021,
    appendix B.1)."""
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    norm_epsilon: NormEpsilon = 1e-6
    """Added to the variance in LayerNorm; 1e-12 in Transformers' conversions of ViT and DeiT."""

    architecture: ClassVar[Architecture | None] = "images"
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings",)

    # Fields of some families, documented there.
    positions: ClassVar[PatchPositions] = "sincos"
    special_positions: ClassVar[bool] = True
    drop_path_rate: ClassVar[float] = 0.0
    drop_path_schedule: ClassVar[Literal["linear", "constant"]] = "linear"
    layer_scale: ClassVar[float] = 0.0
    patch_bias: ClassVar[bool] = True
    """Whether the matrix that embeds patches has a bias."""
    embedding_norm: ClassVar[bool] = False
    """Whether a norm comes before the first layer."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The names of the learned vectors in front of the patches."""
        return ("class_token",)

    @property
    def positioned_tokens(self) -> tuple[str, ...]:
        """Those of them that have positions."""
        return self.special_tokens if self.special_positions else ()

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches."""
        return self.grid_of(self.image_size)

    def grid_of(self, image_size: tuple[int, ...]) -> Grid:
        """The patches of pictures of another height and width; `InputError` where they do not divide it."""
        size, height, width = self.patch_size, *image_size
        if min(height, width) < size or height % size or width % size:
            nearest = tuple(max(1, round(side / size)) * size for side in (height, width))
            raise InputError(
                f"patch_size={size} does not divide image_size={(height, width)} into whole patches; choose "
                f"multiples of {size} (e.g. {nearest})"
            )
        return height // size, width // size

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self)
        check_image_size(self.image_size)
        self.grid_of(self.image_size)
        if self.positions == "sincos":
            check_sincos(self)

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, *self.image_size, self.num_channels), jnp.float32),)

    def check_images(self, images: Images) -> None:
        """Raises `InputError` for pictures that patches do not divide, or with other channels."""
        self.grid_of(images.shape[1:3])
        if images.shape[3] != self.num_channels:
            raise InputError(
                f"the pictures have {images.shape[3]} channels, the model num_channels={self.num_channels}; convert "
                "them, or choose a model with as many"
            )

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        """Of special tokens and learned positions."""
        return nn.initializers.normal(0.02)

    def embeddings(self, dtype: Any) -> PatchEmbeddings:
        """What the pictures are read by."""
        options = (self.special_tokens, self.positions, self.special_positions, dtype, self.patch_bias)
        return PatchEmbeddings(self.grid, self.patch_size, self.embed_dim, *options, self.embedding_init)

    def layer(self) -> LayerConfig:
        """The sizes and options of one layer."""
        init = nn.initializers.xavier_uniform()
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.embed_dim // self.num_heads,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            mlp_dropout_rate=self.dropout_rate,
            drop_path_rate=self.drop_path_rate,
            drop_path_schedule=self.drop_path_schedule,
            layer_scale=self.layer_scale,
            query_init=init,
            kernel_init=init,
        )


class ImageTransformer(nn.Module):
    """Patch embeddings and a stack of layers, of which every module for pictures here is made."""

    config: ImageTransformerConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup_encoder(self) -> None:
        """Makes embeddings and layers; a module's `setup` calls it."""
        c = self.config
        self.embeddings = c.embeddings(self.dtype)
        if c.embedding_norm:
            self.embedding_norm = c.layer().make_norm(self.dtype)
        self.dropout = Dropout(c.dropout_rate)
        self.encoder = Stack(c.layer(), c.num_layers, remat=self.remat, dtype=self.dtype)

    def hidden_states(self, images: Images, *, deterministic: bool = True) -> Hidden:
        """The tokens after the last norm: special ones first, then the patches row by row.

        Raises `InputError` for pictures that patches do not divide; those of another size than `image_size` have
        interpolated positions.
        """
        return self.encoder(self._embed(images, deterministic), Context(), deterministic=deterministic)

    def encode_layers(self, images: Images, *, deterministic: bool = True) -> Float[Array, "_ B L D"]:
        """What the first layer reads, and the output of each, the last as in `hidden_states`: num_layers + 1 arrays."""
        x = self._embed(images, deterministic)
        outputs = self.encoder.outputs(x, Context(), deterministic=deterministic)
        return jnp.concatenate([x[None], outputs.at[-1].set(self.encoder.final_norm(outputs[-1]))])

    def _embed(self, images: Images, deterministic: bool) -> Hidden:
        self.config.check_images(images)
        x = self.embeddings(images)
        x = self.embedding_norm(x) if self.config.embedding_norm else x
        return self.dropout(x, deterministic=deterministic)


@dataclass(frozen=True)
class ViTConfig(ImageTransformerConfig):
    """The architecture of one ViT. The defaults are ViT-B/16 for 1,000 classes; DeiT III has LayerScale besides."""

    num_classes: Positive = 1000
    heads: tuple[ImageHead, ...] = ("classification",)
    """classification, or () for hidden states alone."""
    pooling: Literal["cls", "mean"] = "cls"
    """What the head reads: the class token, or the mean of the patches, and then there is no class token."""
    positions: PatchPositions = "learned"
    """A table that is learned, or sines and cosines of row and column (sincos)."""
    special_positions: bool = True
    """Whether the class token has a position too; DeiT III's has none."""
    pooler: bool = False
    """A dense layer with tanh between class token and head, as in pretraining on ImageNet-21k (section 3.1)."""
    head_norm: bool = False
    """Batch normalization without scale and bias before the head, for a linear probe of a masked autoencoder (He et al.
    2022, appendix A.1)."""
    drop_path_rate: Rate = 0.0
    """Share of the rows that skip a branch of the last layer in training (stochastic depth)."""
    drop_path_schedule: Literal["linear", "constant"] = "linear"
    """How that share goes with depth: linearly from 0 in the first layer, or, as in DeiT III, the same in all."""
    layer_scale: Annotated[float, Range(ge=0, remedy="choose e.g. 1e-4, or 0 for none")] = 0.0
    """What LayerScale's factors begin with; 0: there are none."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for head in self.heads:
            if head not in self.task_heads or self.heads.count(head) > 1 or self.task_heads[0] not in self.heads:
                raise InputError(
                    f"heads={self.heads} are not those of {type(self).__name__}; choose () or begin with "
                    f"{', '.join(self.task_heads)}, each once"
                )
        if self.pooler and self.pooling == "mean":
            raise InputError("pooler=True reads the class token, and pooling='mean' has none; choose one of the two")

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return ("class_token",) if self.pooling == "cls" else ()

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ViT":
        return ViT(self, dtype=dtype, remat=remat)


@dataclass(frozen=True)
class DeiTConfig(ViTConfig):
    """The architecture of one DeiT with a distillation token. The defaults are base; without the token it is a ViT."""

    heads: tuple[ImageHead, ...] = ("classification", "distillation")
    """Both, or classification alone, or () for hidden states alone."""

    task_heads: ClassVar[tuple[str, ...]] = ("classification", "distillation")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling == "mean":
            raise InputError("pooling='mean' has no class token, beside which DeiT's is; choose pooling='cls'")

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return ("class_token", "distillation_token")


class ViT(ImageTransformer):
    """A Vision Transformer with its heads. Logits are float32 whatever `dtype` the layers compute in."""

    config: ViTConfig

    def setup(self) -> None:
        self.setup_encoder()
        c = self.config
        if c.pooler:
            self.pooler = Pooler(self.dtype)
        if "classification" in c.heads:
            self.classification = Classifier(c.num_classes, dropout_rate=0.0, dtype=self.dtype)
            if c.head_norm:
                self.classification_norm = BatchNorm(epsilon=1e-6, dtype=self.dtype, affine=False)
        if "distillation" in c.heads:
            self.distillation = Classifier(c.num_classes, dropout_rate=0.0, dtype=self.dtype)

    def __call__(self, images: Images, *, deterministic: bool = True) -> dict[str, Array]:
        """All outputs for some pictures.

        Returns:
          `hidden` [B L D], `pooled` [B D] if there is a pooler, and `<head>_logits` [B C] for each head.
        """
        hidden = self.hidden_states(images, deterministic=deterministic)
        results = {"hidden": hidden}
        if self.config.pooler:
            results["pooled"] = self.pooler(hidden)
        for head in self.config.heads:
            results[f"{head}_logits"] = getattr(self, f"{head}_logits")(hidden, deterministic=deterministic)
        return results

    def classification_logits(self, hidden: Hidden, *, deterministic: bool = True) -> Float[Array, "B C"]:
        """The logits of a picture's classes, from the class token or the mean of the patches."""
        if self.config.pooling == "mean":
            vector = hidden.mean(axis=1)
        else:
            vector = self.pooler(hidden) if self.config.pooler else hidden[:, 0]
        if self.config.head_norm:
            vector = self.classification_norm(vector[:, None, None], deterministic=deterministic)[:, 0, 0]
        return self.classification(vector, deterministic=deterministic)

    def distillation_logits(self, hidden: Hidden, *, deterministic: bool = True) -> Float[Array, "B C"]:
        """The logits of the classes that a teacher names, from the distillation token."""
        return self.distillation(hidden[:, 1], deterministic=deterministic)

    def class_logits(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B num_classes"]:
        """What inference takes: the logits of the head, of two heads their mean (Touvron et al. 2021, section 4)."""
        hidden = self.hidden_states(images, deterministic=deterministic)
        logits = self.classification_logits(hidden, deterministic=deterministic)
        if "distillation" in self.config.heads:
            logits = (logits + self.distillation_logits(hidden, deterministic=deterministic)) / 2
        return logits


def check_image_size(sides: Any) -> None:
    """Raises `InputError` for what is not a height and a width."""
    if not isinstance(sides, tuple) or len(sides) != 2 or not all(type(side) is int for side in sides):
        raise InputError(f"image_size={sides} is not a height and a width; give two whole numbers, e.g. (224, 224)")


def check_sincos(config: Any, field: str = "embed_dim") -> None:
    """Raises `InputError` where sines and cosines of two directions do not fill `field`."""
    width = getattr(config, field)
    if width % 4:
        raise InputError(
            f"{field}={width} is not a multiple of 4, which sines and cosines of row and column take; choose "
            f"{width - width % 4 + 4}"
        )


SIZES: dict[str, dict[str, int]] = {
    "ti": {"embed_dim": 192, "num_heads": 3, "mlp_dim": 768},
    "s": {"embed_dim": 384, "num_heads": 6, "mlp_dim": 1536},
    "b": {},
    "l": {"embed_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "h": {"embed_dim": 1280, "num_heads": 16, "mlp_dim": 5120, "num_layers": 32},
}
"""What the published sizes change in base: Dosovitskiy et al. 2021, table 1, and Touvron et al. 2021, table 1."""


def _presets() -> dict[str, ViTConfig]:
    large = {"image_size": (384, 384)}
    vit = {
        f"vit-{size}-{patch}": ViTConfig(patch_size=patch, **SIZES[size])
        for size, patch in (("ti", 16), ("s", 16), ("b", 16), ("b", 32), ("l", 16), ("l", 32), ("h", 14))
    }
    deit = {
        f"deit-{size}{end}": family(**SIZES[size])
        for size in ("ti", "s", "b")
        for end, family in (("", ViTConfig), ("-distilled", DeiTConfig))
    }
    # As the authors' commands for 800 epochs of ImageNet-1k have it.
    drop_path = {"s": 0.05, "b": 0.2, "l": 0.45, "h": 0.6}
    deit3 = {
        f"deit3-{size}": ViTConfig(
            patch_size=14 if size == "h" else 16,
            layer_scale=1e-4,
            drop_path_rate=rate,
            drop_path_schedule="constant",
            special_positions=False,
            **SIZES[size],
        )
        for size, rate in drop_path.items()
    }
    return {
        **vit,
        "vit-b-16-384": replace(vit["vit-b-16"], **large),
        **deit,
        "deit-b-384": replace(deit["deit-b"], **large),
        "deit-b-distilled-384": replace(deit["deit-b-distilled"], **large),
        **deit3,
    }


PRESETS: dict[str, ViTConfig] = _presets()
"""The published sizes with a head for 1,000 classes: `vit-ti-16` .. `vit-h-14`, `vit-b-16-384`; `deit-ti` ..
`deit-b-384` and the distilled ones; `deit3-s` .. `deit3-h`."""
