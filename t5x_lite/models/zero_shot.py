"""A classifier of pictures made of a model of pictures and texts and the names of classes."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, ModelConfig
from t5x_lite.models.image_text import ImageTextConfig
from t5x_lite.models.vit import Images
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class ZeroShotConfig(ModelConfig):
    """A classifier whose kernel is the vectors of the names of its classes (Radford et al. 2021, section 3.1.2)."""

    base: ImageTextConfig
    num_classes: Positive
    heads: tuple[str, ...] = ("classification",)

    architecture: ClassVar[Architecture | None] = None

    @property
    def image_size(self) -> tuple[int, int]:
        return self.base.image.image_size

    @property
    def num_channels(self) -> int:
        return self.base.image.num_channels

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return self.base.abstract_inputs()

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ZeroShot":
        return ZeroShot(self, dtype, remat)


class ZeroShot(nn.Module):
    """The model in `base`, and `classes` [E K], a vector of length 1 for each class."""

    config: ZeroShotConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.base = c.base.build(dtype=self.dtype, remat=self.remat)
        shape = (c.base.projection_dim, c.num_classes)
        self.classes = parameter(self, "classes", nn.initializers.lecun_normal(), ("hidden", "classes"), shape)

    def __call__(self, images: Images, *ids: Array, deterministic: bool = True) -> Float[Array, "B K"]:
        """The logits of classes; `ids` are for `init` alone."""
        if self.is_initializing():
            self.base(images, *ids)
        return self.class_logits(images, deterministic=deterministic)

    def hidden_states(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B E"]:
        """The vectors of pictures, of length 1."""
        return self.base.embed_images(images, deterministic=deterministic)

    def classification_logits(self, hidden: Float[Array, "B E"], *, deterministic: bool = True) -> Float[Array, "B K"]:
        """The products of the vectors of pictures and of classes, scaled as the model has learned it."""
        scale, bias = self.base.scale_and_bias()
        return scale * hidden @ self.classes + bias

    def class_logits(self, images: Images, *, deterministic: bool = True) -> Float[Array, "B K"]:
        return self.classification_logits(self.hidden_states(images, deterministic=deterministic))
