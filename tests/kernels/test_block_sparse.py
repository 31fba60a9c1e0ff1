"""Attention by blocks is that of all pairs with the equivalent mask, and has no array of them."""

import importlib.util
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.kernels import block_sparse
from t5x_lite.kernels.block_sparse import block_sparse_attention
from t5x_lite.kernels.dense_attention import attention_weights, dense_attention
from t5x_lite.kernels.masks import AttentionInputs, Blocks, Mask, keeps
from t5x_lite.parallel import MeshShape, make_mesh, replicated, use_mesh

from ..programs import arrays_in

B, H, K, SIZE = 2, 3, 5, 4


def drawn(count, num_random, window, heads):
    """Random blocks, none of those around a block: fewer where there are no more."""
    rng, table = np.random.default_rng(0), np.full((heads, count, num_random), -1, np.int32)
    for head in range(heads):
        for block in range(count):
            others = [other for other in range(count) if abs(other - block) > window // 2]
            chosen = rng.permutation(others)[:num_random]
            table[head, block, : len(chosen)] = chosen
    return jnp.asarray(table)


def inputs_of(length, rate):
    rng = np.random.default_rng(1)
    query, key, value = (jnp.asarray(rng.normal(size=(B, length, H, K)), jnp.float32) for _ in range(3))
    valid = jnp.arange(length)[None] < jnp.array([[length], [length - 7]])
    dropout_key = jax.random.key(3) if rate else None
    return AttentionInputs(query, key, value, K**-0.5, mask=Mask(valid), dropout_key=dropout_key, dropout_rate=rate)


def pairs_seen(blocks, length):
    """By the definition, pair by pair."""
    size, count = blocks.size, blocks.random.shape[1]
    seen = np.zeros((len(blocks.random), length, length), bool)
    for head, query, key in np.ndindex(seen.shape):
        q, k = query // size - blocks.first, key // size - blocks.first
        is_global = not 0 <= q < count or not 0 <= k < count
        seen[head, query, key] = is_global or abs(q - k) <= blocks.window // 2 or k in blocks.random[head, q]
    return seen


def by_all_pairs(inputs, seen):
    """Attention in NumPy's terms."""
    logits = inputs.scale * jnp.einsum("blhk,bmhk->bhlm", inputs.query, inputs.key)
    weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), axis=-1)
    if inputs.drops:
        seed, rate, pairs = inputs.scalars(), inputs.dropout_rate, jnp.ogrid[tuple(map(slice, weights.shape))]
        weights = jnp.where(keeps((seed[0], seed[1]), *pairs, rate), weights / (1 - rate), 0)
    return jnp.einsum("bhlm,bmhk->blhk", weights, inputs.value)


