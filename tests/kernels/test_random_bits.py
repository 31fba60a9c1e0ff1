import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from t5x_lite.kernels.random_bits import HASH, bits_at, hash_key
from t5x_lite.parallel import MeshShape, make_mesh

SHAPE = (8, 8, 1024)
SIGMAS = 5.0


def dropout_key(seed=0, step=0):
    """The key that a train step converts."""
    return hash_key(jax.random.split(jax.random.fold_in(jax.random.key(seed), step))[1])


@pytest.fixture(scope="module")
def draw():
    """`draw(key)`: 32 bits for each element of SHAPE."""
    compiled = jax.jit(partial(jax.random.bits, shape=SHAPE))
    return lambda key: np.asarray(compiled(key))


def to_signs(bits):
    """1 or -1 for each bit of each number: [numbers, 32]."""
    return 2.0 * np.unpackbits(bits.ravel().view(np.uint8), bitorder="little").reshape(-1, 32).astype(np.float32) - 1.0


def assert_independent(one, other):
    """That no bit of one array says anything of a bit of the other at the same index; both are `to_signs`."""
    correlations = one.T @ other / len(one)
    assert np.abs(correlations).max() < (SIGMAS + 1) * len(one) ** -0.5  # of 1,024 pairs of bits


@pytest.mark.parametrize("key", [dropout_key(), hash_key(jax.random.key(0)), hash_key(jax.random.key(7))])
def test_bits_are_uniform(draw, key):
    """Under keys that nobody has split too, whose words are nearly equal."""
    bits = draw(key)
    assert np.abs(to_signs(bits).mean(0)).max() < SIGMAS * bits.size**-0.5
    for shift in range(0, 32, 8):
        counts = np.bincount((bits.ravel() >> shift) & 255, minlength=256)
        chi_square = ((counts - bits.size / 256) ** 2).sum() / (bits.size / 256)
        assert abs(chi_square - 255) < SIGMAS * (2 * 255) ** 0.5
    for axis in range(bits.ndim):  # of every row, position and feature
        others = tuple(n for n in range(bits.ndim) if n != axis)
        means = (bits >= 2**31).mean(others)
        assert np.abs(means - 0.5).max() < SIGMAS * 0.5 * (means.size / bits.size) ** 0.5


def test_neighbours_are_independent(draw):
    bits = draw(dropout_key())
    for axis, distance in itertools.product(range(bits.ndim), (1, 2, 4)):
        size = bits.shape[axis]
        one, other = bits.take(range(size - distance), axis), bits.take(range(distance, size), axis)
        assert_independent(to_signs(one), to_signs(other))


def test_corners_of_rectangles_are_independent(draw):
    """What a row and a column each add to the hash cancels over the four corners of a rectangle."""
    signs = np.where(draw(dropout_key()) >= 2**31, 1.0, -1.0)
    for rows, columns in itertools.product((1, 2, 3), (1, 2, 3, 512)):
        moved = np.roll(signs, rows, 1), np.roll(signs, columns, 2), np.roll(signs, (rows, columns), (1, 2))
        assert abs((signs * moved[0] * moved[1] * moved[2]).mean()) < SIGMAS * signs.size**-0.5


def test_a_matrix_is_not_symmetric_though_both_words_of_a_key_are_equal():
    bits = np.asarray(jax.random.bits(hash_key(jax.random.key(0)), (512, 512)))
    assert (bits == bits.T).sum() <= 512 + 2
    assert len(np.unique(np.diagonal(bits))) == 512


def test_keys_steps_and_layers_are_independent(draw):
    """Keys whose words differ in one bit too."""
    key = dropout_key()
    data = jax.random.key_data(key)
    others = [dropout_key(seed=1), dropout_key(step=1), *jax.random.split(key, 2), jax.random.fold_in(key, 2)]
    others += [jax.random.wrap_key_data(data ^ jnp.array(flip, jnp.uint32), impl=HASH) for flip in ((1, 0), (0, 1))]
    arrays = [to_signs(draw(one)) for one in (key, *others)]
    for one, other in itertools.combinations(arrays, 2):
        assert_independent(one, other)


def test_children_of_a_key_are_those_of_threefry():
    key = jax.random.key(3)
    for derive in (lambda key: jax.random.split(key, (2, 3)), partial(jax.random.fold_in, data=5), lambda key: key):
        of_hash = derive(hash_key(key))
        assert of_hash.dtype != key.dtype
        np.testing.assert_array_equal(jax.random.key_data(of_hash), jax.random.key_data(derive(key)))
    np.testing.assert_array_equal(jax.random.key_data(jax.random.key(3, impl=HASH)), jax.random.key_data(key))


def test_bits_never_change():
    """A resumed run draws what it would have drawn; the numbers come from the formula in Python's integers."""

    def mix(x):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            x = (x ^ x >> shift) * factor % 2**32
        return x

    shape, (first, second) = (3, 2, 5), jax.random.key_data(dropout_key()).tolist()
    expected = [
        mix(mix((2 * i + j) ^ first) ^ mix((k * 0x9E3779B9 + second) % 2**32))
        for i, j, k in itertools.product(*map(range, shape))
    ]
    bits = jax.random.bits(dropout_key(), shape)
    assert bits.ravel().tolist() == expected
    for width, dtype in ((8, jnp.uint8), (16, jnp.uint16)):
        assert jax.random.bits(dropout_key(), shape, dtype).ravel().tolist() == [x % 2**width for x in expected]
    assert int(jax.random.bits(dropout_key())) == expected[0]


