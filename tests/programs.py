"""Programs under test: compiled, and what they are made of."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t5x_lite.models import abstract_params
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import corrupt_rows

corrupt = jax.jit(corrupt_rows, static_argnums=0)
"""`corrupt_rows`, compiled: one operation after another takes several times as long."""


@functools.partial(jax.jit, static_argnums=0, static_argnames="method")
def apply(module: Any, params: Any, *args: Any, method: Any = None, **options: Any) -> Any:
    """What a module or a method of it gives, compiled."""
    return module.apply({"params": params}, *args, method=method, **options)


def arrays_in(jaxpr: Any) -> Iterator[jax.core.ShapedArray]:
    """Every array that a jaxpr computes, those of its loops and calls too."""
    for equation in jaxpr.eqns:
        yield from (out.aval for out in equation.outvars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from arrays_in(inner)


def like_new(config: ModelConfig, seed: int = 0) -> Any:
    """Parameters about as large as new ones, drawn by NumPy: the program that makes those takes a second to compile."""
    random = np.random.default_rng(seed)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        name = path[-1].key
        if name in ("scale", "variance"):
            value = np.ones(leaf.shape)
        elif name in ("bias", "mean"):
            value = np.zeros(leaf.shape)
        else:
            spread = 0.02 if "embedding" in name or leaf.ndim < 2 else leaf.shape[-2] ** -0.5
            value = random.normal(scale=spread, size=leaf.shape)
        return jnp.asarray(value, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, nn.unbox(abstract_params(config)))