@pytest.mark.parametrize(
    ("length", "first", "last", "window", "num_random", "heads", "rate"),
    [
        pytest.param(40, 1, 1, 3, 2, H, 0.0, id="BigBird"),
        pytest.param(
            34, 1, 1, 3, 3, 1, 0.0, id="an odd number of blocks, the last not full, heads alike", marks=pytest.mark.slow
        ),
        pytest.param(44, 2, 0, 3, 1, H, 0.0, id="global blocks in front alone", marks=pytest.mark.slow),
        pytest.param(27, 0, 0, 1, 2, H, 0.0, id="no global blocks, a window of one", marks=pytest.mark.slow),
        pytest.param(36, 1, 1, 5, 2, H, 0.3, id="a wide window, dropout"),
        pytest.param(36, 1, 1, 3, 0, H, 0.0, id="no random blocks", marks=pytest.mark.slow),
        pytest.param(12, 1, 1, 3, 2, H, 0.0, id="one block between global ones"),
    ],
)
def test_it_is_attention_to_all_pairs_that_are_seen(length, first, last, window, num_random, heads, rate):
    count = -(-length // SIZE) - first - last
    blocks = Blocks(drawn(count, num_random, window, heads), SIZE, first, last, window)
    seen = pairs_seen(blocks, length)
    np.testing.assert_array_equal(blocks.dense(length), seen)
    inputs = inputs_of(length, rate)
    valid = inputs.mask.valid
    visible = jnp.asarray(seen)[None] & valid[:, None, None]
    targets = jnp.asarray(np.random.default_rng(2).normal(size=inputs.query.shape), jnp.float32)
    counted = valid & visible.any(axis=-1).all(axis=1)

    def results(attend):
        def loss(query, key, value):
            out = attend(replace(inputs, query=query, key=key, value=value))
            out = jnp.where(counted[..., None, None], out, 0.0)
            return (out * targets).sum(), out

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(inputs.query, inputs.key, inputs.value)

    # Rows that see nothing are not compared, and need a finite logit.
    visible |= ~visible.any(axis=-1, keepdims=True)
    expected = results(lambda inputs: by_all_pairs(inputs, visible))
    got = results(lambda inputs: block_sparse_attention(replace(inputs, blocks=blocks)))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_the_weights_of_a_picture_are_of_the_pairs_that_are_seen():
    blocks = Blocks(drawn(7, 2, 3, H), SIZE)
    inputs = inputs_of(34, 0.0)
    weights = jax.jit(attention_weights)(replace(inputs, blocks=blocks))
    seen = pairs_seen(blocks, 34)[None] & np.asarray(inputs.mask.valid)[:, None, None]
    np.testing.assert_array_equal(weights > 0, seen)
    out = jnp.einsum("bhlm,bmhk->blhk", weights, inputs.value)
    np.testing.assert_allclose(block_sparse_attention(replace(inputs, blocks=blocks)), out, atol=1e-6)


def test_no_array_is_over_all_pairs():
    """The largest one of a gradient has so many numbers a token, whatever the length."""

    def largest(length):
        blocks = Blocks(jnp.zeros((H, length // 16 - 2, 2), jnp.int32), 16)
        shape = jax.ShapeDtypeStruct((1, length, H, K), jnp.float32)

        def loss(x):
            return block_sparse_attention(AttentionInputs(x, x, x, 1.0, blocks=blocks)).sum()

        return max(array.size for array in arrays_in(jax.make_jaxpr(jax.grad(loss))(shape).jaxpr)) / length

    assert largest(16_384) == pytest.approx(largest(2048), rel=0.02)


def test_rows_of_another_number_of_blocks_are_refused():
    blocks = Blocks(jnp.zeros((1, 3, 1), jnp.int32), SIZE)
    with pytest.raises(ValueError, match="rows of length 24 do not fill 5 blocks of 4"):
        block_sparse_attention(replace(inputs_of(24, 0.0), blocks=blocks))


@pytest.mark.parametrize(
    ("length", "first", "last", "window", "num_random", "heads", "rate", "dtype"),
    [
        pytest.param(40, 1, 1, 3, 2, H, 0.0, jnp.float32, id="BigBird", marks=pytest.mark.slow),
        pytest.param(34, 1, 1, 3, 3, 1, 0.3, jnp.float32, id="an odd number of blocks, the last not full, dropout"),
        pytest.param(
            28, 0, 0, 1, 2, H, 0.0, jnp.float32, id="no global blocks, a window of one", marks=pytest.mark.slow
        ),
        pytest.param(44, 2, 0, 5, 0, H, 0.0, jnp.bfloat16, id="no random blocks, bfloat16", marks=pytest.mark.slow),
    ],
)
def test_the_kernel_for_tpus_computes_the_same(
    length, first, last, window, num_random, heads, rate, dtype, monkeypatch
):
    """In interpret mode; outputs and gradients."""
    blocks = Blocks(drawn(-(-length // SIZE) - first - last, num_random, window, heads), SIZE, first, last, window)
    inputs = replace(inputs_of(length, rate), blocks=blocks)
    arrays = tuple(x.astype(dtype) for x in (inputs.query, inputs.key, inputs.value))
    weights = jnp.asarray(np.random.default_rng(2).normal(size=inputs.query.shape), jnp.float32)
    weights = jnp.where(inputs.mask.valid[..., None, None], weights, 0.0)

    def results():
        def loss(query, key, value):
            out = block_sparse_attention(replace(inputs, query=query, key=key, value=value)).astype(jnp.float32)
            return (out * weights).sum(), jnp.where(inputs.mask.valid[..., None, None], out, 0.0)

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*arrays)

    expected, kernel, calls = results(), block_sparse._flash, []

    def interpreted(*given):
        calls.append(given)
        return kernel(*given, interpret=True)

    monkeypatch.setattr(block_sparse, "platform", lambda: "tpu")
    monkeypatch.setattr(block_sparse, "_flash", interpreted)
    monkeypatch.setattr(block_sparse, "attention_for", lambda *_: dense_attention)
    for one, other in zip(jax.tree.leaves(results()), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        tolerance = 2e-6 if dtype == jnp.float32 else 0.05
        np.testing.assert_allclose(one.astype(jnp.float32), other.astype(jnp.float32), atol=tolerance)
    assert len(calls) == 1


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_time_and_memory_grow_with_the_length_on_a_tpu():
    """By its compiler, forward and backward, in the kernels and beside them."""
    from t5x_lite.layers.big_bird import BigBird
    from t5x_lite.planning.hlo import read_hlo
    from t5x_lite.planning.kernels import find_kernels, kernel_cycles
    from t5x_lite.planning.topology import Topology

    chip = Topology.parse("v5e:1x1")
    mesh = make_mesh(MeshShape(), chip.devices)
    sharding = replicated(mesh)

    def compiled(length):
        table = BigBird().random_blocks(1, H, length)[0]
        x = jax.ShapeDtypeStruct((1, length, H, 64), jnp.bfloat16, sharding=sharding)

        def loss(x):
            inputs = AttentionInputs(x, x, x, 0.125, blocks=BigBird().blocks(table))
            return block_sparse_attention(inputs).astype(jnp.float32).sum()

        with use_mesh(mesh):
            return jax.jit(jax.value_and_grad(loss)).lower(x).compile()

    short, long = compiled(2048), compiled(8192)
    programs = [read_hlo(one.as_text()) for one in (short, long)]
    names = " ".join(find_kernels(programs[0]))
    assert "block_sparse_attention_forward" in names and "block_sparse_attention_backward" in names
    cycles = [sum(kernel_cycles(program, chip).values()) for program in programs]
    assert cycles[1] < 4.6 * cycles[0]
    assert long.memory_analysis().temp_size_in_bytes < 8192 * H * 64 * 2 * 16
