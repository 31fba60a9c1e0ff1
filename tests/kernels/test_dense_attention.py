import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels import dense_attention as dense_module
from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.layers.masks import DistanceBias, Mask

B, L, M, H, K = 6, 5, 4, 2, 3


def plain(query, key, value, bias, mask, dropout):
    """The same by operations whose gradients are JAX's."""
    logits = 0.7 * jnp.einsum("BLHK,BMHK->BHLM", query, key) + DistanceBias(bias).dense(L, M)
    weights = jax.nn.softmax(jnp.where(mask.dense(L, M), logits, -1e30), axis=-1)
    return jnp.einsum("BHLM,BMHK->BLHK", weights * dropout, value)


@pytest.mark.parametrize("dropping", [False, True])
@pytest.mark.parametrize(("rows", "heads"), [(B, H), (2, H), (1, 1)])
def test_its_own_backward_pass_is_the_derivative(monkeypatch, rows, heads, dropping):
    """Whatever a CPU does at a time; a query that may look nowhere is among them."""
    monkeypatch.setattr(dense_module, "CACHE_BYTES", 4 * rows * heads * L * M)
    random = np.random.default_rng(0)
    shapes = ((B, L, H, K), (B, M, H, K), (B, M, H, K), (H, L + M - 1))
    arrays = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]
    valid = jnp.array([[True, True, False, True], *[[True] * M] * (B - 1)])
    segments = {
        "query_segments": jnp.array([[0, 0, 1, 1, 7], *[[0] * L] * (B - 1)]),
        "key_segments": jnp.array([[0, 1, 1, 1], *[[0] * M] * (B - 1)]),
    }
    mask = Mask(valid, **segments)
    traced = jax.make_jaxpr(lambda *arrays: dense_attention(*arrays[:3], scale=1.0))(*arrays)
    assert ("scan" in str(traced)) == ((rows, heads) != (B, H))

    def dropping_key():
        return {"dropout_rate": 0.4, "dropout_key": jax.random.key(0)} if dropping else {}

    # What dropout leaves of the weights does not depend on them: read off from keys that are all alike.
    eye = jnp.broadcast_to(jnp.eye(M, K + 1)[None, :, None], (B, M, H, K + 1))
    still = jnp.zeros((B, L, H, K + 1))
    factor = M * dense_attention(still, jnp.zeros_like(eye), eye, scale=1.0, **dropping_key()).transpose(0, 2, 1, 3)
    assert set(np.unique(factor.round(4))) == ({0.0, np.float32(1.6667)} if dropping else {1.0})

    def ours(query, key, value, bias):
        out = dense_attention(query, key, value, bias=bias, scale=0.7, valid=valid, **segments, **dropping_key())
        return jnp.sin(out).sum(), out

    def theirs(*arrays):
        out = plain(*arrays, mask, factor)
        return jnp.sin(out).sum(), out

    (_, out), gradients = jax.value_and_grad(ours, argnums=(0, 1, 2, 3), has_aux=True)(*arrays)
    (_, expected), expected_gradients = jax.value_and_grad(theirs, argnums=(0, 1, 2, 3), has_aux=True)(*arrays)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    for gradient, of_theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, of_theirs, atol=1e-5)
