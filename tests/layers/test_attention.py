import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels import attention
from t5x_lite.kernels.attention import FLASH_FROM
from t5x_lite.kernels.dense_attention import dense_attention
from t5x_lite.kernels.flash_attention import flash_attention
from t5x_lite.kernels.masks import AttentionInputs, DistanceBias, Mask
from t5x_lite.layers.attention import Attention, attend_on_mesh, dot_product_attention
from t5x_lite.layers.dense import LayerConfig
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, replicated, use_mesh

B, L, M, H, K = 2, 3, 4, 2, 5


def arrays(*shapes, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(query, key, value, bias=None, mask=None, *, scale):
    """In float64, query by query, over the keys that it may look at."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    memory_length = key.shape[1]
    seen = np.broadcast_to(True if mask is None else mask.dense(L, memory_length), (B, 1, L, memory_length))
    distances = np.zeros((H, L + memory_length - 1)) if bias is None else np.asarray(bias.values)
    out = np.zeros(query.shape)
    for b, i, h in np.ndindex(B, L, H):
        keys = np.flatnonzero(seen[b, 0, i])
        logits = scale * key[b, keys, h] @ query[b, i, h] + distances[h, L - 1 + keys - i]
        out[b, i, h] = softmax(logits) @ value[b, keys, h]
    return out


@pytest.fixture
def case():
    query, key, value, bias = map(jnp.asarray, arrays((B, L, H, K), (B, M, H, K), (B, M, H, K), (H, L + M - 1)))
    mask = Mask(
        valid=jnp.array([[True, True, True, False], [True, True, True, True]]),
        query_segments=jnp.array([[1, 1, 1], [1, 2, 2]]),
        key_segments=jnp.array([[1, 1, 1, 1], [1, 2, 2, 1]]),
    )
    return query, key, value, DistanceBias(bias), mask


def attend(query, key, value, bias, mask, **options):
    return dot_product_attention(query, key, value, bias=bias, mask=mask, **options)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize("dropping", [False, True])
def test_is_softmax_of_query_key_over_values(case, scale, dropping):
    # A rate that drops nothing takes the path with dropout on the weights.
    dropout = {"dropout_rate": 1e-9, "dropout_key": jax.random.key(0)} if dropping else {}
    np.testing.assert_allclose(
        attend(*case, scale=scale, **dropout), reference(*case, scale=scale or K**-0.5), atol=1e-5
    )


@pytest.mark.parametrize("shared", [False, True])
def test_dropout_is_unbiased_and_needs_a_key(case, shared):
    def dropping(dropout_key):
        return attend(*case, dropout_rate=0.4, dropout_key=dropout_key, positions_share_dropout=shared)

    samples = np.asarray(jax.jit(jax.vmap(dropping))(jax.random.split(jax.random.key(1), 4000)))
    standard_error = samples.std(0) / 4000**0.5
    assert standard_error.min() > 1e-4  # something is dropped everywhere
    np.testing.assert_array_less(np.abs(samples.mean(0) - reference(*case, scale=K**-0.5)), 5 * standard_error)
    np.testing.assert_allclose(dropping(None), reference(*case, scale=K**-0.5), atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_equal_queries_drop_the_same_keys_where_positions_share_it(case, shared):
    query, key, value, _, _ = case
    dropout = {"dropout_rate": 0.4, "dropout_key": jax.random.key(0), "positions_share_dropout": shared}
    attended = dot_product_attention(jnp.broadcast_to(query[:, :1], query.shape), key, value, **dropout)
    apart = jnp.abs(attended - attended[:, :1]).max((1, 3))  # [row, head]
    assert (apart == 0).all() if shared else (apart > 0.01).all()
    first = attended[:, 0]
    assert jnp.abs(first - dot_product_attention(query, key, value)[:, 0]).max((0, 2)).min() > 0.01  # heads drop apart


@pytest.mark.parametrize("dropping", [False, True])
def test_a_query_that_may_look_nowhere_attends_to_all_alike(case, dropping):
    query, key, value, bias, mask = case
    dropout = {"dropout_rate": 1e-9, "dropout_key": jax.random.key(0)} if dropping else {}
    nowhere = replace(mask, query_segments=mask.query_segments.at[0, 1].set(7))
    got = attend(query, key, value, bias, nowhere, **dropout)
    np.testing.assert_allclose(got[0, 1], value[0].mean(0), atol=1e-5)


def test_masked_keys_count_for_nothing(case):
    query, key, value, bias, _ = case
    masked = attend(query, key, value, bias, Mask(jnp.array([[True, True, True, False]] * B)))
    subset = attend(query, key[:, :3], value[:, :3], DistanceBias(bias.values[:, :-1]), None)
    np.testing.assert_allclose(masked, subset, atol=1e-6)


@pytest.mark.parametrize("use_bias", [False, True])
def test_module_projects_attends_and_projects_back(make_params, use_bias):
    embed_dim = 7
    module = Attention(LayerConfig(H, K, 1, use_bias=use_bias))
    x, memory = map(jnp.asarray, arrays((B, L, embed_dim), (B, M, embed_dim), seed=3))
    params = make_params(module, 1, x)

    def project(x, name, bias=0.0):
        bias = params[name]["bias"] if use_bias else 0.0
        return np.asarray(x) @ np.asarray(params[name]["kernel"]) + np.asarray(bias)

    def heads(x):
        return x.reshape(B, -1, H, K)

    variables = {"params": params}
    for source, key_value in ((x, None), (memory, module.apply(variables, memory, method="project"))):
        attended = reference(
            heads(project(x, "query")),
            heads(project(source, "key")),
            heads(project(source, "value")),
            scale=K**-0.5,
        )
        expected = project(attended.reshape(B, L, -1), "out")
        np.testing.assert_allclose(module.apply(variables, x, key_value), expected, atol=1e-5)


def test_weights_are_sown_where_they_are_asked_for_and_nowhere_else(make_params):
    """They are what the output is made of: the values, taken by them and projected."""
    x, memory = (jnp.asarray(array) for array in arrays((B, L, 6), (B, M, 6)))
    mask = Mask(jnp.array([[True, False, True, True], [True, True, False, False]]))
    module = Attention(LayerConfig(H, K, 1, attention_scale=0.7, attention_dropout_rate=0.5))
    variables = {"params": make_params(module, 0, x)}
    key_value = module.apply(variables, memory, method="project")
    out, sown = module.apply(variables, x, key_value, mask=mask, mutable=["intermediates"])
    (weights,) = sown["intermediates"]["weights"]
    assert weights.shape == (B, H, L, M)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
    assert not np.asarray(weights)[np.broadcast_to(~mask.valid[:, None, None], weights.shape)].any()
    taken = np.einsum("BHLM,BMHK->BLHK", weights, key_value["value"]).reshape(B, L, H * K)
    projection = variables["params"]["out"]
    expected = taken @ np.asarray(projection["kernel"]) + np.asarray(projection["bias"])
    np.testing.assert_allclose(out, expected, atol=1e-5)

    def program(**options):
        return jax.make_jaxpr(lambda x: module.apply(variables, x, key_value, mask=mask, **options))(x)

    assert str(program(mutable=["batch_stats"])) == str(program()), "nothing is computed for a collection nobody reads"
    assert str(program(mutable=["intermediates"])) != str(program())


CASES = [
    ("dense", MeshShape(2, 2, 2), True),
    ("flash", MeshShape(1, 2, 2, 2), True),
    ("flash", MeshShape(8), False),
    ("dense", MeshShape(1, 1, 4, 2), False),
]
KINDS = {
    "dense": dense_attention,
    "flash": functools.partial(flash_attention, query_block=128, key_block=128, interpret=True),
}


@pytest.fixture(scope="module")
def step():
    """`step(kind, dropping, mesh)`: a value and its gradients; of two heads, which four devices do not divide, and rows
    of three texts."""
    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.normal(size=(8, 130, H, 8)), jnp.float32) for _ in range(3)]
    bias = DistanceBias(jnp.asarray(random.normal(size=(H, 259)), jnp.float32))
    mask = Mask.of_segments(jnp.asarray(np.sort(random.integers(0, 3, (8, 130)), axis=1)), causal=True)

    @functools.cache
    def compute(kind, dropping, shape=None):
        def loss(query, key, value, bias):
            dropout = {"dropout_rate": 0.3, "dropout_key": jax.random.key(0) if dropping else None}
            inputs = AttentionInputs(query, key, value, 0.5, bias, mask, **dropout)
            return jnp.sin(attend_on_mesh(KINDS[kind], inputs)).sum()

        gradient = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))
        if shape is None:
            return jax.jit(gradient)(*arrays, bias)
        mesh = make_mesh(shape)

        def on_mesh(*arguments):
            with use_mesh(mesh):
                return gradient(*arguments)

        return jax.jit(on_mesh, in_shardings=(*[batch_sharding(mesh)] * 3, replicated(mesh)))(*arrays, bias)

    return compute


@pytest.mark.parametrize(
    ("kind", "shape", "dropping"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
    ids=str,
)
def test_attention_on_a_mesh_is_that_of_one_device(step, kind, shape, dropping):
    """Dense or flash: the dropout is the same."""
    value, gradients = step(kind, dropping, shape)
    expected, expected_gradients = step("dense", dropping)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for gradient, of_one in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        np.testing.assert_allclose(gradient, of_one, atol=1e-5 * np.abs(of_one).max())


def test_a_tpu_takes_flash_attention_from_a_length_on_and_nobody_else_does(monkeypatch):
    def program(length):
        arrays = [jax.ShapeDtypeStruct((1, length, H, K), jnp.float32)] * 3
        return str(jax.make_jaxpr(lambda *arrays: dot_product_attention(*arrays))(*arrays))

    assert "pallas_call" not in program(FLASH_FROM)
    monkeypatch.setattr(attention, "platform", lambda: "tpu")
    assert "pallas_call" in program(FLASH_FROM)
    assert "pallas_call" not in program(FLASH_FROM - 1)
