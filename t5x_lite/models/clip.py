"""CLIP: a tower for pictures and one for texts, whose vectors are compared (Radford et al. 2021)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.dense import Activation, Dense, LayerConfig
from t5x_lite.layers.embedding import POSITION_AXES, Embedding
from t5x_lite.layers.patches import PatchPositions
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, Hidden, Ids, ModelConfig, TextConfig, Valid
from t5x_lite.models.vit import Images, ImageTransformer, ImageTransformerConfig
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
class ClipTextConfig(TextConfig):
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

    norm_first: ClassVar[bool] = True
    dropout_rate: ClassVar[float] = 0.0
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "position")

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),)

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
class ClipConfig(ModelConfig):
    """The architecture of one CLIP. The defaults are ViT-B/32's."""

    image: ClipImageConfig = ClipImageConfig()
    text: ClipTextConfig = ClipTextConfig()
    projection_dim: Positive = 512
    """Width of the vectors that are compared."""

    architecture: ClassVar[Architecture | None] = "images and texts"
    # Products are never scaled by more than 100 (section 2.5).
    upper_bounds: ClassVar[dict[str, float]] = {"logit_scale": math.log(100.0)}
    below_layers: ClassVar[tuple[str, ...]] = (
        *(f"image/{name}" for name in ClipImageConfig.below_layers),
        *(f"text/{name}" for name in ClipTextConfig.below_layers),
    )

    @property
    def vocab_size(self) -> int:
        return self.text.vocab_size

    @property
    def max_length(self) -> int:
        return self.text.max_length

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.text.check_vocabulary(vocabulary)

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"image.num_heads": self.image.num_heads, "text.num_heads": self.text.num_heads}

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (*self.image.abstract_inputs(), *self.text.abstract_inputs())

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


class ClipTextTower(nn.Module):
    """A causal Transformer of texts, read at their end."""

    config: ClipTextConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, nn.initializers.normal(0.02))
        init = nn.initializers.normal(0.01)
        self.position = Embedding(c.max_length, c.embed_dim, self.dtype, init, POSITION_AXES)
        self.encoder = Stack(c.layer(), c.num_layers, remat=self.remat, dtype=self.dtype)

    def __call__(self, ids: Ids, *, deterministic: bool = True) -> Float[Array, "B D"]:
        """The vectors of texts before their projection: what the last layer gives at the position of EOS, the only one
        that sees all of its text. What follows it is not seen."""
        hidden = self.hidden_states(ids, deterministic=deterministic)
        eos_id = self.config.eos_id
        # Of equal ones the first: EOS may fill up the row.
        ends = jnp.argmax(ids if eos_id is None else ids == eos_id, axis=1)
        return jnp.take_along_axis(hidden, ends[:, None, None], axis=1)[:, 0]

    def hidden_states(self, ids: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Hidden:
        """The last layer's output. Raises `InputError` for rows longer than the config's `max_length`."""
        length = ids.shape[1]
        self.config.check_length(length)
        x = self.token_embedding(ids) + self.position(jnp.arange(length)[None])
        context = Context(None, Mask(inputs_valid, causal=True))
        return self.encoder(x, context, deterministic=deterministic)


class Clip(nn.Module):
    """`image` and `text`, the projections of both, and the temperature by which their products are scaled."""

    config: ClipConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.image = c.image.build(dtype=self.dtype, remat=self.remat)
        self.text = c.text.build(dtype=self.dtype, remat=self.remat)
        self.image_projection = self._projection(c.image.embed_dim)
        self.text_projection = self._projection(c.text.embed_dim)
        init = nn.initializers.constant(math.log(1 / 0.07))
        self.logit_scale = self.param("logit_scale", nn.with_logical_partitioning(init, ()), (), jnp.float32)

    def __call__(
        self, images: Images, ids: Int[Array, "T L"], *, deterministic: bool = True
    ) -> tuple[Float[Array, "B E"], Float[Array, "T E"], Float[Array, ""]]:
        """(the vectors of pictures, those of texts, the factor of their products): `logits_of` multiplies the three."""
        options = {"deterministic": deterministic}
        return self.embed_images(images, **options), self.embed_texts(ids, **options), self.scale()

    def embed_images(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B E"]:
        """Vectors of length 1, float32."""
        return unit_length(self.image_projection(self.image(images, deterministic=deterministic)))

    def embed_texts(self, ids: Ids, *, deterministic: bool = True) -> Float[Array, "B E"]:
        """Vectors of length 1, float32, of texts with an EOS."""
        return unit_length(self.text_projection(self.text(ids, deterministic=deterministic)))

    def scale(self) -> Float[Array, ""]:
        """The factor of the products: the inverse of the temperature."""
        return jnp.exp(self.logit_scale)

    def _projection(self, width: int) -> Dense:
        init = nn.initializers.normal(width**-0.5)
        return Dense(self.config.projection_dim, ("embed", "hidden"), False, self.dtype, init)


def unit_length(x: Float[Array, "B E"]) -> Float[Array, "B E"]:
    """Vectors divided by their lengths, float32.

    >>> unit_length(jnp.array([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))


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
    }


PRESETS = _presets()
"""The sizes of Radford et al. 2021, table 20."""
