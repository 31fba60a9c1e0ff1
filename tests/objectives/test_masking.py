import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from t5x_lite.data import Vocabulary
from t5x_lite.objectives import masking

from ..slow import mostly_slow

# Special ids lie at both ends and in between; every second id of the upper half continues a word.
SIZE, PAD, CLS, UNK, SEP, MASK = 60, 7, 0, 12, 31, 59
SPECIAL = (CLS, PAD, UNK, SEP, MASK)
TEXT = np.setdiff1d(np.arange(SIZE), SPECIAL)
CONTINUES = (np.arange(SIZE) >= 40) & (np.arange(SIZE) % 2 == 1)
MARKS = {"pad_id": PAD, "eos_id": SEP, "unk_id": UNK, "cls_id": CLS, "sep_id": SEP, "mask_id": MASK}
VOCABULARY = Vocabulary(SIZE, **MARKS, continuations=np.packbits(CONTINUES).tobytes())
ONE_TOKEN_WORDS = Vocabulary(SIZE, **MARKS)


def make_rows(length: int, count: int = 1000) -> np.ndarray:
    """Rows of every length, special ids strewn in; then one of text alone, one of special ids, and one of padding."""
    random = np.random.default_rng(length)
    rows = random.choice(TEXT, (count, length)).astype(np.int32)
    strewn = random.random(rows.shape) < 0.05
    rows[strewn] = random.choice([UNK, SEP, MASK, CLS], strewn.sum())
    sizes = random.integers(3, length + 1, count)
    rows[:, 0] = CLS
    rows[np.arange(count), sizes - 1] = SEP
    rows[np.arange(length) >= sizes[:, None]] = PAD
    rows[-3:] = np.stack([random.choice(TEXT, length), np.full(length, SEP), np.full(length, PAD)])
    return rows


def candidates_of(rows: np.ndarray) -> np.ndarray:
    return ~np.isin(rows, SPECIAL)


def starts_of(rows: np.ndarray) -> np.ndarray:
    """A word begins where an id begins one, and where a special id stands before it."""
    candidates = candidates_of(rows)
    behind_text = np.pad(candidates[:, :-1], ((0, 0), (1, 0)))
    return candidates & ~(CONTINUES[rows] & behind_text)


def counts_of(rows: np.ndarray) -> np.ndarray:
    return np.array([max(1, round(0.15 * n)) if n else 0 for n in (rows != PAD).sum(1)])


def over_rows(choose, rows: np.ndarray, vocabulary: Vocabulary = VOCABULARY, seed: int = 0):
    """`choose(key, candidates, starts, count)` for each row, compiled once for all of them."""
    counts = masking.mask_counts(rows.shape[1], 0.15)

    def one(key, ids):
        candidates = ~masking.is_special(ids, vocabulary)
        starts = masking.word_starts(ids, candidates, vocabulary)
        return choose(key, candidates, starts, jnp.asarray(counts)[(ids != PAD).sum()])

    keys = jax.random.split(jax.random.key(seed), len(rows))
    return jax.device_get(jax.jit(jax.vmap(one))(keys, rows))


def choose_tokens(key, candidates, starts, count):
    return masking.choose_tokens(key, candidates, count)


def choose_spans(key, candidates, starts, count):
    return masking.choose_spans(key, candidates, starts, count, masking.geometric_shares(0.2, 10))


@pytest.fixture(scope="module", params=mostly_slow([16, 128], 128))
def rows(request):
    return make_rows(request.param)


def words_of(starts: np.ndarray, candidates: np.ndarray) -> list[list[int]]:
    """The positions of each word of a row."""
    words: list[list[int]] = []
    for position in np.nonzero(candidates)[0].tolist():
        if starts[position]:
            words.append([])
        words[-1].append(position)
    return words


def test_tokens_are_as_many_as_asked_for_and_never_special(rows):
    chosen = over_rows(choose_tokens, rows)
    candidates = candidates_of(rows)
    np.testing.assert_array_equal(chosen.sum(1), np.minimum(counts_of(rows), candidates.sum(1)))
    assert not chosen[~candidates].any()
    assert chosen[-2:].sum() == 0