def test_both_words_of_64_bits_are_drawn():
    with jax.enable_x64(True):
        for key in (dropout_key(), hash_key(jax.random.key(0))):
            bits = np.asarray(jax.random.bits(key, SHAPE, jnp.uint64))
            high, low = (bits >> 32).astype(np.uint32), (bits % 2**32).astype(np.uint32)
            np.testing.assert_array_equal(high, jax.random.bits(key, SHAPE, jnp.uint32))
            assert_independent(to_signs(high), to_signs(low))


@pytest.mark.parametrize("spec", [("data", "sequence", "tensor"), (("data", "sequence"), None, "tensor")])
def test_shards_are_drawn_where_they_are(spec):
    """The same bits on eight devices, and none of them is sent."""
    mesh, shape = make_mesh(MeshShape(2, tensor=2, sequence=2)), (4, 8, 16)
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    everywhere = NamedSharding(mesh, PartitionSpec())
    key = jax.device_put(dropout_key(), everywhere)
    draw = jax.jit(partial(jax.random.bits, shape=shape), in_shardings=everywhere, out_shardings=sharding)
    bits = draw(key)
    assert bits.sharding.shard_shape(shape) != shape
    np.testing.assert_array_equal(bits, jax.random.bits(dropout_key(), shape))
    program = draw.lower(key).compile().as_text()
    assert not any(word in program for word in ("all-gather", "all-reduce", "collective-permute", "all-to-all"))
    assert "u32[4,8,16]" not in program and "s32[4,8,16]" not in program


def test_vmap_over_keys_is_a_loop_over_them():
    keys = jax.random.split(dropout_key(), (2, 3))
    draw = partial(jax.random.bits, shape=(4, 5))
    mapped = jax.vmap(jax.vmap(draw))(keys)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(mapped[i, j], draw(keys[i, j]))
    _, scanned = jax.lax.scan(lambda _, key: (None, draw(key)), None, keys[0])
    np.testing.assert_array_equal(scanned, mapped[0])


def test_an_array_of_other_rows_has_other_bits_past_the_first():
    one, other = (np.asarray(jax.random.bits(dropout_key(), shape)) for shape in ((4, 6, 8), (4, 5, 8)))
    np.testing.assert_array_equal(one[0, :5], other[0])
    assert not (one[1:, :5] == other[1:]).any()


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        # 2^32 rows of 2^14 columns; then twice as many, the second dimension being columns.
        ((2**16, 2**16, 2**14), ((2**16, 1), (1,))),
        ((2**17, 2**16, 2**14), ((1,), (2**14, 1))),
        ((2**32,), ((), (1,))),
    ],
)
def test_more_than_two_to_the_32_elements_do_not_repeat(shape, strides):
    random = np.random.default_rng(0)
    index = [random.integers(0, size, 4000) for size in shape]
    index = [np.concatenate([x, np.arange(200) % size]) for x, size in zip(index, shape, strict=True)]
    bits = np.asarray(bits_at(jax.random.key_data(dropout_key()), [jnp.asarray(x, jnp.uint32) for x in index], shape))
    # The same as of a small array whose rows and columns have these numbers.
    rows, columns = (
        sum((x.astype(object) * stride for x, stride in zip(part, of_part, strict=True)), np.zeros(4200, object))
        for part, of_part in zip((index[: len(strides[0])], index[len(strides[0]) :]), strides, strict=True)
    )
    assert max(rows.max(), columns.max()) < 2**32
    pair = [jnp.asarray(x.astype(np.uint32)) for x in (rows, columns)]
    np.testing.assert_array_equal(bits, bits_at(jax.random.key_data(dropout_key()), pair, (2**32, 2**32)))
    elements = {*zip(*(x.tolist() for x in index), strict=True)}
    assert len({*zip(rows, columns, strict=True)}) == len(elements)
    assert abs(len(np.unique(bits)) - len(elements)) <= 2


def test_elements_of_a_period_apart_differ():
    """Of one column, 2^32 elements apart."""
    key, shape = jax.random.key_data(dropout_key()), (2**10, 2**16, 2**10, 2**8)
    index = [jnp.arange(2**10, dtype=jnp.uint32), jnp.uint32(0), jnp.uint32(0), jnp.uint32(3)]
    assert len(np.unique(bits_at(key, index, shape))) == 2**10


def test_what_32_bits_do_not_number_is_refused():
    key = jax.random.key_data(dropout_key())
    for shape in ((2**33,), (2**33, 2), (2, 2**33), (2**20, 2**30, 2**30)):
        with pytest.raises(ValueError, match=r"shape=\(.*\) has more elements than the hash can number; draw it in"):
            bits_at(key, [jnp.uint32(0)] * len(shape), shape)
