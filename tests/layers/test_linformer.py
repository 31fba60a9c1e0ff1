from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.linformer import Linformer, project_length
from t5x_lite.models import AlbertConfig, BertConfig, T5EncoderConfig, abstract_params, num_params

from ..programs import arrays_in, like_new
from ..slow import mostly_slow

N = 10
TINY = BertConfig(vocab_size=40, num_heads=2, embed_dim=8, mlp_dim=16, num_layers=3, max_length=N, pooler=False)
SHARINGS = {"none": 3 * 2 * 2, "headwise": 3 * 2, "key_value": 3, "layerwise": 1}
"""Projections of three layers with two heads."""


def with_identities(config, params):
    """The parameters of a model with full attention as those of one whose projections are identities."""

    def value(path, leaf):
        if path[-1].key == "length_projection":
            return jnp.broadcast_to(jnp.eye(N), leaf.shape)
        there = params
        for part in path:
            there = there[part.key]
        return there

    return jax.tree_util.tree_map_with_path(value, like_new(config))


@pytest.mark.parametrize("sharing", mostly_slow(SHARINGS, "none", "layerwise"))
def test_with_identities_it_is_full_attention(sharing):
    config = replace(TINY, attention=Linformer(N, sharing))
    ids = jax.random.randint(jax.random.key(1), (2, 7), 0, 40)
    valid = jnp.arange(7)[None] < jnp.array([[7], [4]])
    params = like_new(TINY)
    hidden = [
        jax.jit(lambda p, of=of: of.build().apply({"params": p}, ids, inputs_valid=valid)["hidden"])(p)
        for of, p in ((TINY, params), (config, with_identities(config, params)))
    ]
    np.testing.assert_allclose(hidden[1][valid], hidden[0][valid], atol=1e-6)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_what_is_shared_is_one_projection(sharing):
    config = replace(TINY, attention=Linformer(4, sharing))
    assert num_params(config) - num_params(TINY) == SHARINGS[sharing] * 4 * N


def test_layers_that_share_parameters_share_their_projections():
    albert = AlbertConfig(40, 2, 8, 16, 3, N, pooler=False)
    assert num_params(replace(albert, attention=Linformer(4, "headwise"))) - num_params(albert) == 2 * 4 * N


def test_keys_and_values_are_weighted_sums_of_tokens_without_padding():
    rng = np.random.default_rng(0)
    projection = rng.normal(size=(2, 3, 4, N)).astype(np.float32)
    projection[:, :, 2, :5] = 0
    key, value = rng.normal(size=(2, 2, 7, 3, 5)).astype(np.float32)
    valid = np.array([[True] * 7, [True] * 5 + [False] * 2])
    projected, mask = jax.jit(project_length, static_argnums=3)(
        {"key": jnp.asarray(key), "value": jnp.asarray(value)},
        Mask(jnp.asarray(valid)),
        jnp.asarray(projection),
        jnp.float32,
    )
    for number, (name, x) in enumerate((("key", key), ("value", value))):
        for row in range(2):
            for head in range(3):
                sums = projection[number, head, :, :7] @ (x[row, :, head] * valid[row, :, None])
                np.testing.assert_allclose(projected[name][row, :, head], sums, atol=1e-5)
    assert mask.valid.tolist() == [[True] * 4, [True, True, False, True]]


def test_the_pairs_of_attention_do_not_grow_with_the_square_of_the_length():
    """The largest array of a program of rows of 4,096 tokens has one number a token and feature or sum, and head."""
    config = replace(TINY, attention=Linformer(16), max_length=4096, num_layers=1)
    shape = jax.ShapeDtypeStruct((1, 4096), jnp.int32)
    params = nn.unbox(abstract_params(config))

    def loss(params, ids):
        return config.build().apply({"params": params}, ids, method="hidden_states").sum()

    assert max(array.size for array in arrays_in(jax.make_jaxpr(jax.grad(loss))(params, shape).jaxpr)) == 4096 * 2 * 16


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"attention=Linformer.* has no place for relative positions; set it to None"):
        T5EncoderConfig(attention=Linformer(4))
    with pytest.raises(ValueError, match="attention.projected_length=11 exceeds max_length=10; choose it as large at"):
        replace(TINY, attention=Linformer(11))
    with pytest.raises(ValueError, match="projected_length=0 is too small"):
        Linformer(0)
