"""What models that compare pictures with texts share: a tower for each, whose vectors have length 1."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.embedding import POSITION_AXES, Embedding
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, Hidden, Ids, ModelConfig, TextConfig, Valid
from t5x_lite.models.vit import Images
from t5x_lite.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextTowerConfig(TextConfig):
    """A tower of texts: a pre-norm Transformer over tokens with learned positions."""

    causal: ClassVar[bool] = False
    """Whether a position sees those before it alone."""
    reads_full_rows: ClassVar[bool] = False
    """Whether texts are read at the last position of a row, so that padding has to fill them up to `max_length`."""

    norm_first: ClassVar[bool] = True
    dropout_rate: ClassVar[float] = 0.0
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "position")

    @property
    def token_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.02)

    @property
    def position_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.01)

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),)


class TextTower(nn.Module):
    """A Transformer of texts."""

    config: TextTowerConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.token_init)
        self.position = Embedding(c.max_length, c.embed_dim, self.dtype, c.position_init, POSITION_AXES)
        self.encoder = Stack(c.layer(), c.num_layers, remat=self.remat, dtype=self.dtype)

    def hidden_states(self, ids: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Hidden:
        """The last layer's output. Raises `InputError` for rows longer than the config's `max_length`."""
        length = ids.shape[1]
        self.config.check_length(length)
        x = self.token_embedding(ids) + self.position(jnp.arange(length)[None])
        context = Context(None, Mask(inputs_valid, causal=self.config.causal))
        return self.encoder(x, context, deterministic=deterministic)


@dataclass(frozen=True)
class ImageTextConfig(ModelConfig):
    """The architecture of a model with a tower for pictures and one for texts, in `image` and `text`."""

    image: Any
    text: TextTowerConfig

    architecture: ClassVar[Architecture | None] = "images and texts"
    independent_pairs: ClassVar[bool] = False
    """Whether the model gives each pair of a picture and a text a probability of its own, a sigmoid; otherwise the
    texts that a picture is compared with share one, a softmax."""

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
        towers = {"image": self.image, "text": self.text}
        return {f"{name}.{size}": n for name, tower in towers.items() for size, n in tower.sharded_sizes.items()}

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (*self.image.abstract_inputs(), *self.text.abstract_inputs())


class ImageTextVectors(NamedTuple):
    """Vectors of pictures and of texts, and how their products become logits."""

    images: Float[Array, "B E"]
    texts: Float[Array, "T E"]
    scale: Float[Array, ""]
    """The inverse of the temperature."""
    bias: Float[Array, ""] | float = 0.0

    def logits(self) -> Float[Array, "B T"]:
        """Of each picture with each text."""
        return self.scale * self.images @ self.texts.T + self.bias


class ImageTextModel(nn.Module):
    """Both towers, what projects their outputs, and the temperature; a module's `setup` makes the towers and the
    projections."""

    config: ImageTextConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def __call__(self, images: Images, ids: Int[Array, "T L"], *, deterministic: bool = True) -> ImageTextVectors:
        options = {"deterministic": deterministic}
        vectors = self.embed_images(images, **options), self.embed_texts(ids, **options)
        return ImageTextVectors(*vectors, *self.scale_and_bias())

    def embed_images(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B E"]:
        """Vectors of length 1, float32."""
        return unit_length(self.image_projection(self.image(images, deterministic=deterministic)))

    def embed_texts(self, ids: Ids, *, deterministic: bool = True) -> Float[Array, "B E"]:
        """Vectors of length 1, float32, of texts with an EOS."""
        return unit_length(self.text_projection(self.text(ids, deterministic=deterministic)))

    def scale_and_bias(self) -> tuple[Float[Array, ""], Float[Array, ""] | float]:
        """The factor of the products, the inverse of the temperature, and what is added to them."""
        return jnp.exp(self.logit_scale), 0.0

    def scalar(self, name: str, initial: float) -> Float[Array, ""]:
        """A parameter that is one number."""
        return parameter(self, name, nn.initializers.constant(initial), (), ())


def unit_length(x: Float[Array, "B E"]) -> Float[Array, "B E"]:
    """Vectors divided by their lengths, float32.

    >>> unit_length(jnp.array([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))
