"""SigLIP: CLIP's two towers with a sigmoid for each pair instead of a softmax over the batch (Zhai et al. 2023)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, Dense
from t5x_lite.layers.heads import AttentionPooler
from t5x_lite.layers.patches import Grid, PatchPositions
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Ids
from t5x_lite.models.image_text import ImageTextConfig, ImageTextModel, TextTower, TextTowerConfig
from t5x_lite.models.vit import Images, ImageTransformer, ImageTransformerConfig
from t5x_lite.validation import NormEpsilon, Positive, Rate


@dataclass(frozen=True)
class SiglipImageConfig(ImageTransformerConfig):
    """The tower of pictures of one SigLIP: a ViT without a class token, read by attention (Zhai et al. 2022, section
    3.4). The defaults are B/16's."""

    activation: Activation = "gelu_tanh"

    positions: ClassVar[PatchPositions] = "learned"

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return ()

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(self.embed_dim**-0.5)

    def grid_of(self, image_size: tuple[int, ...]) -> Grid:
        """The whole patches of pictures; what is left to the right and at the bottom is not read, as of 384 pixels in
        patches of 14."""
        rows, columns = (side // self.patch_size for side in image_size)
        return (rows, columns) if rows and columns else super().grid_of(image_size)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "SiglipImageTower":
        return SiglipImageTower(self, dtype=dtype, remat=remat)


@dataclass(frozen=True)
class SiglipTextConfig(TextTowerConfig):
    """The tower of texts of one SigLIP: a bidirectional Transformer over SentencePiece, read at the last position of a
    row that padding fills up; it sees that padding. The defaults are B/16's."""

    vocab_size: Positive = 32_000
    max_length: Positive = 64
    """Ids of a row."""
    embed_dim: Positive = 768
    num_heads: Positive = 12
    mlp_dim: Positive = 3072
    num_layers: Positive = 12
    activation: Activation = "gelu_tanh"
    attention_dropout_rate: Rate = 0.0
    """Dropout on attention weights."""
    norm_epsilon: NormEpsilon = 1e-6

    reads_full_rows: ClassVar[bool] = True

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.xavier_uniform()

    @property
    def token_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(self.embed_dim**-0.5)

    @property
    def position_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(self.embed_dim**-0.5)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "SiglipTextTower":
        return SiglipTextTower(self, dtype=dtype, remat=remat)


@dataclass(frozen=True)
class SiglipConfig(ImageTextConfig):
    """The architecture of one SigLIP. The defaults are B/16's for pictures of 224 x 224. Vectors have the width of
    those of pictures."""

    image: SiglipImageConfig = SiglipImageConfig()
    text: SiglipTextConfig = SiglipTextConfig()

    independent_pairs: ClassVar[bool] = True
    below_layers: ClassVar[tuple[str, ...]] = (
        *(f"image/{name}" for name in SiglipImageConfig.below_layers),
        *(f"text/{name}" for name in SiglipTextConfig.below_layers),
    )

    @property
    def projection_dim(self) -> int:
        return self.image.embed_dim

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Siglip":
        return Siglip(self, dtype=dtype, remat=remat)


class SiglipImageTower(ImageTransformer):
    """A Transformer of pictures, read by the attention of one learned query."""

    config: SiglipImageConfig

    def setup(self) -> None:
        self.setup_encoder()
        self.pooler = AttentionPooler(self.config.layer(), self.dtype)

    def __call__(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B D"]:
        return self.pooler(self.hidden_states(images, deterministic=deterministic), deterministic=deterministic)


class SiglipTextTower(TextTower):
    """A Transformer of texts, read at the last position of a row."""

    config: SiglipTextConfig

    def __call__(self, ids: Ids, *, deterministic: bool = True) -> Float[Array, "B D"]:
        """The vectors of texts before their projection. Raises `InputError` for rows that are not filled up to
        `max_length`."""
        if ids.shape[1] != self.config.max_length and not self.is_initializing():
            raise InputError(
                f"the rows have length {ids.shape[1]}, and are read at position max_length={self.config.max_length}; "
                "fill them up with padding"
            )
        return self.hidden_states(ids, deterministic=deterministic)[:, -1]


class Siglip(ImageTextModel):
    """Both towers, the projection of texts, the temperature, and what is added to the products."""

    config: SiglipConfig

    def setup(self) -> None:
        c = self.config
        self.image = c.image.build(dtype=self.dtype, remat=self.remat)
        self.text = c.text.build(dtype=self.dtype, remat=self.remat)
        self.text_projection = Dense(c.projection_dim, ("embed", "hidden"), True, self.dtype)
        # As most pairs are negative (section 3.2).
        self.logit_scale = self.scalar("logit_scale", math.log(10.0))
        self.logit_bias = self.scalar("logit_bias", -10.0)

    def image_projection(self, vectors: Float[Array, "B D"]) -> Float[Array, "B D"]:
        """There is none."""
        return vectors

    def scale_and_bias(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.exp(self.logit_scale), self.logit_bias


def _presets() -> dict[str, SiglipConfig]:
    base = SiglipConfig()
    widths = {
        "l": {"embed_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
        "so400m": {"embed_dim": 1152, "num_heads": 16, "mlp_dim": 4304, "num_layers": 27},
    }
    sizes = {name: SiglipConfig(replace(base.image, **w), replace(base.text, **w)) for name, w in widths.items()}
    presets = {}
    for name, patch_size, side in (
        *(("b", 16, side) for side in (224, 256, 384, 512)),
        *(("l", 16, side) for side in (256, 384)),
        *(("so400m", 14, side) for side in (224, 384)),
    ):
        config = sizes.get(name, base)
        image = replace(config.image, patch_size=patch_size, image_size=(side, side))
        presets[f"siglip-{name}-{patch_size}-{side}"] = replace(config, image=image)
    return presets


PRESETS = _presets()
"""The published models, by the size of their patches and pictures (section 4)."""
