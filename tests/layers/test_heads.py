import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy.special import erf

from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.layers.heads import Classifier, MaskedLMHead, Pooler, SentencePairHead, SpanBoundaryHead, Transform

B, P, D, E, V = 2, 3, 6, 4, 11
RANDOM = np.random.default_rng(0)
HIDDEN_STATES = RANDOM.normal(size=(B, P, D)).astype(np.float32)
RIGHT = RANDOM.normal(size=(B, P, D)).astype(np.float32)
TABLE = RANDOM.normal(size=(V, E)).astype(np.float32)


def gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def dense(params, x):
    return x @ params["kernel"] + params["bias"]


def transform(params, x):
    x = gelu(dense(params["dense"], x))
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.01)
    return x * params["norm"]["scale"] + params["norm"]["bias"]


def logits(said):
    return said.dense() if isinstance(said, LazyLogits) else said


@pytest.fixture
def applied(make_params):
    """(logits, parameters as NumPy arrays) of a head under random parameters."""

    def apply(module, *args):
        args = [None if x is None else jnp.asarray(x) for x in args]
        params = make_params(module, 0, *args)
        return np.asarray(logits(module.apply({"params": params}, *args))), jax.tree.map(np.asarray, params)

    return apply


@pytest.mark.parametrize("tied", [True, False])
def test_masked_lm_scores_the_transformed_vectors_against_the_table_or_a_kernel(applied, tied):
    head = MaskedLMHead(V, E, norm_epsilon=0.01)
    got, params = applied(head, HIDDEN_STATES, TABLE if tied else None)
    assert ("kernel" in params["scores"]) == (not tied)
    kernel = TABLE.T if tied else params["scores"]["kernel"]
    expected = transform(params["transform"], HIDDEN_STATES) @ kernel + params["scores"]["bias"]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_the_span_boundary_is_two_layers_over_both_sides_and_the_place(applied):
    offsets = np.array([[0, 3, 19], [1, 0, 30]])
    got, params = applied(SpanBoundaryHead(V, E, norm_epsilon=0.01), HIDDEN_STATES, RIGHT, offsets, TABLE)
    assert params["position"]["embedding"].shape == (20, 200)
    place = params["position"]["embedding"][np.minimum(offsets, 19)]
    x = transform(params["first"], np.concatenate([HIDDEN_STATES, RIGHT, place], -1))
    assert x.shape[-1] == D
    expected = transform(params["second"], x) @ TABLE.T + params["scores"]["bias"]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_pooler_and_sentence_pair_look_at_the_first_position(applied):
    pooled, params = applied(Pooler(), HIDDEN_STATES)
    np.testing.assert_allclose(pooled, np.tanh(dense(params["dense"], HIDDEN_STATES[:, 0])), atol=1e-5)
    got, params = applied(SentencePairHead(), pooled)
    assert got.shape == (B, 2)
    np.testing.assert_allclose(got, dense(params["dense"], pooled), atol=1e-5)


@pytest.mark.parametrize("activation", ["", "gelu"])
@pytest.mark.parametrize("x", [HIDDEN_STATES, HIDDEN_STATES[:, 0]])
def test_a_classifier_is_one_dense_layer_or_two(applied, x, activation):
    """Of tokens or of rows."""
    got, params = applied(Classifier(5, activation), x)
    hidden = gelu(dense(params["dense"], x)) if activation else x
    np.testing.assert_allclose(got, dense(params["scores"], hidden), atol=1e-5)


def test_activations_are_those_of_the_config(applied):
    got, params = applied(Classifier(1, "relu"), HIDDEN_STATES)
    np.testing.assert_allclose(
        got, dense(params["scores"], np.maximum(dense(params["dense"], HIDDEN_STATES), 0)), atol=1e-5
    )
    gelu_transform, relu_transform = (
        applied(Transform(E, activation), HIDDEN_STATES)[0] for activation in ("gelu", "relu")
    )
    assert np.abs(gelu_transform - relu_transform).max() > 0.01


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        (MaskedLMHead(V, E, dtype=jnp.bfloat16), (HIDDEN_STATES, TABLE)),
        (SpanBoundaryHead(V, E, dtype=jnp.bfloat16), (HIDDEN_STATES, RIGHT, np.zeros((B, P), int), TABLE)),
        (SentencePairHead(), (HIDDEN_STATES[:, 0],)),
        (Classifier(1, "gelu", dtype=jnp.bfloat16), (HIDDEN_STATES,)),
    ],
)
def test_logits_and_parameters_are_float32_under_bfloat16(head, arguments):
    arguments = [jnp.asarray(x, jnp.bfloat16) if x.dtype == np.float32 else jnp.asarray(x) for x in arguments]
    said, variables = jax.eval_shape(lambda: head.init_with_output(jax.random.key(0), *arguments))
    assert jax.eval_shape(logits, said).dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(nn.unbox(variables))} == {jnp.dtype(jnp.float32)}
