"""Parameters are those that Flax's own `param` makes, and `init` is asked once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.errors import ScopeParamNotFoundError, ScopeParamShapeError
from jax import Array

from t5x_lite.layers.parameters import parameter

AXES = ("embed", "mlp")
KEY, ROWS = jax.random.key(0), jnp.ones((2, 4))
calls: list[tuple[int, ...]] = []


def init(key: Array, shape: tuple[int, ...], dtype: type = jnp.float32) -> Array:
    calls.append(shape)
    return jax.random.normal(key, shape, dtype)


class Ours(nn.Module):
    outputs: int = 3

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return x @ parameter(self, "kernel", init, AXES, (x.shape[-1], self.outputs))


class Flaxes(nn.Module):
    outputs: int = 3

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return x @ self.param("kernel", nn.with_logical_partitioning(init, AXES), (x.shape[-1], self.outputs))


class Outer(nn.Module):
    inner: nn.Module

    def __call__(self, x: Array) -> Array:
        return self.inner(x)


def test_values_and_axes_are_those_of_flax() -> None:
    ours, flaxes = (Outer(inner).init(KEY, ROWS)["params"]["inner"]["kernel"] for inner in (Ours(), Flaxes()))
    assert ours.names == flaxes.names == AXES and ours.value.dtype == jnp.float32
    np.testing.assert_array_equal(ours.value, flaxes.value)


def test_init_is_asked_when_a_parameter_is_made_and_never_again() -> None:
    calls.clear()
    module = Ours()
    variables = module.init(KEY, ROWS)
    expected = ROWS @ variables["params"]["kernel"].value
    np.testing.assert_allclose(module.apply(variables, ROWS), expected)
    np.testing.assert_allclose(module.apply(nn.unbox(variables), ROWS), expected)
    assert calls == [(4, 3)]


def test_another_shape_and_none_at_all_are_errors() -> None:
    variables = {"params": {"inner": {"kernel": jnp.ones((4, 3))}}}
    for inner in (Ours(outputs=5), Flaxes(outputs=5)):
        with pytest.raises(ScopeParamShapeError, match=r'"kernel" in "/inner".*\(4, 5\).*\(4, 3\)'):
            Outer(inner).apply(variables, ROWS)
        with pytest.raises(ScopeParamNotFoundError, match='"kernel"'):
            Outer(inner).apply({"params": {"inner": {"bias": jnp.ones(3)}}}, ROWS)
