"""An index that is made again a share a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.retrieval import Index, encode_all, padded_size, refresh
from t5x_lite.retrieval.index import empty_index


def encode(params, ids):
    """[B 2]: a sum of ids, and of their squares, times the parameters."""
    ids = ids.astype(jnp.float32)
    return params["factor"] * jnp.stack([ids.sum(axis=1), jnp.square(ids).sum(axis=1)], axis=1)


@pytest.mark.parametrize(("passages", "every"), [(1, 1), (7, 3), (511, 1), (512, 1), (513, 1), (5000, 7), (100, 1000)])
def test_its_size_is_enough_and_divided_by_the_steps(passages, every):
    size = padded_size(passages, every)
    assert size >= passages and size % every == 0 and (size // every) % 8 == 0
    assert padded_size(passages, 0) >= passages


@pytest.mark.parametrize(("rows", "every"), [(24, 3), (2048, 2), (16, 1)])
def test_a_round_gives_the_vectors_of_the_encoder_it_began_with(rows, every):
    ids = jnp.asarray(np.random.default_rng(0).integers(1, 9, (rows, 3)), jnp.uint16)
    params = [{"factor": jnp.full((1, 1), float(n))} for n in range(1, 2 * every + 2)]
    index = nn.unbox(empty_index(rows, 2, params[0], refreshed=True))
    first = jax.jit(encode_all, static_argnums=(0, 3))(encode, params[0], ids, every)
    np.testing.assert_allclose(first, encode(params[0], ids), rtol=1e-6)
    step = jax.jit(refresh, static_argnums=(0, 5))
    for number in range(2 * every):
        before = index
        index = step(encode, index, params[number + 1], ids, jnp.int32(number), every)
        ends = (number + 1) % every == 0
        assert int(index.version) == (number + 1) // every
        if not ends:
            np.testing.assert_array_equal(index.vectors, before.vectors)
    np.testing.assert_allclose(index.vectors, encode(params[every], ids), rtol=1e-6)
    np.testing.assert_array_equal(index.encoder["factor"], params[2 * every]["factor"])


def test_one_that_is_never_refreshed_has_one_set_of_vectors():
    index = empty_index(8, 2, {}, refreshed=False)
    assert isinstance(index, Index) and index.following is None and index.encoder is None
