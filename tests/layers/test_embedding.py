import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.embedding import Embedding, Unembedding

TABLE = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)


def test_embedding_looks_up_and_attends():
    variables = {"params": {"embedding": jnp.asarray(TABLE)}}
    ids = np.array([[0, 10, 3], [3, 3, 1]])
    module = Embedding(11, 4)
    np.testing.assert_array_equal(module.apply(variables, jnp.asarray(ids)), TABLE[ids])
    np.testing.assert_allclose(module.apply(variables, jnp.asarray(X), method="attend"), X @ TABLE.T, atol=1e-5)


def test_unembedding_has_a_kernel_of_its_own():
    got = Unembedding(11).apply({"params": {"kernel": jnp.asarray(TABLE.T)}}, jnp.asarray(X))
    np.testing.assert_allclose(got, X @ TABLE.T, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_bfloat16_logits_are_accumulated_and_given_in_float32(tied):
    dim = 2000
    x, table = jnp.full((1, 1, dim), 1.0), jnp.full((1, dim), 1.0)
    table = table.at[0, 0].set(0.5)  # 1999.5 has no bfloat16
    if tied:
        got = Embedding(1, dim, jnp.bfloat16).apply({"params": {"embedding": table}}, x, method="attend")
    else:
        got = Unembedding(1, jnp.bfloat16).apply({"params": {"kernel": table.T}}, x)
    assert got.dtype == jnp.float32
    assert got[0, 0, 0] == 1999.5
