"""Learning rates that fall from the head down to the embeddings, layer by layer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util
from jaxtyping import Float

PAIRED = ("generator", "discriminator")
"""What the two networks of a pair are called in its parameters."""
BELOW_THE_LAYERS = (
    "embeddings",
    "projection",
    "token_embedding",
    "decoder_token_embedding",
    "encoder_embeddings",
    "decoder_embeddings",
    "position",
    "position_bias",
    "encoder_position_bias",
    "decoder_position_bias",
)
"""What the first layer reads, by its name in the model; what is neither this nor a layer is a head."""


def rate_factors(axes: Any, params: Any, decay: float) -> Any:
    """What the learning rate of each parameter is multiplied by (Clark et al. 2020, appendix B, as their code has it).

    A head has 1, layer i of N, counted from 1, decay^(N + 2 - i), embeddings decay^(N + 2): the layer below the head
    is two steps below it. Each stack counts by itself, for every layer of a decoder reads the encoder's output, and
    embeddings lie below the deepest. Layers that share their parameters (ALBERT) are one layer.

    >>> axes = {"encoder": {"layers": {"scale": ("layers", "norm")}}, "embeddings": {"token": ("vocab", "embed")}}
    >>> params = {"encoder": {"layers": {"scale": np.ones((3, 5))}}, "embeddings": {"token": np.ones((9, 5))}}
    >>> factors = rate_factors(axes, params, 0.5)
    >>> factors["encoder"]["layers"]["scale"].tolist(), factors["embeddings"]["token"].tolist()
    ([0.0625, 0.125, 0.25], 0.03125)

    Returns:
      A tree like the parameters: a number, or for the parameters of a stack [N] of them.
    """
    names, leaves = (traverse_util.flatten_dict(tree, sep="/") for tree in (axes, params))
    depths = {
        path: leaves[path].shape[0] if "layers" in names[path] else 1 for path in names if "layers" in path.split("/")
    }
    deepest = max(depths.values(), default=0)

    def factor(path: str) -> Float[np.ndarray, "*N"]:
        if path in depths:
            steps = np.arange(depths[path] + 1, 1, -1)
            return np.asarray(decay ** (steps if "layers" in names[path] else steps[0]), np.float32)
        first, second = (*path.split("/"), "")[:2]
        is_below = (second if first in PAIRED else first) in BELOW_THE_LAYERS
        return np.asarray(decay ** (deepest + 2) if is_below else 1.0, np.float32)

    return traverse_util.unflatten_dict({path: factor(path) for path in names}, sep="/")


def with_layer_rates(
    transformation: optax.GradientTransformation, axes: Any, decay: float
) -> optax.GradientTransformation:
    """The transformation with its updates multiplied by `rate_factors`; its state is the same."""
    if decay == 1.0:
        return transformation

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = transformation.update(updates, state, params)
        factors = rate_factors(axes, updates, decay)
        return jax.tree.map(lambda u, f: u * _along_layers(f, u.ndim).astype(u.dtype), updates, factors), state

    return optax.GradientTransformation(transformation.init, update)


def _along_layers(factor: Float[np.ndarray, "*N"], rank: int) -> Any:
    return jnp.reshape(factor, factor.shape + (1,) * (rank - factor.ndim))
