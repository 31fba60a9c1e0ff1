from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.cpu import PackedWeights
from t5x_lite.kernels.masks import MASKED_LOGIT, Mask
from t5x_lite.layers.attention import dot_product_attention
from t5x_lite.layers.decoding_cache import CachedKeyValue, DecodingCache, by_position
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, use_mesh

B, H, K, T, M = 2, 3, 4, 5, 2


def assert_equal(got, expected):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def random(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("queries", [1, 3])
def test_attention_over_a_cache_is_that_of_the_layers(queries):
    """One of the queries may look nowhere."""
    query, new = random(0, B, queries, H, K), {"key": random(1, B, T, H, K), "value": random(2, B, T, H, K)}
    segments = np.random.default_rng(3).integers(0, 2, (B, queries + T))
    mask = Mask(query_segments=jnp.asarray(segments[:, T:]).at[0, 0].set(2), key_segments=jnp.asarray(segments[:, :T]))
    cached, expected = CachedKeyValue.empty(B, H, K, T, jnp.float32), CachedKeyValue.of(new)
    for place in range(T):
        cached = cached.write(jax.tree.map(lambda x, t=place: x[:, t : t + 1], new), jnp.int32(place))
    assert_equal(cached, expected)
    got = cached.attend(query, jnp.where(mask.dense(queries, T), 0.0, MASKED_LOGIT), 0.7)
    expected = dot_product_attention(query, new["key"], new["value"], mask=mask, scale=0.7)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_on_a_mesh_each_device_keeps_the_heads_that_it_computes_of_its_rows():
    mesh, new = make_mesh(MeshShape(2, 2, tensor=2)), {name: random(1, 4, 2, 6, K) for name in ("key", "value")}

    def write(new):
        with use_mesh(mesh):
            empty = CachedKeyValue.empty(4, 6, K, T, jnp.float32)
            spread = empty.spread(2, 3)
            return CachedKeyValue.of(new), empty.write(new, jnp.int32(1)), spread, spread.write(new, jnp.int32(2), 2)

    for cached in jax.jit(write, in_shardings=batch_sharding(mesh))(new):
        for leaf in jax.tree.leaves(cached):
            assert tuple(leaf.sharding.spec)[:2] == (("data", "fsdp"), "tensor")
            assert leaf.addressable_shards[0].data.shape == (1, 3, *leaf.shape[2:])


def test_the_cache_has_the_compute_dtype():
    cached = CachedKeyValue.empty(B, H, K, T, jnp.bfloat16)
    new = {"key": random(1, B, 2, H, K), "value": random(2, B, 2, H, K)}
    written = cached.write(new, jnp.int32(1))
    assert {leaf.dtype for leaf in jax.tree.leaves(written)} == {jnp.dtype(jnp.bfloat16)}
    assert not written.key[:, :, 0].any()
    assert written.key[:, :, 1:3].any()


def make_cache(sequences):
    """Behind two shared slots, positions for three tokens of each sequence."""
    own = CachedKeyValue(random(4, B, H, M + 3, K), random(5, B, H, M + 3, K))
    memory = CachedKeyValue(random(8, B, H, M, K), random(9, B, H, M, K))
    valid, parents = jnp.ones((B, M), bool), jnp.zeros((B, 1, 3), jnp.int32)
    one = DecodingCache((own,), (memory,), valid, parents, (), random(6, 2, 7), M)
    return one, one.repeat(sequences)


def test_repeating_makes_room_and_keeps_what_is_shared():
    one, several = make_cache(4)
    assert (one.num_sequences, several.num_sequences) == (1, 4)
    assert one.num_positions == several.num_positions == M + 3
    before, own = one.self_kv[0], several.self_kv[0]
    np.testing.assert_array_equal(own.key[:, :, :M], before.key[:, :, :M])
    np.testing.assert_array_equal(own.value[:, :, M::4], before.value[:, :, M:])
    assert own.key.shape == (B, H, M + 3 * 4, K)
    assert several.memory is one.memory
    assert [int(several.slot(jnp.int32(position))) for position in range(5)] == [0, 1, 2, 6, 10]


def test_parameters_are_packed_for_the_number_of_sequences():
    one, few = make_cache(4)
    _, many = make_cache(9)
    assert isinstance(one.output, jax.Array)
    assert [part.ndim for part in few.output.parts] == [3]
    assert [part.ndim for part in many.output.parts] == [2]


def test_sequences_look_at_their_own_past_and_at_what_is_shared():
    _, cache = make_cache(2)
    cache = cache.set_parents(jnp.int32(M), 1).set_parents(jnp.int32(M + 1), 1)
    cache = cache.take(jnp.array([1, 1, 2, 3])).set_parents(jnp.int32(M + 2), 1)
    mask = (jnp.arange(M + 3) <= M + 2)[None, None, None]
    seen = np.asarray(cache.slot_bias(mask, None) == 0.0)
    assert seen.shape == (B, 1, 2, M + 3 * 2)
    # In the first input both go on from the second sequence; then each has its own slot.
    assert seen[0, 0].astype(int).tolist() == [[1, 1, 0, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 1, 0, 1]]
    assert seen[1, 0].astype(int).tolist() == [[1, 1, 1, 0, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1, 0, 1]]
    biased = cache.slot_bias(mask, random(7, 1, H, 1, M + 3))
    assert biased.shape == (B, H, 2, M + 3 * 2)
    np.testing.assert_array_equal(np.asarray(biased > MASKED_LOGIT / 2)[:, 1:2], seen)


def test_one_sequence_needs_no_beam_parents():
    cache, alone = make_cache(1)
    assert alone.self_kv == cache.self_kv
    assert cache.set_parents(jnp.int32(M), 1) is cache
    assert replace(cache, prompt_length=0).slot(jnp.int32(3)) == 3


def test_from_sequences_to_positions():
    x = jnp.arange(6).reshape(1, 6, 1, 1).astype(jnp.float32)
    assert by_position(x, 2).ravel().tolist() == [0, 3, 1, 4, 2, 5]


def test_sharded_parameters_are_not_packed():
    one, packed = make_cache(1)
    with use_mesh(make_mesh(MeshShape(fsdp=2))):
        assert one.repeat(1).output is one.output
    assert isinstance(packed.output, PackedWeights)
