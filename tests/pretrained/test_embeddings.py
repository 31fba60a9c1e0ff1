import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.pretrained.embeddings import check_layers, check_pooling, choose_layers, pool

OUTPUTS = np.random.default_rng(0).normal(size=(6, 2, 3, 4)).astype(np.float32)
"""Of embeddings and five layers, for two texts of three tokens."""


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("last", OUTPUTS[5]),
        ("second_to_last", OUTPUTS[4]),
        ("sum_last_4", OUTPUTS[2] + OUTPUTS[3] + OUTPUTS[4] + OUTPUTS[5]),
        ("concat_last_4", np.concatenate([OUTPUTS[5], OUTPUTS[4], OUTPUTS[3], OUTPUTS[2]], axis=-1)),
        ("sum_all", OUTPUTS[1:].sum(axis=0)),
        ("mean", OUTPUTS[1:].mean(axis=0)),
        (0, OUTPUTS[0]),
        (2, OUTPUTS[2]),
        (-1, OUTPUTS[5]),
    ],
)
def test_layers(layers, expected):
    check_layers(layers, 5)
    np.testing.assert_allclose(choose_layers(jnp.asarray(OUTPUTS), layers), expected, rtol=1e-6)


def test_pooling_leaves_padding_out():
    vectors, valid = jnp.asarray(OUTPUTS[0]), jnp.array([[True, True, False], [True, True, True]])
    expected = [OUTPUTS[0, 0, :2].mean(axis=0), OUTPUTS[0, 1].mean(axis=0)]
    np.testing.assert_allclose(pool(vectors, valid, "mean"), expected, rtol=1e-6)
    np.testing.assert_array_equal(pool(vectors, valid, "cls"), OUTPUTS[0, :, 0])
    np.testing.assert_array_equal(pool(vectors, valid, "tokens"), OUTPUTS[0])


@pytest.mark.parametrize(
    ("layers", "num_layers", "message"),
    [
        (6, 5, "layers=6 is no layer of this model; choose 0"),
        (-7, 5, "layers=-7"),
        (True, 5, "layers=True is unknown"),
        ("first", 5, "layers='first' is unknown; choose one of last"),
        ("concat_last_4", 3, "needs four layers and this model has 3"),
        ("second_to_last", 1, "needs two layers"),
    ],
)
def test_layers_that_a_model_has_not(layers, num_layers, message):
    with pytest.raises(InputError, match=message):
        check_layers(layers, num_layers)


def test_a_pooling_that_there_is_not():
    with pytest.raises(InputError, match="pooling='max' is unknown; choose one of mean, cls, tokens"):
        check_pooling("max")
