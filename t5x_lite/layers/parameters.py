"""How layers declare their parameters."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from flax.errors import ScopeParamShapeError
from jaxtyping import Array, Float


def parameter(
    module: nn.Module, name: str, init: Callable[..., Array], axes: tuple[str | None, ...], shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The parameter `name` of a module, float32 when new: `init` makes it, with a logical axis for each dimension.

    `nn.Module.param` traces `init` at every call, to compare shapes: a tenth of the time it takes to trace a model.

    Raises:
        ScopeParamShapeError: The module was given a parameter of another shape.
    """
    if not module.has_variable("params", name):
        return module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32)
    value = nn.unbox(module.get_variable("params", name))
    if jnp.shape(value) != shape:
        raise ScopeParamShapeError(name, "/" + "/".join(module.path), jnp.shape(value), shape)
    return value
