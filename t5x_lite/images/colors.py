"""Operations on the colors of a picture, as Pillow's `ImageOps` and `ImageEnhance` define them.

A picture is planes [C H W], C of 1 (grey) or 3 (RGB), of whole numbers from 0 to 255 in float32; so are all results.
Nothing is looked up by position: what Pillow does by tables of 256 entries are comparisons and matrix products here.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t5x_lite.images.geometry import Planes

Scalar = Float[Array, ""] | float


def to_bytes(planes: Planes) -> Planes:
    """Rounded down and cut off at 0 and 255, as Pillow's conversions to 8 bits are."""
    return jnp.floor(jnp.clip(planes, 0.0, 255.0))


def grey(planes: Planes) -> Float[Array, "1 H W"]:
    """The luma of ITU-R 601-2, as Pillow's mode L; all numbers below are exact in float32."""
    if planes.shape[0] == 1:
        return planes
    red, green, blue = planes
    return jnp.floor((19595.0 * red + 38470.0 * green + 7471.0 * blue + 32768.0) / 65536.0)[None]


def grayscale(planes: Planes) -> Planes:
    return jnp.broadcast_to(grey(planes), planes.shape)


def invert(planes: Planes) -> Planes:
    return 255.0 - planes


def solarize(planes: Planes, threshold: Scalar) -> Planes:
    """Inverts what is not below the threshold."""
    return jnp.where(planes < threshold, planes, 255.0 - planes)


def solarize_add(planes: Planes, addition: Scalar) -> Planes:
    """Adds to what is below 128 (Cubuk et al. 2020, in their code)."""
    return jnp.where(planes < 128.0, to_bytes(planes + addition), planes)


def posterize(planes: Planes, bits: Scalar) -> Planes:
    """Keeps the upper `bits`, a whole number from 0 to 8."""
    step = jnp.exp2(8.0 - jnp.asarray(bits, jnp.float32))
    step = jnp.floor(step + 0.5)  # TPUs compute powers of two with an error
    return jnp.floor(planes / step) * step


def autocontrast(planes: Planes) -> Planes:
    """Stretches each plane to the range 0 to 255; one of a single value stays."""
    low, high = (function(planes, axis=(1, 2), keepdims=True) for function in (jnp.min, jnp.max))
    # A small addition, since quotients that are whole numbers may come out below them.
    stretched = jnp.floor((planes - low) * 255.0 / jnp.maximum(high - low, 1.0) + 1e-4)
    return jnp.where(high > low, stretched, planes)


