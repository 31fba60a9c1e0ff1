"""Programs under test: compiled, and what they are made of."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from t5x_lite.models import abstract_params
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import corrupt_rows
from t5x_lite.training.step import Program, TrainState

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
    return jax.device_put(_draw(nn.unbox(abstract_params(config)), seed))


def new_state(program: Program, seed: int = 0) -> TrainState:
    """A state before the first step, whose parameters are `like_new`; what is frozen, is zero."""
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), program.abstract_state)
    params = _draw(state.params, seed)
    average = None if state.average is None else params
    state = state.replace(params=params, average=average, finite=np.bool_(True))
    return jax.device_put(state, program.state_shardings)


def _draw(shapes: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)

    def draw(path: tuple, leaf: Any) -> np.ndarray:
        name = path[-1].key
        if name in ("scale", "variance"):
            value = np.ones(leaf.shape)
        elif name in ("bias", "mean"):
            value = np.zeros(leaf.shape)
        else:
            spread = 0.02 if "embedding" in name or len(leaf.shape) < 2 else leaf.shape[-2] ** -0.5
            value = random.normal(scale=spread, size=leaf.shape)
        return value.astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)
