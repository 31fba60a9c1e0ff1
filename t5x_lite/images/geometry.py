"""Where the pixels of a picture come from: boxes, resampling by two matrices, shears and rotations.

A picture is three planes here, [C H W], whose rows fill a TPU's registers; its numbers are those of 8 bits, 0 to 255.
Boxes are (top, left, height, width) as shares of a picture's height and width.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Bool, Float, Int, Key

Interpolation = Literal["bilinear", "bicubic"]
Planes = Float[Array, "C H W"]

GREY = 128.0
"""What RandAugment's warps leave empty (Cubuk et al. 2020, in their code)."""
_ATTEMPTS = 10


class Box(NamedTuple):
    """A box as shares of the height and width of a picture."""

    top: Float[Array, ""]
    left: Float[Array, ""]
    height: Float[Array, ""]
    width: Float[Array, ""]


def random_box(
    key: Key[Array, ""],
    size: Int[Array, "2"] | Float[Array, "2"],
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> tuple[Box, Bool[Array, ""]]:
    """A box of random area and aspect inside a picture, and whether one was found (Szegedy et al. 2015, section 6).

    The area is uniform in `area`, as a share of the picture's, and the logarithm of width / height uniform in that of
    `aspect`. Ten are drawn and the first that fits is taken, as torchvision does; without one the box is empty.

    Args:
      size: the picture's height and width, to which `aspect` refers.
    """
    sizes_key, offsets_key = jax.random.split(key)
    low, high = math.log(aspect[0]), math.log(aspect[1])
    draws = jax.random.uniform(sizes_key, (2, _ATTEMPTS))
    areas = area[0] + (area[1] - area[0]) * draws[0]
    ratio = jnp.exp(low + (high - low) * draws[1]) * size[0] / size[1]  # of the shares
    sides = jnp.sqrt(jnp.stack([areas / ratio, areas * ratio]))
    fits = (sides <= 1.0).all(axis=0)
    is_first = fits & (jnp.cumsum(fits) == 1)
    height, width = jnp.where(is_first, sides, 0.0).sum(axis=1)
    top, left = jax.random.uniform(offsets_key, (2,)) * (1.0 - jnp.stack([height, width]))
    return Box(top, left, height, width), fits.any()


def random_crop(
    key: Key[Array, ""],
    size: Int[Array, "2"] | Float[Array, "2"],
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> Box:
    """`random_box`; where none was found, the largest centered box whose aspect is allowed."""
    box, found = random_box(key, size, area, aspect)
    picture = size[1] / size[0]
    wanted = jnp.clip(picture, *aspect)
    whole = centered_box(jnp.minimum(picture / wanted, 1.0), jnp.minimum(wanted / picture, 1.0))
    return Box(*(jnp.where(found, one, other) for one, other in zip(box, whole, strict=True)))


def centered_box(height: Float[Array, ""], width: Float[Array, ""]) -> Box:
    return Box((1.0 - height) / 2, (1.0 - width) / 2, height, width)


def center_crop(size: Int[Array, "2"] | Float[Array, "2"], image_size: tuple[int, int], resize: int) -> Box:
    """The center of a picture, [image_size] of its pixels once its shorter side is scaled to `resize`.

    Of a rectangle `resize` counts for its shorter side: the box is the largest of its aspect that the picture has,
    smaller by min(image_size) / resize.

    >>> [float(side) for side in center_crop(jnp.array([100, 200]), (7, 7), 8)]
    [0.0625, 0.28125, 0.875, 0.4375]
    """
    scale = jnp.minimum(size[0] / image_size[0], size[1] / image_size[1]) * (min(image_size) / resize)
    return centered_box(image_size[0] * scale / size[0], image_size[1] * scale / size[1])


def random_place(key: Key[Array, ""], box: Box) -> Box:
    """A box of these sides anywhere in the picture."""
    top, left = jax.random.uniform(key, (2,)) * (1.0 - jnp.stack([box.height, box.width]))
    return Box(top, left, box.height, box.width)


def resample(
    image: Float[Array, "H W C"],
    box: Box,
    image_size: tuple[int, int],
    interpolation: Interpolation,
    flip: Bool[Array, ""] | bool = False,
    filled: Int[Array, "2"] | tuple[int, int] | None = None,
) -> Float[Array, "C h w"]:
    """A box of a picture scaled to height and width `image_size`, mirrored where `flip`, as two matrix products.

    With antialias: where it shrinks, the kernel is as much wider, as in Pillow's `resize(size, resample, box)` and
    `jax.image.scale_and_translate`. Pixels around the box count, those around the picture do not exist.

    Args:
      filled: the height and width to which it is scaled instead, in the upper left of the result; its last row and
        column are repeated beyond.
    """
    height, width = image_size if filled is None else filled
    rows = _weights(box.top, box.height, image.shape[0], jnp.arange(image_size[0]), height, interpolation)
    numbers = jnp.arange(image_size[1])
    numbers = jnp.where(flip, width - 1 - numbers, numbers)
    columns = _weights(box.left, box.width, image.shape[1], numbers, width, interpolation)
    precise = jax.lax.Precision.HIGHEST
    scaled = jnp.einsum("hy,yxc->chx", rows, image, precision=precise)
    return jnp.einsum("wx,chx->chw", columns, scaled, precision=precise)


def _weights(
    start: Float[Array, ""],
    extent: Float[Array, ""],
    size: int,
    numbers: Int[Array, "N"],
    new_size: int | Int[Array, ""],
    interpolation: Interpolation,
) -> Float[Array, "N _"]:
    """The rows `numbers` of the matrix [new_size, size] that scales the part from `start`, `extent` long (shares of
    size), to new_size."""
    scale = extent * size / new_size
    centers = start * size + (jnp.clip(numbers, 0, new_size - 1) + 0.5) * scale
    distances = jnp.abs(centers[:, None] - (jnp.arange(size) + 0.5)[None, :]) / jnp.maximum(scale, 1.0)
    if interpolation == "bilinear":
        weights = jnp.maximum(1.0 - distances, 0.0)
    else:  # Keys 1981 with a = -0.5
        near = (1.5 * distances - 2.5) * distances * distances + 1.0
        far = ((-0.5 * distances + 2.5) * distances - 4.0) * distances + 2.0
        weights = jnp.where(distances < 1.0, near, jnp.where(distances < 2.0, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


class Warp(NamedTuple):
    """A warp of RandAugment as Pillow's `Image.transform` has it: where the pixel of each position comes from.

    All but one are 0. The angle is about the center, the shears are from the top left corner.
    """

    angle: Float[Array, ""]
    """Counterclockwise, in radians."""
    shear_x: Float[Array, ""]
    """x + shear_x y, and so on."""
    shear_y: Float[Array, ""]
    shift_x: Float[Array, ""]
    """x + shift_x, in pixels."""
    shift_y: Float[Array, ""]


def warp(planes: Planes, by: Warp, most_radians: float) -> Planes:
    """A rotated, sheared or shifted picture of whole numbers, its pixels the nearest ones, `GREY` where there is none.

    Three shears, along x, y and x, are a rotation (Paeth 1986), and each moves whole rows or columns, which takes
    selections and products, where a rotation in one step looks up every pixel. Shears and shifts are exact; pixels of a
    rotation come from at most one and a half beside.

    Args:
      most_radians: no angle is larger.
    """
    _, height, width = planes.shape
    margin = math.ceil(math.tan(most_radians / 2) * height / 2)  # the first shear moves the corners out of the picture
    planes = planes.astype(jnp.bfloat16)  # which has every whole number up to 256
    planes = jnp.pad(planes, ((0, 0), (0, 0), (margin, margin)), constant_values=GREY)
    y, x = jnp.arange(height) + 0.5, jnp.arange(-margin, width + margin) + 0.5
    along_x = -jnp.tan(by.angle / 2) * (y - height / 2)
    along_y = jnp.sin(by.angle) * (x - width / 2)
    planes = _shift(planes, along_x + by.shear_x * y + by.shift_x, 2)
    planes = _shift(planes, along_y + by.shear_y * x + by.shift_y, 1)
    planes = _shift(planes, along_x, 2)
    return planes[:, :, margin : margin + width].astype(jnp.float32)


def _shift(
    planes: BFloat16[Array, "C H W"], shifts: Float[Array, "_"], axis: Literal[1, 2]
) -> BFloat16[Array, "C H W"]:
    """Each row (axis 2) or column (axis 1) moved: the pixel at i is what was at i + shift, rounded.

    All rows move by 1, 2, 4, ... or stay, one bit of their shifts at a time. A move is a product with a permutation,
    which is exact; on a TPU it takes a tenth of the time of slices.
    """
    size = planes.shape[axis]
    shifts = jnp.floor(shifts + 0.5).astype(jnp.int32)
    rounds = jnp.expand_dims(jnp.remainder(shifts, size), (0, axis))
    origins = jnp.expand_dims(shifts, axis - 1) + jnp.expand_dims(jnp.arange(size), 2 - axis)
    for bit in range((size - 1).bit_length()):
        # A picture's row times it is the row, rolled to the left.
        rolled = jnp.roll(jnp.eye(size, dtype=planes.dtype), 1 << bit, axis=0)
        moved = jnp.einsum("chx,xw->chw" if axis == 2 else "cyw,yh->chw", planes, rolled)
        planes = jnp.where((rounds >> bit) & 1 == 1, moved, planes)
    return jnp.where(((origins >= 0) & (origins < size))[None], planes, jnp.bfloat16(GREY))


def inside(box: Box, height: int, width: int) -> Bool[Array, "H W"]:
    """The pixels whose centers lie in a box."""
    y, x = (jnp.arange(height) + 0.5) / height, (jnp.arange(width) + 0.5) / width
    rows = (box.top <= y) & (y < box.top + box.height)
    columns = (box.left <= x) & (x < box.left + box.width)
    return rows[:, None] & columns[None, :]


def inside_pixels(starts: Int[Array, "2"], ends: Int[Array, "2"], height: int, width: int) -> Bool[Array, "H W"]:
    """The pixels in rows and columns from `starts` up to before `ends`."""
    y, x = jnp.arange(height), jnp.arange(width)
    return ((starts[0] <= y) & (y < ends[0]))[:, None] & ((starts[1] <= x) & (x < ends[1]))[None, :]
