"""What the programs under test are made of."""

from collections.abc import Iterator
from typing import Any

import jax


def arrays_in(jaxpr: Any) -> Iterator[jax.core.ShapedArray]:
    """Every array that a jaxpr computes, those of its loops and calls too."""
    for equation in jaxpr.eqns:
        yield from (out.aval for out in equation.outvars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from arrays_in(inner)
