"""Mixtures: how often each part is drawn, and that batches are a function of the seed and the step."""

from collections import Counter

import numpy as np
import pytest

from t5x_lite.data import Equal, Fixed, Mixture, Part, Proportional, PythonDocs, batches
from t5x_lite.data.stored_rows import MixedRows, RowsInTurns
from t5x_lite.errors import InputError

# Grain's shuffle takes as long for a row as a part has fewer than 65,536.
SIZES = (40, 100, 860)


def rows_of(size, part):
    """Row i of part p is filled with 1000 p + i."""
    return [{"ids": np.full(2, 1000 * part + number, np.int32)} for number in range(size)]


PARTS = [rows_of(size, part) for part, size in enumerate(SIZES)]


def drawn(rates, count, batch_size=10, **options):
    dataset = batches(MixedRows(PARTS, rates), batch_size=batch_size, seed=1, **options)
    return np.concatenate([dataset[step]["ids"][:, 0] for step in range(count // batch_size)])


@pytest.mark.parametrize(
    ("rates", "shares"),
    [
        (Proportional(), (0.04, 0.1, 0.86)),
        (Proportional(limit=80), (0.2, 0.4, 0.4)),
        (Proportional(temperature=2.0), np.sqrt(SIZES) / np.sqrt(SIZES).sum()),
        (Proportional(limit=80, temperature=4.0), np.power((1, 2, 2), 0.25) / np.power((1, 2, 2), 0.25).sum()),
        (Equal(), (1 / 3, 1 / 3, 1 / 3)),
        (Fixed((1.0, 2.0, 5.0)), (0.125, 0.25, 0.625)),
    ],
)
def test_parts_are_drawn_at_their_rates(rates, shares):
    """Raffel et al. 2020, section 3.5.2; counted over two thousand draws."""
    assert rates.of(SIZES) == pytest.approx(list(shares))
    counts = np.bincount(drawn(rates.of(SIZES), 2000, shuffle=False) // 1000)
    np.testing.assert_allclose(counts / 2000, shares, atol=6e-4, rtol=0.011)


def test_every_pass_through_a_part_is_another_permutation_of_it():
    values = drawn(Equal().of(SIZES), 600)
    middle = values[values // 1000 == 1]
    first, second = middle[:100].tolist(), middle[100:].tolist()
    assert sorted(first) == list(range(1000, 1100))
    assert first[: len(second)] != second
    assert Counter(values[values // 1000 == 0][:200].tolist()) == dict.fromkeys(range(40), 5)
    assert len(set(values[values // 1000 == 2].tolist())) == 200


def test_parts_are_spread_evenly():
    """Any hundred draws hold each part as often as its rate says, but for one or two."""
    counts = [
        np.bincount(part // 1000, minlength=3)
        for part in drawn(Fixed((1.0, 2.0, 5.0)).of(SIZES), 4000, shuffle=False).reshape(-1, 100)
    ]
    np.testing.assert_allclose(counts, np.broadcast_to([12.5, 25, 62.5], (40, 3)), atol=2)


def test_a_batch_is_a_function_of_seed_and_step():
    rates = Equal().of(SIZES)
    whole = batches(MixedRows(PARTS, rates), batch_size=8, seed=3)
    for step in (0, 5, 1_000_000):
        again = batches(MixedRows(PARTS, rates), batch_size=8, seed=3)[step]
        np.testing.assert_array_equal(whole[step]["ids"], again["ids"])
        hosts = [
            batches(MixedRows(PARTS, rates), batch_size=8, seed=3, local=part)[step]["ids"]
            for part in np.split(np.arange(8), 4)
        ]
        np.testing.assert_array_equal(whole[step]["ids"], np.concatenate(hosts))
    assert (whole[5]["ids"] != batches(MixedRows(PARTS, rates), batch_size=8, seed=4)[5]["ids"]).any()


def test_one_part_alone_is_drawn_in_passes():
    dataset = batches(MixedRows(PARTS[1:2], [1.0]), batch_size=50, seed=0)
    for epoch in (0, 4):
        found = np.concatenate([dataset[2 * epoch]["ids"], dataset[2 * epoch + 1]["ids"]])[:, 0]
        assert sorted(found.tolist()) == list(range(1000, 1100))


def test_without_repeat_every_row_comes_once():
    found = drawn(Fixed((9.0, 1.0, 1.0)).of(SIZES), 1000, repeat=False)
    assert sorted(found.tolist()) == sorted(int(row["ids"][0]) for part in PARTS for row in part)


def test_rows_by_number():
    rows = MixedRows(PARTS, [1.0, 1.0, 1.0])
    assert len(rows) == 1000
    assert [int(row["ids"][0]) for row in rows[39:41]] == [39, 1000]
    assert int(rows[-1]["ids"][0]) == 2859
    assert [int(row["ids"][0]) for row in rows.__getitems__([999, 0, 40])] == [2859, 0, 1000]
    with pytest.raises(IndexError):
        rows[1000]


def test_rows_in_turns():
    rows = RowsInTurns([rows_of(size, part) for part, size in enumerate((1, 3, 4))])
    assert [int(row["ids"][0]) for row in rows] == [0, 1000, 2000, 1001, 2001, 1002, 2002, 2003]


DOCS = PythonDocs()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Mixture(()), r"parts=\(\) are not names"),
        (lambda: Mixture((Part("a", DOCS), Part("a", DOCS))), r"parts=\('a', 'a'\) are not names"),
        (lambda: Mixture((Part("a/b", DOCS),)), "parts='a/b' has a slash"),
        (lambda: Mixture((Part("b", Mixture((Part("a", DOCS),))),)), "parts='b' is a mixture in a mixture"),
        (lambda: Mixture((Part("a", DOCS),), Fixed((1.0, 2.0))), "do not go with 1 parts"),
        (lambda: Fixed((1.0, 0.0)), "are not rates"),
        (lambda: Proportional(limit=-1), "limit=-1"),
        (lambda: Proportional(temperature=0.0), "temperature=0.0"),
    ],
)
def test_bad_mixtures(make, problem):
    with pytest.raises(InputError, match=problem):
        make()
