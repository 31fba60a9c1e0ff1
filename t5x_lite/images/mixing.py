"""Pictures mixed with others of their batch: mixup and cutmix."""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from t5x_lite.images.geometry import inside_pixels
from t5x_lite.validation import Range, Share, Validated

Alpha = Annotated[float, Range(ge=0, le=2, remedy="choose e.g. 0.8, or 0 to turn it off")]
_ATTEMPTS = 128  # with alpha at 2 one of six is accepted


@dataclass(frozen=True)
class Mixing(Validated):
    """Each picture of a batch mixed with the one before it, one way and one share for the whole batch.

    With both alphas one of the two is drawn, as in timm; Touvron et al. 2021, table 9, have mixup 0.8 and cutmix 1.
    """

    mixup: Alpha = 0.0
    """Weighted means of two pictures; the weight is of Beta(mixup, mixup) (Zhang et al. 2018); 0: none."""
    cutmix: Alpha = 0.0
    """A box of one in the other; the share outside is of Beta(cutmix, cutmix) (Yun et al. 2019); 0: none."""
    cutmix_share: Share = 0.5
    """Of the batches, those with cutmix where there are both."""
    probability: Share = 1.0
    """The share of batches that are mixed at all."""

    def __bool__(self) -> bool:
        return bool(self.mixup or self.cutmix)

    def __call__(
        self, key: Key[Array, ""], images: Float[Array, "B H W C"]
    ) -> tuple[Float[Array, "B H W C"], Float[Array, ""]]:
        """(the mixed pictures, the share of each picture in its own place); `jnp.roll(x, 1, axis=0)` are the partners.

        >>> images, share = Mixing(mixup=1.0)(jax.random.key(0), jnp.arange(2.0).reshape(2, 1, 1, 1))
        >>> bool(jnp.allclose(images.ravel(), jnp.stack([1 - share, share])))
        True
        """
        use_key, switch_key, mixup_key, cutmix_key = jax.random.split(key, 4)
        is_cutmix = jax.random.uniform(switch_key) < (self.cutmix_share if self.mixup else 1.0) * bool(self.cutmix)
        _, height, width, _ = images.shape
        if self.cutmix:
            pasted, share = cutmix_box(cutmix_key, self.cutmix, height, width)
        else:
            pasted, share = jnp.zeros((height, width), bool), jnp.float32(1.0)
        if self.mixup:
            share = jnp.where(is_cutmix, share, random_beta(mixup_key, self.mixup))
        share = jnp.where(jax.random.uniform(use_key) < self.probability, share, 1.0)
        weights = jnp.where(is_cutmix & (share < 1.0), jnp.where(pasted, 0.0, 1.0), share)[None, :, :, None]
        return weights * images + (1.0 - weights) * jnp.roll(images, 1, axis=0), share


def cutmix_box(key: Key[Array, ""], alpha: float, height: int, width: int) -> tuple[Array, Float[Array, ""]]:
    """(the pixels that are the partner's, the share of the others), the box as in Yun et al. 2019, equation 2.

    Its sides are sqrt(1 - lambda) of the picture's, its center is uniform, and what lies outside is cut off: the share
    is that of the box which remains.
    """
    beta_key, center_key = jax.random.split(key)
    ratio = jnp.sqrt(1.0 - random_beta(beta_key, alpha))
    sizes = jnp.array([height, width])
    sides = jnp.floor(sizes * ratio).astype(jnp.int32)
    centers = jax.random.randint(center_key, (2,), 0, sizes)
    starts, ends = (jnp.clip(edge, 0, sizes) for edge in (centers - sides // 2, centers + sides // 2))
    pasted = inside_pixels(starts, ends, height, width)
    return pasted, 1.0 - jnp.prod(ends - starts) / (height * width)


def random_beta(key: Key[Array, ""], alpha: float) -> Float[Array, ""]:
    """A number of Beta(alpha, alpha), alpha in (0, 2] (Jöhnk 1964).

    Of 128 pairs the first that is accepted, where `jax.random.beta` loops until one is: the time of a step is known
    before it runs.
    """
    x, y = jnp.log(jax.random.uniform(key, (2, _ATTEMPTS), minval=1e-37)) / alpha
    is_accepted = jnp.logaddexp(x, y) <= 0.0
    is_first = is_accepted & (jnp.cumsum(is_accepted) == 1)
    return jnp.where(is_first, jax.nn.sigmoid(x - y), 0.0).sum()
