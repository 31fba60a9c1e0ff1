"""Programs under test: compiled, and what they are made of."""

import functools
from collections.abc import Iterator
from typing import Any

import jax

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
