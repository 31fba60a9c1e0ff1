import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.kernels.masks import AttentionInputs, DistanceBias, Mask

B, L, M, H, K = 3, 5, 4, 2, 3


def reference(query, key, value, bias, mask, dropout):
    """The same by operations whose gradients are JAX's."""
    logits = 0.7 * jnp.einsum("BLHK,BMHK->BHLM", query, key) + bias.dense(L, M)
    weights = jax.nn.softmax(jnp.where(mask.dense(L, M), logits, -1e30), axis=-1)
    return jnp.einsum("BHLM,BMHK->BLHK", weights * dropout, value)


@pytest.mark.parametrize("dropping", [False, True])
def test_its_backward_pass_is_the_derivative(dropping):
    """A query that sees no key is among them."""
    random = np.random.default_rng(0)
    shapes = ((B, L, H, K), (B, M, H, K), (B, M, H, K), (H, L + M - 1))
    *arrays, bias = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes)
    mask = Mask(
        valid=jnp.array([[True, True, False, True], *[[True] * M] * (B - 1)]),
        query_segments=jnp.array([[0, 0, 1, 1, 7], *[[0] * L] * (B - 1)]),
        key_segments=jnp.array([[0, 1, 1, 1], *[[0] * M] * (B - 1)]),
    )

    def dropout():
        return {"dropout_key": jax.random.key(0) if dropping else None, "dropout_rate": 0.4}

    def with_gradients(attend):
        def total(*arguments):
            out = attend(*arguments)
            return jnp.sin(out).sum(), out

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3), has_aux=True))(*arrays, DistanceBias(bias))

    # What dropout leaves of the weights does not depend on them: read off from keys that are all alike.
    eye = jnp.broadcast_to(jnp.eye(M, K + 1)[None, :, None], (B, M, H, K + 1))
    alike = AttentionInputs(jnp.zeros((B, L, H, K + 1)), jnp.zeros_like(eye), eye, 1.0, **dropout())
    factor = M * jax.jit(dense_attention)(alike).transpose(0, 2, 1, 3)
    assert set(np.unique(factor.round(4))) == ({0.0, np.float32(1.6667)} if dropping else {1.0})

    def attend(query, key, value, bias):
        return dense_attention(AttentionInputs(query, key, value, 0.7, bias, mask, **dropout()))

    (_, out), gradients = with_gradients(attend)
    (_, expected), expected_gradients = with_gradients(lambda *arguments: reference(*arguments, mask, factor))
    np.testing.assert_allclose(out, expected, atol=1e-6)
    for gradient, of_reference in zip(*map(jax.tree.leaves, (gradients, expected_gradients)), strict=True):
        np.testing.assert_allclose(gradient, of_reference, atol=1e-5)
