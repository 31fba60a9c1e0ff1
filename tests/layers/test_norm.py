import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.dense import make_norm

X = np.random.default_rng(0).normal(1.0, 3.0, size=(2, 3, 5)).astype(np.float32)
SCALE = np.linspace(0.5, 2.0, 5).astype(np.float32)
BIAS = np.linspace(-1.0, 1.0, 5).astype(np.float32)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_rms_norm(epsilon):
    got = make_norm("rms", epsilon=epsilon, dtype=jnp.float32).apply({"params": {"scale": SCALE}}, jnp.asarray(X))
    np.testing.assert_allclose(got, X / np.sqrt((X**2).mean(-1, keepdims=True) + epsilon) * SCALE, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_layer_norm(epsilon):
    params = {"scale": SCALE, "bias": BIAS}
    got = make_norm("layer", epsilon=epsilon, dtype=jnp.float32).apply({"params": params}, jnp.asarray(X))
    centred = X - X.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * SCALE + BIAS
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_statistics_are_float32_under_bfloat16(kind):
    # In bfloat16 arithmetic the squares of 300 values of 100.5 would not add up.
    x = jnp.asarray(np.random.default_rng(0).normal(100.0, 1.0, size=(1, 1, 300)), jnp.bfloat16)
    norm = make_norm(kind, epsilon=1e-6, dtype=jnp.bfloat16)
    params = {"params": {"scale": jnp.ones(300)} | ({"bias": jnp.zeros(300)} if kind == "layer" else {})}
    got = norm.apply(params, x)
    exact = np.asarray(x, np.float64)
    exact -= exact.mean() if kind == "layer" else 0.0
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(got, np.float64), exact / np.sqrt((exact**2).mean()), rtol=0.02, atol=0.02)
