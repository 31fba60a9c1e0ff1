"""In interpret mode, which computes what a TPU would, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels.flash_attention import flash_attention
from t5x_lite.kernels.masks import AttentionInputs, DistanceBias, Mask, keeps
from t5x_lite.kernels.tiles import TileList, Tiling

from ..slow import mostly_slow

B, H, K, RATE = 2, 2, 16, 0.3
SEED = 5


def reference(query, key, value, bias=None, *, scale, seen, rate=0.0):
    """In plain operations; `seen` [B L M]. A query that may look nowhere takes the mean of all values."""
    length, memory_length = query.shape[1], key.shape[1]
    logits = scale * jnp.einsum("BLHK,BMHK->BHLM", query, key, precision="highest")
    if bias is not None:
        logits += bias[:, length - 1 + np.arange(memory_length)[None] - np.arange(length)[:, None]][None]
    weights = jax.nn.softmax(jnp.where(seen[:, None], logits, -1e38), axis=-1)
    if rate:
        weights = jnp.where(kept_pairs(length, memory_length, rate), weights / (1.0 - rate), 0.0)
    return jnp.einsum("BHLM,BMHK->BLHK", weights, value, precision="highest")


def kept_pairs(length, memory_length, rate):
    """[B H L M] of the dropout that the kernels draw."""
    places = jnp.meshgrid(*(jnp.arange(size, dtype=jnp.int32) for size in (B, H, length, memory_length)), indexing="ij")
    seed = jax.random.bits(jax.random.key(SEED), (2,)).astype(jnp.int32)
    return keeps(tuple(seed), *places, rate)


def flash(query, key, value, bias=None, *, masks=None, tiles=None, **dropout):
    bias, mask = None if bias is None else DistanceBias(bias), Mask(**masks or {})
    inputs = AttentionInputs(query, key, value, 0.3, bias, mask, **dropout)
    return flash_attention(inputs, **tiles or {}, interpret=True)


def draw(length, memory_length, *, causal, prefix, valid, segments, seed=0):
    """(arrays, masks as the kernel takes them, `seen`)."""
    random = np.random.default_rng(seed)
    shapes = {"query": (B, length, H, K), "key": (B, memory_length, H, K), "value": (B, memory_length, H, K)}
    arrays = {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    arrays["bias"] = jnp.asarray(random.normal(size=(H, length + memory_length - 1)), jnp.float32)
    queries, keys = np.arange(length)[:, None], np.arange(memory_length)[None]
    seen = np.ones((B, length, memory_length), bool)
    masks = {"causal": causal, "prefix": prefix}
    if causal:
        seen &= (keys <= queries) | ((queries < prefix) & (keys < prefix))
    if valid:
        masks["valid"] = jnp.asarray(random.random((B, memory_length)) < 0.5)
        seen &= np.asarray(masks["valid"])[:, None]
    if segments:
        masks["query_segments"] = jnp.asarray(np.sort(random.integers(0, 4, (B, length)), axis=1))
        masks["key_segments"] = jnp.asarray(np.sort(random.integers(0, 3, (B, memory_length)), axis=1))
        seen &= np.asarray(masks["query_segments"][:, :, None] == masks["key_segments"][:, None])
    return arrays, masks, jnp.asarray(seen)


NONE = {"causal": False, "prefix": 0, "valid": False, "segments": False}
CASES = {
    "more keys than queries": (67, 200, NONE | {"valid": True}),
    "more queries than keys, three blocks": (270, 33, NONE | {"segments": True}),
    "causal": (200, 200, NONE | {"causal": True, "valid": True, "segments": True}),
    "prefix": (257, 257, NONE | {"causal": True, "prefix": 130}),
}


@pytest.mark.parametrize("case", mostly_slow(CASES, "causal", "more queries than keys, three blocks"))
def test_is_attention_forward_and_backward(case):
    """Among the queries are some that may look nowhere."""
    length, memory_length, kinds = CASES[case]
    arrays, masks, seen = draw(length, memory_length, **kinds)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=arrays["query"].shape), jnp.float32)

    def by_flash(arrays):
        out = flash(**arrays, masks=masks, tiles={"query_block": 128, "key_block": 128})
        return (out * weights).sum(), out

    def by_reference(arrays):
        out = reference(**arrays, scale=0.3, seen=seen)
        return (out * weights).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(by_flash, has_aux=True))(arrays)
    (_, expected), expected_gradients = jax.jit(jax.value_and_grad(by_reference, has_aux=True))(arrays)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    for name, gradient in gradients.items():
        off = jnp.linalg.norm(gradient - expected_gradients[name]) / jnp.linalg.norm(expected_gradients[name])
        assert off < 1e-5, name


@pytest.mark.parametrize("by_keys", [False, True])
@pytest.mark.parametrize(
    ("causal", "prefix", "first_query", "count"),
    [(False, 0, 0, 16), (True, 0, 0, 10), (True, 300, 0, 13), (True, 0, None, 16)],
)
def test_tiles_that_no_query_sees_are_not_visited(causal, prefix, first_query, count, by_keys):
    """Of 4 x 4 tiles; in a prefix of three blocks three more are seen than below the diagonal."""
    tiling = Tiling(512, 512, 128, 128, 1.0, causal, prefix, 0.0, True, first_query)
    tiles = TileList(tiling, by_keys=by_keys)
    visited = [tiles.unpack(tiles.numbers, t) for t in range(len(tiles))]
    assert len({(i, j) for i, j, _, _ in visited}) == len(tiles) == count
    blocks = [tile[by_keys] for tile in visited]
    assert blocks == sorted(blocks) and set(blocks) == set(range(4))
    assert sum(first for _, _, first, _ in visited) == sum(last for *_, last in visited) == tiles.num_blocks == 4


def test_bfloat16_is_rounded_float32():
    arrays, masks, seen = draw(130, 140, **NONE | {"valid": True})
    rounded = {name: array.astype(jnp.bfloat16) for name, array in arrays.items() if name != "bias"}
    out = flash(**rounded, bias=arrays["bias"], masks=masks)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(jnp.float32), reference(**arrays, scale=0.3, seen=seen), atol=2e-2)


def test_dropout_is_drawn_by_place_whatever_the_tiles():
    """Forward and backward; the reference draws the same numbers."""
    arrays, masks, seen = draw(150, 150, **NONE | {"causal": True})
    del arrays["bias"]

    def by_flash(arrays, offsets=None, tiles=None):
        dropout = {"dropout_rate": RATE, "dropout_key": jax.random.key(SEED), "offsets": offsets}
        return jnp.sin(flash(**arrays, masks=masks, tiles=tiles, **dropout))

    tiles = {"query_block": 128, "key_block": 256}
    gradients = jax.jit(jax.grad(lambda arrays: by_flash(arrays, tiles=tiles).sum()))(arrays)
    expected = jax.jit(jax.grad(lambda a: jnp.sin(reference(**a, scale=0.3, seen=seen, rate=RATE)).sum()))(arrays)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], atol=2e-5, err_msg=name)

    # A part of a batch says what stands before it, and gets what the whole would.
    whole = by_flash(arrays)
    part = {name: array[1:, 100 if name == "query" else 0 :, 1:] for name, array in arrays.items()}
    np.testing.assert_allclose(by_flash(part, offsets=(1, 1, 100)), whole[1:, 100:, 1:], atol=1e-5)
