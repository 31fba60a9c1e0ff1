"""DETR: a ResNet, and a Transformer whose decoder turns learned queries into boxes and classes (Carion et al. 2020)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.dense import Activation, Dense, LayerConfig
from t5x_lite.layers.embedding import POSITION_AXES, Embedding
from t5x_lite.layers.positions import sine_positions_2d
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, ModelConfig, check_heads
from t5x_lite.models.resnet import ResNet, ResNetConfig
from t5x_lite.models.vit import Images, check_sincos
from t5x_lite.validation import NormEpsilon, Positive, Rate

Extents = Int[Array, "B 2"] | None
"""Height and width, in pixels, of the picture in the upper left of each canvas; None: it fills the canvas."""
_TORCH = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""As PyTorch begins linear layers and convolutions, which the authors' code left as they were."""


@dataclass(frozen=True)
class DetrConfig(ModelConfig):
    """The architecture of one DETR. The defaults are ResNet-50's for COCO."""

    backbone: ResNetConfig = ResNetConfig(heads=(), frozen_norm=True)
    num_classes: Positive = 91
    """Classes, without that for no object: the largest number of one and 1. COCO's numbers go from 1 to 90."""
    num_queries: Positive = 100
    """Objects of a picture, at most."""
    embed_dim: Positive = 256
    """Width of the residual stream."""
    num_heads: Positive = 8
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    mlp_dim: Positive = 2048
    """Width of the feed-forward layers."""
    num_encoder_layers: Positive = 6
    num_decoder_layers: Positive = 6
    activation: Activation = "relu"
    """Of the feed-forward layers: gelu, gelu_tanh, quick_gelu, relu, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on residual branches."""
    attention_dropout_rate: Rate = 0.1
    """Dropout on attention weights."""
    mlp_dropout_rate: Rate = 0.1
    """Dropout on the hidden units of feed-forward layers."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in LayerNorm."""

    architecture: ClassVar[Architecture | None] = "detection"
    below_layers: ClassVar[tuple[str, ...]] = ("backbone", "projection", "queries")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self)
        check_sincos(self)
        if self.backbone.heads:
            raise InputError(
                f"backbone.heads={self.backbone.heads}: the feature map is read, and no head; choose (), and "
                "frozen_norm=True for small batches"
            )

    @property
    def num_channels(self) -> int:
        return self.backbone.num_channels

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        side = 2 * self.backbone.reduction
        return (jax.ShapeDtypeStruct((1, side, side, self.num_channels), jnp.float32),)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Detr":
        return Detr(self, dtype, remat)

    def layer(self) -> LayerConfig:
        """The sizes and options of one layer, norms after residual branches."""
        init = nn.initializers.xavier_uniform()
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.embed_dim // self.num_heads,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
            norm_first=False,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            mlp_dropout_rate=self.mlp_dropout_rate,
            query_init=init,
            kernel_init=init,
        )


class Detections(NamedTuple):
    """What each decoder layer finds, float32; the last one is the result, the others are trained too."""

    class_logits: Float[Array, "N B Q K"]
    """Of the classes and, last, of no object."""
    boxes: Float[Array, "N B Q 4"]
    """Center x and y, width and height, as shares of the picture's width and height."""


class Detr(nn.Module):
    """Backbone, encoder, decoder and heads."""

    config: DetrConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.backbone = ResNet(c.backbone, self.dtype, self.remat)
        self.projection = Dense(c.embed_dim, ("hidden", "embed"), True, self.dtype, _TORCH)
        self.queries = Embedding(c.num_queries, c.embed_dim, self.dtype, nn.initializers.normal(1.0), POSITION_AXES)
        options = {"remat": self.remat, "dtype": self.dtype}
        self.encoder = Stack(c.layer(), c.num_encoder_layers, **options)
        self.decoder = Stack(c.layer(), c.num_decoder_layers, has_memory=True, **options)
        self.decoder_norm = c.layer().make_norm(self.dtype)
        self.class_head = Dense(c.num_classes + 1, ("embed", "classes"), True, jnp.float32, _TORCH)
        widths, axes = (c.embed_dim, c.embed_dim, 4), (("embed", "hidden"), ("hidden", "embed"), ("embed", "classes"))
        self.box_head = [
            Dense(width, of_matrix, True, jnp.float32, _TORCH, name=f"box_head{number}")
            for number, (width, of_matrix) in enumerate(zip(widths, axes, strict=True), start=1)
        ]

    def __call__(self, images: Images, extents: Extents = None, *, deterministic: bool = True) -> Detections:
        """Boxes and classes for each query, of every decoder layer."""
        hidden = self.query_states(images, extents, deterministic=deterministic).astype(jnp.float32)
        x = hidden
        for number, dense in enumerate(self.box_head, start=1):
            x = dense(x)
            x = nn.relu(x) if number < len(self.box_head) else nn.sigmoid(x)
        return Detections(self.class_head(hidden), x)

    def query_states(
        self, images: Images, extents: Extents = None, *, deterministic: bool = True
    ) -> Float[Array, "N B Q D"]:
        """What each decoder layer gives for the queries, after the norm that all share. The next layer reads it without
        that norm."""
        feature_map = self.backbone.feature_maps(images, deterministic=deterministic)[-1]
        batch, rows, columns, _ = feature_map.shape
        x = self.projection(feature_map.reshape(batch, rows * columns, -1))
        counts = self.valid_counts(images, extents)
        positions = sine_positions_2d((rows, columns), counts, self.config.embed_dim).astype(self.dtype)
        mask = Mask(_valid((rows, columns), counts))
        context = Context(self_mask=mask, positions=positions)
        memory = self.encoder(x, context, deterministic=deterministic)
        queries = self.queries(jnp.arange(self.config.num_queries)[None])
        context = Context(memory=memory, memory_mask=mask, positions=queries, memory_positions=positions)
        start = jnp.zeros((batch, *queries.shape[1:]), self.dtype)
        return self.decoder_norm(self.decoder.outputs(start, context, deterministic=deterministic))

    def valid_counts(self, images: Images, extents: Extents) -> Int[Array, "B 2"]:
        """How many rows and columns of the last feature map are of the picture: those whose first pixel is."""
        reduction = self.config.backbone.reduction
        sizes = jnp.array([-(-side // reduction) for side in images.shape[1:3]])
        if extents is None:
            return jnp.broadcast_to(sizes, (len(images), 2))
        # Nearest neighbours, as PyTorch interpolates: of feature i of h the pixel i H / h, rounded down.
        pixels = jnp.array(images.shape[1:3])
        return jnp.clip(-(-extents * sizes[None] // pixels[None]), 1, sizes[None])


def _valid(grid: tuple[int, int], counts: Int[Array, "B 2"]) -> Bool[Array, "B P"]:
    """Whether a position of the feature map, row by row, is of the picture."""
    rows, columns = (jnp.arange(side)[None] < counts[:, axis, None] for axis, side in enumerate(grid))
    return (rows[:, :, None] & columns[:, None]).reshape(len(counts), -1)


def _presets() -> dict[str, DetrConfig]:
    base = DetrConfig()
    sizes = {"50": base.backbone, "101": replace(base.backbone, depths=(3, 4, 23, 3))}
    return {
        f"detr-resnet-{size}{end}": replace(base, backbone=replace(backbone, dilated=bool(end)))
        for size, backbone in sizes.items()
        for end in ("", "-dc5")
    }


PRESETS = _presets()
"""The sizes of Carion et al. 2020, table 1."""
