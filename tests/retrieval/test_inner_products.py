"""The search finds what sorting all inner products finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape, make_mesh, replicated, use_mesh
from t5x_lite.retrieval import search

from ..programs import arrays_in

Q, P, D, K = 5, 48, 6, 7


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    return tuple(jnp.asarray(random.normal(size=(n, D)), jnp.float32) for n in (Q, P))


def sorted_all(queries, passages, excluded=None):
    scores = np.asarray(queries) @ np.asarray(passages).T
    if excluded is not None:
        scores[np.arange(len(scores)), excluded] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(scores, order, axis=1), order


@pytest.mark.parametrize("block", [1, 5, 16, 48, 100])
def test_it_is_exact_in_any_blocks(vectors, block):
    found = search(*vectors, K, block=block)
    scores, passages = sorted_all(*vectors)
    np.testing.assert_array_equal(found.passages, passages)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-6)


def test_what_is_excluded_or_added_is_not_found(vectors):
    queries, passages = vectors
    excluded = jnp.asarray(sorted_all(*vectors)[1][:, 0])
    padded = jnp.concatenate([passages, 100 * queries])
    found = search(queries, padded, K, num_passages=P, excluded=excluded, block=7)
    np.testing.assert_array_equal(found.passages, sorted_all(*vectors, np.asarray(excluded))[1])
    few = search(queries, passages[:3], 3, excluded=jnp.zeros(Q, jnp.int32))
    assert np.isneginf(few.scores[:, 2]).all() and set(np.asarray(few.passages[:, :2]).ravel()) == {1, 2}


def test_equal_passages_are_found_in_their_order():
    found = search(jnp.ones((1, 2)), jnp.ones((9, 2)), 4, block=2)
    assert found.passages.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("shape", [MeshShape(data=8), MeshShape(data=2, fsdp=2, tensor=2)])
def test_eight_devices_find_the_same(vectors, shape):
    mesh = make_mesh(shape)

    def find(queries, passages):
        with use_mesh(mesh):
            return search(queries, passages, K, block=4)

    given = [jax.device_put(x, replicated(mesh)) for x in vectors]
    program = jax.jit(find, out_shardings=replicated(mesh)).lower(*given).compile()
    found, expected = program(*given), search(*vectors, K)
    np.testing.assert_array_equal(found.passages, expected.passages)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    # A device has the scores of its eighth alone.
    assert f"f32[{Q},{P}]" not in program.as_text()


def test_no_array_is_over_all_queries_and_passages():
    shapes = jax.ShapeDtypeStruct((64, 8), jnp.float32), jax.ShapeDtypeStruct((1 << 14, 8), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda queries, passages: search(queries, passages, 3, block=256))(*shapes).jaxpr
    assert max(array.size for array in arrays_in(jaxpr)) <= max(64 * (256 + 3), (1 << 14) * 8)


def test_the_approximate_search_finds_nearly_all():
    random = np.random.default_rng(1)
    queries, passages = (jnp.asarray(random.normal(size=(n, 16)), jnp.float32) for n in (32, 4096))
    exact, near = (search(queries, passages, 10, approximate=approximate).passages for approximate in (False, True))
    shared = [len(set(a) & set(b)) for a, b in zip(exact.tolist(), near.tolist(), strict=True)]
    assert np.mean(shared) > 9


def test_bad_numbers_of_passages(vectors):
    for k in (0, P + 1):
        with pytest.raises(InputError, match=rf"k={k} is not between 1 and the 48 passages; choose fewer"):
            search(*vectors, k)