def assert_uniform_inclusion(chosen: np.ndarray, size: int) -> None:
    """Chi-square for `size` drawn without replacement: inclusions repel each other, which shrinks the statistic."""
    observed, places = chosen.sum(0), chosen.shape[1]
    expected = len(chosen) * size / places
    statistic = ((observed - expected) ** 2 / expected).sum() * (places - 1) / (places - size)
    assert chi2.sf(statistic, places - 1) > 1e-3


def test_every_candidate_is_equally_likely():
    rows = np.tile(make_rows(61)[0], (20_000, 1))
    assert (rows[0] == PAD).any()
    assert np.isin(rows[0, 1:-1], [SEP, UNK, MASK]).any()
    chosen = over_rows(choose_tokens, rows)
    assert_uniform_inclusion(chosen[:, candidates_of(rows)[0]], counts_of(rows)[0])


def test_every_subset_is_equally_likely():
    candidates = jnp.array([False, True, True, False, True, True, True, False])
    keys = jax.random.split(jax.random.key(0), 6000)
    drawn = jax.jit(jax.vmap(lambda key: masking.choose_tokens(key, candidates, jnp.int32(2))))(keys)
    counts = Counter(tuple(np.nonzero(row)[0].tolist()) for row in np.asarray(drawn))
    possible = list(itertools.combinations([1, 2, 4, 5, 6], 2))
    assert set(counts) == set(possible)
    assert chisquare([counts[subset] for subset in possible]).pvalue > 1e-3


def test_word_starts():
    rows = make_rows(61)
    # [CLS] play ##ing [UNK] ##ing ##ing [SEP]: what follows on a special id begins a word.
    rows[0, :7] = CLS, 40, 41, UNK, 41, 43, SEP
    found = over_rows(lambda key, candidates, starts, count: starts, rows)
    assert found[0, :7].tolist() == [False, True, False, False, True, False, False]
    np.testing.assert_array_equal(found, starts_of(rows))


def test_words_are_whole_and_fill_the_budget_as_far_as_they_fit(rows):
    chosen, candidates, starts = over_rows(masking.choose_words, rows), candidates_of(rows), starts_of(rows)
    assert not chosen[~candidates].any()
    for row, budget in enumerate(counts_of(rows)):
        words = words_of(starts[row], candidates[row])
        taken = [word for word in words if chosen[row, word].any()]
        assert all(chosen[row, word].all() for word in taken)
        spare = budget - sum(map(len, taken))
        assert spare >= 0
        assert all(len(word) > spare for word in words if word not in taken)


def test_words_of_one_token_fill_the_budget(rows):
    chosen = over_rows(masking.choose_words, rows, ONE_TOKEN_WORDS)
    np.testing.assert_array_equal(chosen.sum(1), np.minimum(counts_of(rows), candidates_of(rows).sum(1)))


def test_every_word_is_equally_likely():
    # Ten words of two tokens and room for two of them.
    row = np.array([CLS, *[40, 41] * 10, SEP], np.int32)
    rows = np.tile(row, (20_000, 1))
    chosen = over_rows(
        lambda key, candidates, starts, _: masking.choose_words(key, candidates, starts, jnp.int32(5)), rows
    )
    assert (chosen.sum(1) == 4).all()
    assert_uniform_inclusion(chosen[:, 1:-1:2], 2)


def spans_of(number: np.ndarray) -> list[np.ndarray]:
    """The positions of each span of a row, in the order they were drawn."""
    return [np.nonzero(number == index)[0] for index in range(number.max() + 1)]