def equalize(planes: Planes) -> Planes:
    """Makes the values of each plane as frequent as one another, as `ImageOps.equalize`.

    A value is 16 a + b. The histogram is the product of two matrices that say which a and which b each pixel has, and
    so is the table applied: 32 comparisons a pixel instead of 256, and no look-up.
    """
    # A TPU multiplies float32 in 8 bits of precision, in which 0, 1 and the table are exact.
    high = jnp.floor(planes / 16.0)
    digits = jnp.arange(16.0)[None, :, None, None]
    is_high, is_low = (
        (digit[:, None] == digits).astype(jnp.float32)  # [C 16 H W]
        for digit in (high, planes - 16.0 * high)
    )
    counts = jnp.einsum("cahw,cbhw->cab", is_high, is_low)
    counts = counts.reshape(len(planes), 256).astype(jnp.int32)
    before = jnp.cumsum(counts, axis=1) - counts
    # The last value that occurs counts for nothing.
    last = jnp.where(counts > 0, jnp.arange(256)[None], 0).max(axis=1, keepdims=True)
    step = jnp.where(jnp.arange(256)[None] == last, before, 0).sum(axis=1, keepdims=True) // 255
    table = jnp.minimum((step // 2 + before) // jnp.maximum(step, 1), 255)
    table = table.reshape(-1, 16, 16).astype(jnp.float32)
    of_high = jnp.einsum("cab,cahw->cbhw", table, is_high)
    return jnp.where(step[:, :, None] > 0, jnp.where(is_low == 1, of_high, 0.0).sum(axis=1), planes)


def blend(degenerate: Planes, planes: Planes, factor: Scalar) -> Planes:
    """`degenerate` at factor 0, the picture at 1, more of it beyond."""
    return to_bytes(degenerate + factor * (planes - degenerate))


def color(planes: Planes, factor: Scalar) -> Planes:
    """Saturation: grey at factor 0."""
    return blend(grayscale(planes), planes, factor)


def contrast(planes: Planes, factor: Scalar) -> Planes:
    """The mean luma everywhere at factor 0."""
    return blend(jnp.broadcast_to(jnp.floor(grey(planes).mean() + 0.5), planes.shape), planes, factor)


def brightness(planes: Planes, factor: Scalar) -> Planes:
    """Black at factor 0."""
    return to_bytes(planes * factor)


def sharpness(planes: Planes, factor: Scalar) -> Planes:
    """Smoothed by 3 x 3 pixels at factor 0; the border stays as it is."""
    if min(planes.shape[1:]) < 3:
        return planes
    rows = planes[:, :-2] + planes[:, 1:-1] + planes[:, 2:]
    sums = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4.0 * planes[:, 1:-1, 1:-1]
    smooth = jnp.floor(sums / 13.0 + 0.5)
    inner = jnp.pad(blend(smooth, planes[:, 1:-1, 1:-1], factor), ((0, 0), (1, 1), (1, 1)))
    y, x = jnp.arange(planes.shape[1])[:, None], jnp.arange(planes.shape[2])[None, :]
    edge = (y == 0) | (y == planes.shape[1] - 1) | (x == 0) | (x == planes.shape[2] - 1)
    return jnp.where(edge[None], planes, inner)


def gaussian_blur(planes: Planes, sigma: Scalar) -> Planes:
    """Two products with matrices of a Gaussian of `sigma` pixels; beyond its border a picture goes on as it ends."""
    rows, columns = (_gaussian(size, sigma) for size in planes.shape[1:])
    precise = jax.lax.Precision.HIGHEST
    blurred = jnp.einsum("hy,cyx->chx", rows, planes, precision=precise)
    return to_bytes(jnp.einsum("wx,chx->chw", columns, blurred, precision=precise) + 0.5)


def _gaussian(size: int, sigma: Scalar) -> Float[Array, "_ _"]:
    """[size, size]; the first and the last column stand for all that lies beyond them."""
    positions = jnp.arange(size, dtype=jnp.float32)
    # Through the distribution's own integral, so that what lies beyond the border has a weight in closed form.
    ends = jnp.concatenate([jnp.array([-jnp.inf]), positions[:-1] + 0.5, jnp.array([jnp.inf])])
    below = jax.scipy.stats.norm.cdf((ends[None, :] - positions[:, None]) / sigma)
    return below[:, 1:] - below[:, :-1]


def hue(planes: Planes, turn: Scalar) -> Planes:
    """Turns the hue by `turn` of the circle of colors, -0.5 to 0.5, in HSV; grey stays."""
    if planes.shape[0] == 1:
        return planes
    red, green, blue = planes
    high, low = planes.max(axis=0), planes.min(axis=0)
    chroma = high - low
    safe = jnp.maximum(chroma, 1.0)
    of_red, of_green = jnp.remainder((green - blue) / safe, 6.0), (blue - red) / safe + 2.0
    sector = jnp.where(high == red, of_red, jnp.where(high == green, of_green, (red - green) / safe + 4.0))
    # f(n) = V - V S max(0, min(k, 4 - k, 1)) with k = (n + H / 60) mod 6, n = 5, 3, 1 for red, green and blue.
    turned = sector[None] + 6.0 * turn + jnp.array([5.0, 3.0, 1.0])[:, None, None]
    k = jnp.remainder(turned, 6.0)
    share = jnp.clip(jnp.minimum(k, 4.0 - k), 0.0, 1.0)
    return to_bytes(high[None] - chroma[None] * share + 0.5)
