"""Keys and values of self-attention projected along the length (Wang et al. 2020, Linformer)."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.decoding_cache import KeyValue
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import constrain_sharding
from t5x_lite.validation import Positive, Validated


@dataclass(frozen=True)
class Linformer(Validated):
    """Self-attention over `projected_length` weighted sums of the keys and of the values, in time and memory linear in
    the length of rows (Wang et al. 2020, equation 7)."""

    projected_length: Positive = 256
    """Of keys and of values: k."""
    sharing: Literal["none", "headwise", "key_value", "layerwise"] = "layerwise"
    """What has projections of its own (section 4): keys and values of each head ("none"), keys and values of each layer
    ("headwise"), each layer ("key_value"); or one projection serves all."""

    def make(self, module: nn.Module, num_heads: int, max_length: int) -> Float[Array, "*of k N"]:
        """The parameter of a module: by key and value, and by head, where they have projections of their own.

        The variance is 1 / N, by which the sum of N independent vectors is as large as one of them.
        """
        sizes = {"none": {"key_value": 2, "position_heads": num_heads}, "headwise": {"key_value": 2}}
        shape = sizes.get(self.sharing, {}) | {"projected_positions": self.projected_length, "positions": max_length}
        init = nn.initializers.normal(max_length**-0.5)
        return parameter(module, "length_projection", init, tuple(shape), tuple(shape.values()))


def project_length(
    key_value: KeyValue, mask: Mask, projection: Float[Array, "*of k N"], dtype: Any
) -> tuple[dict[str, Float[Array, "B k H K"]], Mask]:
    """(keys and values [B k H K], the mask of those that are sums of tokens).

    Args:
      key_value: [B M H K], for rows of M <= N tokens.
      mask: which of them are no padding; a sum of padding alone is seen by none.
      projection: what `Linformer.make` makes; of shorter rows the first M columns count.
    """
    length = key_value["key"].shape[1]
    matrices = projection[..., :length].astype(dtype)
    valid = None
    if mask.valid is not None:
        valid = _sums_of_tokens(projection[..., :length], mask.valid)
        kept = mask.valid[:, :, None, None]
        key_value = {name: jnp.where(kept, x, jnp.zeros((), x.dtype)) for name, x in key_value.items()}
    projected = {}
    for number, (name, x) in enumerate(key_value.items()):
        matrix = matrices[number] if matrices.ndim > 2 else matrices
        x = jnp.einsum("hkm,bmhd->bkhd" if matrix.ndim == 3 else "km,bmhd->bkhd", matrix, x)
        projected[name] = constrain_sharding(
            x, "activation_batch", "activation_memory", "activation_heads", "activation_kv"
        )
    return projected, replace(mask, valid=valid)


def _sums_of_tokens(projection: Float[Array, "*of k M"], valid: Bool[Array, "B M"]) -> Bool[Array, "B k"]:
    """Whether any projection gives a token of the row a weight in each sum."""
    weighs = (projection != 0).reshape(-1, *projection.shape[-2:]).any(axis=0)
    return (weighs[None] & valid[:, None]).any(axis=-1)