def check_spans(rows, spans, starts, longest=10):
    candidates, chosen = candidates_of(rows), spans.number >= 0
    assert not chosen[~candidates].any()
    assert (chosen.sum(1) <= counts_of(rows)).all()
    assert (spans.start[~chosen] == 0).all()
    assert (spans.end[~chosen] == 0).all()
    for row in range(len(rows)):
        found = spans_of(spans.number[row])
        assert all(len(span) for span in found)
        # No two of them touch: there are as many runs of chosen positions as there are spans.
        assert (np.diff(np.pad(chosen[row].astype(int), (1, 0))) == 1).sum() == len(found)
        for span in found:
            first, last = span[0], span[-1]
            np.testing.assert_array_equal(span, np.arange(first, last + 1))
            np.testing.assert_array_equal(spans.start[row, span], first)
            np.testing.assert_array_equal(spans.end[row, span], last)
            assert starts[row, first]
            behind = last + 1
            assert behind == rows.shape[1] or starts[row, behind] or not candidates[row, behind]
            assert starts[row, span].sum() <= longest


def test_spans_are_whole_words_apart_from_each_other_and_within_the_budget(rows):
    check_spans(rows, over_rows(choose_spans, rows), starts_of(rows))


def test_spans_of_one_token_words_fill_the_budget_exactly(rows):
    spans = over_rows(choose_spans, rows, ONE_TOKEN_WORDS)
    check_spans(rows, spans, candidates_of(rows))
    hidden, budget = (spans.number >= 0).sum(1), counts_of(rows)
    # All but rows with so few words that every one left is next to a span.
    for row in np.nonzero(hidden < budget)[0]:
        words = np.pad(spans.number[row, candidates_of(rows)[row]] >= 0, 1)
        assert (words[:-2] | words[1:-1] | words[2:]).all()
    assert (hidden == budget)[:-2].mean() > 0.99


@pytest.fixture(scope="module")
def long_rows():
    """300 rows of 512 one-token words and their spans."""
    rows = np.random.default_rng(0).choice(TEXT, (300, 512)).astype(np.int32)
    rows[:, 0], rows[:, -1] = CLS, SEP
    return rows, over_rows(choose_spans, rows, ONE_TOKEN_WORDS)


def test_span_lengths_are_geometric(long_rows):
    """Joshi et al. 2020, section 3.1: Geometric(0.2) up to 10; the budget of 77 is met exactly."""
    rows, spans = long_rows
    check_spans(rows, spans, candidates_of(rows))
    assert ((spans.number >= 0).sum(1) == 77).all()
    # Seven spans of ten words fit into the budget, so that none of them is cut.
    lengths = np.array([len(span) for number in spans.number for span in spans_of(number)[:7]])
    shares = 0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum()
    assert chisquare(np.bincount(lengths, minlength=11)[1:], len(lengths) * shares).pvalue > 1e-3
    assert lengths.mean() == pytest.approx(3.8, abs=0.1)


def test_spans_lie_anywhere_but_across_a_special_id():
    """Three words: eight places in a stretch of ten words, two in one of four, all equally likely."""
    row = np.array([CLS, *[10] * 10, SEP, *[10] * 4, SEP, 10, 10, SEP], np.int32)

    def one_span(key, candidates, starts, _):
        return masking.choose_spans(key, candidates, starts, jnp.int32(3), (0.0, 0.0, 1.0))

    spans = over_rows(one_span, np.tile(row, (5000, 1)))
    assert ((spans.number >= 0).sum(1) == 3).all()
    places = Counter(spans.start.max(1).tolist())
    assert set(places) == {*range(1, 9), 12, 13}
    assert chisquare(list(places.values())).pvalue > 1e-3


def test_a_span_with_no_place_long_enough_becomes_shorter():
    row = np.array([CLS, 10, 10, SEP, 10, SEP, 10, PAD], np.int32)

    def ten_words(key, candidates, starts, _):
        return masking.choose_spans(key, candidates, starts, jnp.int32(3), (0.0,) * 9 + (1.0,))

    spans = over_rows(ten_words, row[None])
    assert [span.tolist() for span in spans_of(spans.number[0])] == [[1, 2], [6]]


@pytest.mark.parametrize("choose", [choose_tokens, masking.choose_words, choose_spans])
def test_jit_and_vmap_equal_row_by_row(choose):
    rows = make_rows(61)[[0, 1, 2, 3, -3, -2, -1]]
    together = over_rows(choose, rows)
    counts, keys = counts_of(rows), jax.random.split(jax.random.key(0), len(rows))
    one = jax.jit(choose)
    for row in range(len(rows)):
        alone = one(keys[row], candidates_of(rows)[row], starts_of(rows)[row], counts[row])
        jax.tree.map(lambda a, t, row=row: np.testing.assert_array_equal(a, t[row]), alone, together)


