"""The masked autoencoder: a ViT that sees a quarter of a picture, and a small decoder that fills in the rest.

He et al. 2022, Masked Autoencoders Are Scalable Vision Learners.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Dense, LayerConfig
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.patches import Grid, PatchPositionTable, patchify, unpatchify
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Hidden
from t5x_lite.models.vit import SIZES, Images, ImageTransformer, ImageTransformerConfig, check_sincos
from t5x_lite.parallel.partitioning import all_gather_fsdp
from t5x_lite.validation import Density, Positive


@dataclass(frozen=True)
class MAEConfig(ImageTransformerConfig):
    """The architecture of one masked autoencoder. The defaults are base; its encoder has a ViT's names."""

    decoder_embed_dim: Positive = 512
    decoder_num_heads: Positive = 16
    decoder_mlp_dim: Positive = 2048
    decoder_num_layers: Positive = 8
    mask_ratio: Density = 0.75
    """Share of the patches that are hidden from the encoder; what is seen is rounded down."""
    norm_pix: bool = True
    """Predict the pixels of a patch after they were normalized by their mean and standard deviation (section 3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        heads, width = self.decoder_num_heads, self.decoder_embed_dim
        if width % heads:
            raise InputError(
                f"decoder_num_heads={heads} does not divide decoder_embed_dim={width}; choose a multiple of {heads}"
            )
        check_sincos(self, "decoder_embed_dim")
        if self.num_visible(self.grid) < 1:
            raise InputError(
                f"mask_ratio={self.mask_ratio} hides all {math.prod(self.grid)} patches; choose a smaller one, or a "
                "larger image_size"
            )

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": math.gcd(self.num_heads, self.decoder_num_heads)}

    def num_visible(self, grid: tuple[int, int]) -> int:
        """K, the patches of a grid that the encoder sees, rounded down as in the authors' code."""
        return int(math.prod(grid) * (1 - self.mask_ratio))

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (*super().abstract_inputs(), jax.ShapeDtypeStruct((1, math.prod(self.grid)), jnp.float32))

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "MAE":
        return MAE(self, dtype=dtype, remat=remat)

    def decoder_layer(self) -> LayerConfig:
        """The sizes and options of one layer of the decoder."""
        width, num_heads = self.decoder_embed_dim, self.decoder_num_heads
        sizes = {"num_heads": num_heads, "head_dim": width // num_heads, "mlp_dim": self.decoder_mlp_dim}
        return replace(self.layer(), **sizes)


class Decoder(nn.Module):
    """Layers over all patches, narrower than the encoder's, and a matrix from each patch to its pixels."""

    config: MAEConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.projection = Dense(c.decoder_embed_dim, ("hidden", "embed"), True, self.dtype)
        init, shape = nn.initializers.normal(0.02), (c.decoder_embed_dim,)
        self.mask_token = parameter(self, "mask_token", init, ("embed",), shape)
        self.position = PatchPositionTable(c.grid, c.decoder_embed_dim, 1, "sincos", self.dtype)
        self.stack = Stack(c.decoder_layer(), c.decoder_num_layers, remat=self.remat, dtype=self.dtype)
        self.prediction = Dense(c.patch_size**2 * c.num_channels, ("embed", "patch"), True, self.dtype)

    def __call__(
        self,
        hidden: Hidden,
        visible: Int[Array, "B K"],
        rank: Int[Array, "B P"],
        grid: Grid,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B P F"]:
        """The pixels of each patch of a grid, float32, from the encoder's class token and visible patches."""
        x = self.projection(hidden)
        mask_token = all_gather_fsdp(self.mask_token, ("embed",), self.dtype)
        patches = fill_hidden(x[:, 1:], mask_token, visible, rank)
        special, positions = self.position(grid)
        x = jnp.concatenate([x[:, :1] + special[None], patches + positions[None]], axis=1)
        x = self.stack(x, Context(), deterministic=deterministic)
        return self.prediction(x[:, 1:]).astype(jnp.float32)


class MAE(ImageTransformer):
    """The encoder, whose parameters are a ViT's, and the decoder."""

    config: MAEConfig

    def setup(self) -> None:
        self.setup_encoder()
        self.decoder = Decoder(self.config, self.dtype, self.remat)

    def __call__(
        self, images: Images, noise: Float[Array, "B P"], *, deterministic: bool = True
    ) -> tuple[Float[Array, "B P F"], Float[Array, "B P"]]:
        """See `reconstruct`."""
        return self.reconstruct(images, noise, deterministic=deterministic)

    def reconstruct(
        self, images: Images, noise: Float[Array, "B P"], *, deterministic: bool = True
    ) -> tuple[Float[Array, "B P F"], Float[Array, "B P"]]:
        """What the decoder makes of the patches that the encoder sees: those with the least `noise`.

        Args:
          images: normalized pixels.
          noise: a number for each patch, row by row; uniform noise hides every set of patches equally often.

        Returns:
          The pixels of each patch, normalized by its mean and deviation if `norm_pix`, as float32; and 1 where a patch
          was hidden, 0 where it was seen.
        """
        c = self.config
        c.check_images(images)
        grid = c.grid_of(images.shape[1:3])
        num_visible = c.num_visible(grid)
        order = jnp.argsort(noise, axis=1)
        rank, visible = jnp.argsort(order, axis=1), order[:, :num_visible]
        x = self.dropout(self.embeddings(images, visible), deterministic=deterministic)
        hidden = self.encoder(x, Context(), deterministic=deterministic)
        predicted = self.decoder(hidden, visible, rank, grid, deterministic=deterministic)
        return predicted, (rank >= num_visible).astype(jnp.float32)


@jax.custom_vjp
def fill_hidden(
    tokens: Float[Array, "B K D"], mask_token: Float[Array, "D"], visible: Int[Array, "B K"], rank: Int[Array, "B P"]
) -> Float[Array, "B P D"]:
    """The visible tokens in their places among all patches, and `mask_token` in the others.

    The gradient gathers too, where JAX's own would scatter.

    Args:
      visible: the patch of each token.
      rank: of each patch its token, K or more where it is hidden.
    """
    num_visible = tokens.shape[1]
    seen = jnp.take_along_axis(tokens, jnp.minimum(rank, num_visible - 1)[..., None], axis=1)
    return jnp.where((rank < num_visible)[..., None], seen, mask_token[None, None])


def _fill_hidden_forward(tokens: Array, mask_token: Array, visible: Array, rank: Array) -> tuple[Array, Any]:
    return fill_hidden(tokens, mask_token, visible, rank), (visible, rank)


def _fill_hidden_backward(saved: Any, gradient: Array) -> tuple[Array, Array, None, None]:
    visible, rank = saved
    hidden = (rank >= visible.shape[1])[..., None]
    of_mask = jnp.where(hidden, gradient, 0).sum((0, 1), dtype=jnp.float32).astype(gradient.dtype)
    return jnp.take_along_axis(gradient, visible[..., None], axis=1), of_mask, None, None


fill_hidden.defvjp(_fill_hidden_forward, _fill_hidden_backward)


def predicted_images(
    predicted: Float[Array, "B P F"], images: Images, patch_size: int, norm_pix: bool
) -> Float[Array, "B H W C"]:
    """What `reconstruct` predicts as normalized pixels of whole pictures.

    With `norm_pix` each patch gets the mean and the (unbiased) standard deviation back that it has in `images`, which
    the model does not know.
    """
    if norm_pix:
        patches = patchify(images, patch_size).astype(jnp.float32)
        std = jnp.sqrt(patches.var(-1, ddof=1, keepdims=True) + 1e-6)
        predicted = predicted * std + patches.mean(-1, keepdims=True)
    return unpatchify(predicted, images.shape[1:3], patch_size)


def mae_loss(
    predicted: Float[Array, "B P F"], images: Images, mask: Float[Array, "B P"], norm_pix: bool
) -> Float[Array, "B P"]:
    """The mean squared error of each hidden patch, 0 for the others; a picture's loss is their sum over mask.sum().

    With `norm_pix` the targets are the pixels of a patch minus their mean, over their (unbiased) standard deviation
    (He et al. 2022, section 3).
    """
    target = patchify(images, math.isqrt(predicted.shape[-1] // images.shape[-1])).astype(jnp.float32)
    if norm_pix:
        centred = target - target.mean(-1, keepdims=True)
        target = centred / jnp.sqrt(target.var(-1, ddof=1, keepdims=True) + 1e-6)
    return ((predicted.astype(jnp.float32) - target) ** 2).mean(-1) * mask


PRESETS: dict[str, MAEConfig] = {
    f"mae-{size}": MAEConfig(patch_size=14 if size == "h" else 16, **SIZES[size]) for size in ("b", "l", "h")
}
"""The published sizes, encoder and decoder: `mae-b`, `mae-l`, `mae-h`."""
