"""How a Transformer reads pictures: patches, their embedding, and positions in two dimensions.

P is the number of patches, row by row; F = p * p * C the numbers in one, p its side, C the channels of a picture.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.layers.dense import Dense
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import all_gather_fsdp, constrain_sharding

Grid = tuple[int, int]
"""Rows and columns of patches."""
PatchPositions = Literal["learned", "sincos"]

POSITION_AXES = ("patch_positions", "embed")
"""Not those of a text's positions: no optimizer decays a table with these axes."""
_CUBIC = -0.75  # the slope of PyTorch's cubic kernel


def patchify(images: Float[Array, "B H W C"], patch_size: int) -> Float[Array, "B P F"]:
    """The pixels of each whole patch, row by row, channels last.

    >>> patchify(jnp.arange(8.0).reshape(1, 2, 4, 1), 2).tolist()
    [[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]]
    """
    batch_size, height, width, channels = images.shape
    rows, columns = height // patch_size, width // patch_size
    whole = images[:, : rows * patch_size, : columns * patch_size]
    pixels = whole.reshape(batch_size, rows, patch_size, columns, patch_size, channels)
    return pixels.swapaxes(2, 3).reshape(batch_size, rows * columns, -1)


def unpatchify(patches: Float[Array, "B P F"], image_size: tuple[int, int], patch_size: int) -> Float[Array, "B H W C"]:
    """Pictures of this height and width from the pixels of their patches: the inverse of `patchify`."""
    rows, columns = (size // patch_size for size in image_size)
    pixels = patches.reshape(len(patches), rows, columns, patch_size, patch_size, -1)
    return pixels.swapaxes(2, 3).reshape(len(patches), *image_size, -1)


def sincos_positions(grid: Grid, embed_dim: int) -> Float[np.ndarray, "P D"]:
    """Sines and cosines of the column, then of the row (He et al. 2022, in the order of their code); D is 4 times n.

    >>> sincos_positions((2, 1), 4).astype(float).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.841, 0.54]]
    """
    rates = 10_000.0 ** (-np.arange(embed_dim // 4) / (embed_dim // 4))
    row, column = np.indices(grid).reshape(2, -1, 1) * rates
    return np.concatenate([np.sin(column), np.cos(column), np.sin(row), np.cos(row)], axis=1).astype(np.float32)


def bicubic_matrix(size: int, new_size: int) -> Float[np.ndarray, "N M"]:
    """The matrix [new_size, size] that interpolates along one axis as PyTorch's bicubic without antialias does.

    >>> bicubic_matrix(2, 4).astype(float).round(3).tolist()[1]
    [0.773, 0.227]
    """
    centre = (np.arange(new_size) + 0.5) * (size / new_size) - 0.5
    left, matrix = np.floor(centre).astype(int), np.zeros((new_size, size))
    for offset in range(-1, 3):
        distance = np.abs(centre - left - offset)
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = _CUBIC * (((distance - 5) * distance + 8) * distance - 4)
        # What lies outside counts as the outermost.
        np.add.at(matrix, (np.arange(new_size), (left + offset).clip(0, size - 1)), np.where(distance <= 1, near, far))
    return matrix.astype(np.float32)


def resize_positions(table: Float[Any, "P D"], grid: Grid, new_grid: Grid) -> Float[Any, "_ D"]:
    """A table of positions for another grid, interpolated in both directions (Dosovitskiy et al. 2021, section 3.2).

    Those of the same grid are what they were; an array of NumPy stays one.
    """
    if grid == new_grid:
        return table
    module = np if isinstance(table, np.ndarray) else jnp
    rows, columns = (bicubic_matrix(*sizes) for sizes in zip(grid, new_grid, strict=True))
    resized = module.einsum("ih,jw,hwd->ijd", rows, columns, table.reshape(*grid, -1), optimize="optimal")
    return resized.reshape(math.prod(new_grid), -1)


class PatchPositionTable(nn.Module):
    """A table of positions `[T + P, D]`, those of T special tokens first, as checkpoints have it.

    Sines and cosines are a table too, zero for special tokens, which comes and goes with the parameters: no gradient
    reaches it.
    """

    grid: Grid
    embed_dim: int
    num_special: int
    positions: PatchPositions
    dtype: Any = jnp.float32
    learned_init: nn.initializers.Initializer = nn.initializers.normal(0.02)

    def setup(self) -> None:
        def sincos(key: Array, shape: tuple[int, int], dtype: Any) -> Float[Array, "_ D"]:
            return jnp.pad(jnp.asarray(sincos_positions(self.grid, shape[1]), dtype), ((self.num_special, 0), (0, 0)))

        init = sincos if self.positions == "sincos" else self.learned_init
        shape = (self.num_special + math.prod(self.grid), self.embed_dim)
        self.embedding = parameter(self, "embedding", init, POSITION_AXES, shape)

    def __call__(self, grid: Grid) -> tuple[Float[Array, "T D"], Float[Array, "P D"]]:
        """(the positions of special tokens, those of the patches of a grid)."""
        table = all_gather_fsdp(self.embedding, POSITION_AXES, jnp.float32)
        if self.positions == "sincos":
            table = jax.lax.stop_gradient(table)
        special, patches = table[: self.num_special], table[self.num_special :]
        return special.astype(self.dtype), resize_positions(patches, self.grid, grid).astype(self.dtype)


class PatchEmbeddings(nn.Module):
    """Patches through one matrix, a vector for each position, and special tokens in front (Dosovitskiy et al. 2021)."""

    grid: Grid
    """Of the positions; those of pictures of another size are interpolated."""
    patch_size: int
    embed_dim: int
    special_tokens: tuple[str, ...] = ("class_token",)
    """The names of T learned vectors."""
    positions: PatchPositions = "learned"
    special_positions: bool = True
    """Whether special tokens have positions too."""
    dtype: Any = jnp.float32
    use_bias: bool = True
    """Of the matrix."""
    vector_init: nn.initializers.Initializer = nn.initializers.normal(0.02)
    """Of special tokens and learned positions."""

    def setup(self) -> None:
        self.patch = Dense(self.embed_dim, ("patch", "embed"), self.use_bias, self.dtype)
        init, size = self.vector_init, self.embed_dim
        self.special = [parameter(self, name, init, ("embed",), (size,)) for name in self.special_tokens]
        num_special = len(self.special_tokens) if self.special_positions else 0
        options = (self.positions, self.dtype, self.vector_init)
        self.position = PatchPositionTable(self.grid, self.embed_dim, num_special, *options)

    def __call__(
        self, images: Float[Array, "B H W C"], visible: Int[Array, "B K"] | None = None
    ) -> Float[Array, "B L D"]:
        """Special tokens and patches; with `visible`, those patches alone, in that order."""
        size = self.patch_size
        patches = patchify(images, size)
        special, positions = self.position((images.shape[1] // size, images.shape[2] // size))
        if visible is None:
            x = self.patch(patches) + positions[None]
        else:
            # Pixels have no gradient, so that the backward pass does not scatter.
            patches = jnp.take_along_axis(patches, visible[..., None], axis=1)
            x = self.patch(patches) + positions[visible]
        if self.special_tokens:
            front = jnp.stack([all_gather_fsdp(vector, ("embed",), self.dtype) for vector in self.special])
            front = front + special if self.special_positions else front
            x = jnp.concatenate([jnp.broadcast_to(front, (len(x), *front.shape)), x], axis=1)
        return constrain_sharding(x, "activation_batch", "activation_length", "activation_embed")