def hide(rows, chosen, *, mask_share=0.8, random_share=0.1, group=None):
    keys = jax.random.split(jax.random.key(0), len(rows))
    shares = {"mask_share": mask_share, "random_share": random_share}

    def one(key, ids, chosen, group):
        return masking.hide(key, ids, chosen, VOCABULARY, **shares, group=group)

    return np.asarray(jax.jit(jax.vmap(one))(keys, rows, chosen, group))


def test_eighty_ten_ten():
    original = 20
    rows = np.full((2000, 30), original, np.int32)
    chosen = np.random.default_rng(0).random(rows.shape) < 0.5
    shown = hide(rows, chosen)
    assert (shown[~chosen] == original).all()
    seen, asked = shown[chosen], chosen.sum()
    # A random token is the original once in as many draws as there are tokens.
    by_chance = 0.1 / len(TEXT)
    counts = [(seen == MASK).sum(), (seen == original).sum(), ((seen != MASK) & (seen != original)).sum()]
    shares = np.array([0.8, 0.1 + by_chance, 0.1 - by_chance])
    assert chisquare(counts, asked * shares).pvalue > 1e-3
    others = np.setdiff1d(TEXT, [original])
    random_ids = seen[(seen != MASK) & (seen != original)]
    assert set(random_ids.tolist()) == set(others.tolist())
    assert chisquare(np.bincount(random_ids, minlength=SIZE)[others]).pvalue > 1e-3


def test_random_tokens_are_never_special_and_uniform():
    tokens = np.asarray(jax.jit(lambda key: masking.random_tokens(key, 50_000, VOCABULARY))(jax.random.key(0)))
    assert set(tokens.tolist()) == set(TEXT.tolist())
    assert chisquare(np.bincount(tokens, minlength=SIZE)[TEXT]).pvalue > 1e-3


def test_a_group_shares_its_fate():
    rows = np.full((3000, 12), 20, np.int32)
    group = np.tile(np.repeat([0, 1, -1, 2], 3), (3000, 1))
    shown = hide(rows, group >= 0, group=group)
    assert (shown[:, 6:9] == 20).all()
    fates = []
    for columns in (slice(0, 3), slice(3, 6), slice(9, 12)):
        part = shown[:, columns]
        masked, kept = (part == MASK).all(1), (part == 20).all(1)
        assert (masked | ~(part == MASK).any(1)).all()
        fates.append(np.stack([masked, kept, ~masked & ~kept]))
    # Three random tokens are all the original almost never.
    assert chisquare(np.concatenate(fates, 1).sum(1), 9000 * np.array([0.8, 0.1, 0.1])).pvalue > 1e-3
    # Groups differ from each other, and so do the tokens of one that is drawn at random.
    assert 0.6 < (fates[0][0] == fates[1][0]).mean() < 0.75
    at_random = shown[:, 0:3][fates[0][2]]
    assert (at_random[:, 0] != at_random[:, 1]).mean() > 0.9


def test_content_keys_follow_the_ids_and_their_order():
    ids = jnp.array([5, 6, 7, 8])
    draws = {
        tuple(jax.random.bits(masking.content_key(jnp.asarray(row)), (2,)).tolist())
        for row in ([5, 6, 7, 8], [6, 5, 7, 8], [5, 6, 7, 9], [0, 0, 0, 0])
    }
    assert len(draws) == 4
    assert tuple(jax.random.bits(masking.content_key(ids), (2,)).tolist()) in draws


def test_shares_are_distributions():
    assert masking.harmonic_shares(3) == pytest.approx((6 / 11, 3 / 11, 2 / 11))
    assert sum(masking.geometric_shares(0.2, 10)) == pytest.approx(1.0)
    assert masking.geometric_shares(0.5, 2) == pytest.approx((2 / 3, 1 / 3))
