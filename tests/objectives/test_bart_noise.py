"""BART's noises one by one (Lewis et al. 2020, section 2.2 and figure 2)."""

from collections import Counter
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare, poisson

from t5x_lite.objectives.bart_denoising import (
    cut_lengths,
    in_order_of,
    infill,
    num_draws,
    poisson_lengths,
    random_slots,
    rotate,
)

MASK = 99
TEXT = "A B C . D E ."
FIRST = ord("A")


def ids(text, length):
    """Letters as ids, a full stop as 90; "_" is the mask. What is behind the text means nothing."""
    known = {"_": MASK, ".": 90}
    row = [known.get(letter) or ord(letter) for letter in text.split()]
    return jnp.array(row + [7] * (length - len(row)))


def text(row, size):
    known = {MASK: "_", 90: "."}
    return " ".join(known.get(i) or chr(i) for i in row.tolist()[:size])


def test_sentence_permutation():
    sentences = jnp.array([1, 1, 1, 1, 2, 2, 2, 0, 0])
    row = in_order_of(ids(TEXT, 9), sentences, jnp.array([0.8, 0.3, 0.0, 0.0]))
    assert text(row, 7) == "D E . A B C ."
    assert row[7:].tolist() == [7, 7]


@pytest.mark.parametrize(("first", "rotated"), [(0, TEXT), (2, "C . D E . A B"), (6, ". A B C . D E")])
def test_document_rotation(first, rotated):
    row = rotate(ids(TEXT, 9), 7, first)
    assert text(row, 7) == rotated
    assert row[7:].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("slots", "infilled"),
    [
        # As the paper's figure: D, E become one mask, and one is put in where nothing was.
        ([-1, -1, 0, -1, -1, 2, -1, -1], "A B _ C . _ ."),
        ([2, 3, 0, 2, 0], "_ _ _ _ _"),
        ([7, -1], "_"),
        ([-1] * 8, TEXT),
    ],
)
def test_text_infilling(slots, infilled):
    size = len(infilled.split())
    slots = slots[:size] + [-1] * (9 - size)
    row, is_mask = infill(ids(TEXT, 9), jnp.array(slots), MASK)
    assert text(row, size) == infilled
    assert is_mask.tolist() == [slot >= 0 for slot in slots]


@pytest.mark.parametrize("mean", [1.0, 3.0, 20.0])
def test_lengths_are_poisson(mean):
    drawn = np.asarray(poisson_lengths(jax.random.key(0), 40_000, mean))
    kinds = range(int(poisson.ppf(1e-3, mean)), int(poisson.ppf(0.999, mean)))
    counts = [(drawn == kind).sum() for kind in kinds]
    shares = poisson.pmf(kinds, mean)
    rest = len(drawn) - sum(counts), 1 - shares.sum()
    assert chisquare([*counts, rest[0]], np.array([*shares, rest[1]]) * len(drawn)).pvalue > 1e-3
    assert all(poisson.cdf(count - 1, mean * num_draws(count, mean)) < 1e-9 for count in (1, 2, 10, 100, 1000))


def test_lengths_that_are_used_are_poisson_and_hide_the_exact_number():
    """The last one is cut; as it was drawn, it belongs to the distribution."""
    count = 30
    keys = jax.random.split(jax.random.key(1), 2000)

    @jax.jit
    @jax.vmap
    def draw(key):
        drawn = poisson_lengths(key, num_draws(count, 3.0), 3.0)
        return drawn, cut_lengths(drawn, count, 100)

    drawn, lengths = map(np.asarray, draw(keys))
    used = lengths >= 0
    assert (np.where(used, lengths, 0).sum(1) == count).all()
    last = used.sum(1) - 1
    assert (used == (np.arange(drawn.shape[1]) <= last[:, None])).all()
    before_last = np.arange(drawn.shape[1]) < last[:, None]
    np.testing.assert_array_equal(lengths[before_last], drawn[before_last])
    counts = np.bincount(drawn[used].clip(0, 9))
    shares = [*poisson.pmf(range(9), 3.0), poisson.sf(8, 3.0)]
    assert chisquare(counts, np.array(shares) * used.sum()).pvalue > 1e-3


def test_empty_spans_find_room_or_are_left_out():
    drawn = jnp.array([0, 0, 1, 0, 3, 0, 2])
    assert cut_lengths(drawn, 4, 9).tolist() == [0, 0, 1, 0, 3, -1, -1]
    # Four ids become two masks, which leaves room for two more, or three where one place was free.
    assert cut_lengths(drawn, 4, 1).tolist() == [0, 0, 1, 0, 3, -1, -1]
    assert cut_lengths(drawn, 4, 0).tolist() == [0, 0, 1, -1, 3, -1, -1]
    assert cut_lengths(drawn, 1, 0).tolist() == [-1, -1, 1, -1, -1, -1, -1]
    assert cut_lengths(drawn, 0, 5).tolist() == [-1] * 7
    # What all draws do not reach, the last takes.
    assert cut_lengths(drawn, 20, 9).tolist() == [0, 0, 1, 0, 3, 0, 16]


def test_all_arrangements_of_spans_are_equally_likely():
    keys = jax.random.split(jax.random.key(0), 6000)
    slots, total = jax.jit(jax.vmap(lambda key: random_slots(key, jnp.array([2, -1, 0]), jnp.int32(4), 6)))(keys)
    assert (np.asarray(total) == 4).all()
    assert (np.asarray(slots[:, 4:]) == -1).all()
    counts = Counter(map(tuple, slots[:, :4].tolist()))
    possible = set(permutations([2, 0, -1, -1]))
    assert set(counts) <= possible
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > 1e-3
