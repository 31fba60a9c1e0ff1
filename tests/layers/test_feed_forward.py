import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import ACTIVATIONS, Activation, FeedForward, LayerConfig
from t5x_lite.validation import Validated

REFERENCES = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_activations(name):
    x = np.linspace(-4, 4, 101).astype(np.float32)
    np.testing.assert_allclose(ACTIVATIONS[name](jnp.asarray(x)), REFERENCES[name](x.astype(np.float64)), atol=1e-6)


def test_gelu_is_rounded_once_in_bfloat16():
    x = jnp.linspace(-4, 4, 1001).astype(jnp.bfloat16)
    exact = REFERENCES["gelu"](np.asarray(x, np.float64))
    np.testing.assert_allclose(np.asarray(ACTIVATIONS["gelu"](x), np.float64), exact, rtol=2**-8, atol=1e-6)


def test_every_activation_has_a_reference_and_others_are_refused():
    assert set(REFERENCES) == set(ACTIVATIONS)

    @dataclasses.dataclass(frozen=True)
    class Config(Validated):
        activation: Activation

    with pytest.raises(InputError, match="activation='swiglu'.*relu"):
        Config("swiglu")


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward(make_params, gated, use_bias):
    module = FeedForward(LayerConfig(1, 1, 5, "silu", gated, use_bias))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32))
    params = make_params(module, 0, x)

    def dense(x, name):
        weights = jax.tree.map(np.asarray, params[name])
        return x @ weights["kernel"] + (weights["bias"] if use_bias else 0.0)

    inner = np.asarray(x)
    if gated:
        hidden = REFERENCES["silu"](dense(inner, "gate")) * dense(inner, "wi")
    else:
        hidden = REFERENCES["silu"](dense(inner, "wi"))
    np.testing.assert_allclose(module.apply({"params": params}, x), dense(hidden, "wo"), atol=1e-5)


def test_dropout_is_on_the_hidden_units(make_params):
    module = FeedForward(LayerConfig(1, 1, 40, use_bias=False, mlp_dropout_rate=0.5))
    x = jnp.ones((1, 1, 3))
    params = make_params(module, 0, x)
    # With every hidden unit 1 and an output of ones, the output counts the units kept, each doubled.
    params = {"wi": {"kernel": jnp.full((3, 40), 1 / 3)}, "wo": {"kernel": jnp.ones((40, 3))}}
    rngs = {"dropout": jax.random.key(0)}
    kept = module.apply({"params": params}, x, deterministic=False, rngs=rngs)
    assert 0 < kept[0, 0, 0] < 80
    assert kept[0, 0, 0] == pytest.approx(2 * round(float(kept[0, 0, 0]) / 2), abs=1e-4)
    assert module.apply({"params": params}, x)[0, 0, 0] == pytest.approx(40, abs=1e-4)
