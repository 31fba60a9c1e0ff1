import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.embedding import Embedding, TokenEmbeddings, Unembedding

TABLE = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)


def test_embedding_looks_up_and_scores():
    variables = {"params": {"embedding": jnp.asarray(TABLE)}}
    ids = np.array([[0, 10, 3], [3, 3, 1]])
    module = Embedding(11, 4)
    np.testing.assert_array_equal(module.apply(variables, jnp.asarray(ids)), TABLE[ids])
    got = module.apply(variables, jnp.asarray(X), method="scores").dense()
    np.testing.assert_allclose(got, X @ TABLE.T, atol=1e-5)


def test_unembedding_has_a_kernel_of_its_own():
    got = Unembedding(11).apply({"params": {"kernel": jnp.asarray(TABLE.T)}}, jnp.asarray(X)).dense()
    np.testing.assert_allclose(got, X @ TABLE.T, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_bfloat16_logits_are_accumulated_and_given_in_float32(tied):
    dim = 2000
    x, table = jnp.full((1, 1, dim), 1.0), jnp.full((1, dim), 1.0)
    table = table.at[0, 0].set(0.5)  # 1999.5 has no bfloat16
    if tied:
        got = Embedding(1, dim, jnp.bfloat16).apply({"params": {"embedding": table}}, x, method="scores")
    else:
        got = Unembedding(1, jnp.bfloat16).apply({"params": {"kernel": table.T}}, x)
    got = got.dense()
    assert got.dtype == jnp.float32
    assert got[0, 0, 0] == 1999.5


def normed(x, scale, bias, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + bias


def by_hand(params, ids, positions, segments, epsilon):
    x = params["token"]["embedding"][ids] + params["position"]["embedding"][positions]
    if segments is not None:
        x += params["segment"]["embedding"][segments]
    return normed(x, params["norm"]["scale"], params["norm"]["bias"], epsilon)


IDS = np.array([[4, 2, 6, 2, 2], [1, 5, 3, 9, 2]])
SEGMENTS = np.array([[0, 0, 1, 2, 2], [0, 1, 1, 1, 1]])
IN_ORDER = np.array([[0, 1, 2, 3, 4]] * 2)


@pytest.mark.parametrize(
    ("num_segments", "pad_id", "positions", "segments"),
    [
        (3, None, IN_ORDER, SEGMENTS),
        (1, None, IN_ORDER, 0 * SEGMENTS),  # one row for every segment
        (0, None, IN_ORDER, None),
        # Ids other than 2 are counted from 3 on, the others stand at 2.
        (3, 2, np.array([[3, 2, 4, 2, 2], [3, 4, 5, 6, 2]]), SEGMENTS),
    ],
)
def test_token_embeddings_are_the_normed_sum_of_the_tables(make_params, num_segments, pad_id, positions, segments):
    module = TokenEmbeddings(
        vocab_size=11, embed_dim=6, max_length=5, num_segments=num_segments, pad_id=pad_id, norm_epsilon=0.01
    )
    ids = jnp.asarray(IDS)
    params = make_params(module, 0, ids, jnp.asarray(SEGMENTS))
    assert params["position"]["embedding"].shape == (5 + (0 if pad_id is None else 3), 6)
    numpy_params = jax.tree.map(np.asarray, params)
    got = module.apply({"params": params}, ids, jnp.asarray(SEGMENTS))
    np.testing.assert_allclose(got, by_hand(numpy_params, IDS, positions, segments, 0.01), atol=1e-5)
    first = None if segments is None else 0 * segments
    without = module.apply({"params": params}, ids)
    np.testing.assert_allclose(without, by_hand(numpy_params, IDS, positions, first, 0.01), atol=1e-5)
