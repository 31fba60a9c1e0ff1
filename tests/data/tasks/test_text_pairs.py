import re

import numpy as np
import pytest

from t5x_lite.data import TextPairs, Vocabulary, batches
from t5x_lite.data.tasks import text_to_text
from t5x_lite.errors import InputError

PAD, EOS = 0, 1
VOCABULARY = Vocabulary(size=1 << 20, pad_id=PAD, eos_id=EOS)
SEEDS = [0, 1, 2]


def random_pairs(seed, count=200, longest=12):
    """Pairs of other ids each, of one to `longest` ids a side, a few sides with none."""
    random, ids = np.random.default_rng(seed), iter(range(10, VOCABULARY.size))

    def side():
        length = random.integers(1, longest + 1) if random.random() > 0.02 else 0
        return np.array([next(ids) for _ in range(length)], np.int32)

    return [[side(), side()] for _ in range(count)]


def build(layout, pairs):
    """All rows and the builder."""
    builder = layout.start(VOCABULARY)
    for pair in pairs:
        builder.add(pair)
    builder.finish()
    return joined(builder.take()), builder


def joined(rows):
    """Inputs and targets of each row side by side."""
    return np.array([[*row["inputs"], *row["targets"]] for row in rows], np.int32)


def columns_of(row, length):
    return {"inputs": row[:length], "targets": row[length:]}


def sides_of(row, length):
    """The segments of the two sides of a row, as lists, its marks and padding checked."""
    sides = []
    for side in (row[:length], row[length:]):
        ids = side.tolist()
        used = max(position for position, token in enumerate(ids) if token == EOS) + 1
        assert set(ids[used:]) <= {PAD} and PAD not in ids[:used]
        segments = [[]]
        for token in ids[:used]:
            if token == EOS:
                segments.append([])
            else:
                segments[-1].append(token)
        assert segments.pop() == []
        sides.append(segments)
    return sides


def as_lists(pairs):
    return [(source.tolist(), target.tolist()) for source, target in pairs]


@pytest.mark.parametrize("lengths", [(13, 13), (40, 25), (64, 200)])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_pair_is_whole_in_one_packed_row(lengths, seed):
    pairs = random_pairs(seed)
    layout = TextPairs(*lengths)
    rows, builder = build(layout, pairs)
    assert rows.dtype == np.int32 and rows.shape[1] == sum(lengths) == layout.num_ids
    found = []
    for row in rows:
        sources, targets = sides_of(row, lengths[0])
        assert len(sources) == len(targets)
        inside = list(zip(sources, targets, strict=True))
        # A row's pairs keep their order.
        numbers = [as_lists(pairs).index(pair) for pair in inside]
        assert numbers == sorted(numbers)
        assert as_lists(layout.pairs_of(columns_of(row, layout.length), VOCABULARY)) == inside
        found += inside
    assert sorted(map(str, found)) == sorted(map(str, as_lists(pairs)))
    assert builder.tokens == sum(len(source) + len(target) + 2 for source, target in pairs)
    assert builder.padding == rows.size - builder.tokens
    assert (builder.documents, builder.skipped, builder.too_long) == (len(pairs), 0, 0)
    if lengths != (13, 13):
        one_each, _ = build(TextPairs(*lengths, packed=False), pairs)
        assert len(rows) < 0.6 * len(one_each)


@pytest.mark.parametrize("seed", SEEDS)
def test_unpacked_rows_are_the_pairs_in_order(seed):
    pairs, layout = random_pairs(seed), TextPairs(15, 13, packed=False)
    rows, builder = build(layout, pairs)
    assert [pair for row in rows for pair in zip(*sides_of(row, 15), strict=True)] == as_lists(pairs)
    assert [
        pair for row in rows for pair in as_lists(layout.pairs_of(columns_of(row, layout.length), VOCABULARY))
    ] == as_lists(pairs)
    assert builder.padding == (rows == PAD).sum()


def test_open_rows_leave_less_padding_than_one(monkeypatch):
    pairs = random_pairs(0, count=2000, longest=20)
    (_, several), shares = build(TextPairs(40, 40), pairs), []
    for count in (1, 1000):
        monkeypatch.setattr(text_to_text, "_OPEN_ROWS", count)
        _, builder = build(TextPairs(40, 40), pairs)
        shares.append(builder.padding / (builder.rows * 80))
    one, all_of_them = shares
    share = several.padding / (several.rows * 80)
    assert share < 0.6 * one
    assert share < all_of_them + 0.01


def test_rows_come_out_as_soon_as_too_many_are_open():
    builder, pairs = TextPairs(40, 40).start(VOCABULARY), random_pairs(0, count=2000)
    waiting, taken = 0, []
    for number, pair in enumerate(pairs):
        builder.add(pair)
        ready = joined(builder.take())
        taken.append(ready)
        waiting += len(pair[0]) + len(pair[1]) + 2
        waiting -= sum(len(ids) + 1 for row in ready for side in sides_of(row, 40) for ids in side)
        assert 0 <= waiting <= text_to_text._OPEN_ROWS * 80, number
    builder.finish()
    once, _ = build(TextPairs(40, 40), pairs)
    np.testing.assert_array_equal(
        np.concatenate([rows for rows in (*taken, joined(builder.take())) if len(rows)]), once
    )


def test_a_pair_goes_into_the_first_row_with_room_for_both_sides():
    def side(start, length):
        return np.arange(start, start + length, dtype=np.int32)

    sizes = [(5, 2), (3, 7), (2, 3), (1, 1)]
    pairs = [[side(10 * n, source), side(10 * n + 5, target)] for n, (source, target) in enumerate(sizes, start=1)]
    rows, _ = build(TextPairs(10, 10), pairs)
    # The second's target is too long for the first row, which has room for the third, and then none for the fourth.
    assert rows.tolist() == [
        [10, 11, 12, 13, 14, 1, 30, 31, 1, 0, 15, 16, 1, 35, 36, 37, 1, 0, 0, 0],
        [20, 21, 22, 1, 40, 1, 0, 0, 0, 0, 25, 26, 27, 28, 29, 30, 31, 1, 45, 1],
    ]


LONG = [np.arange(10, 15, dtype=np.int32), np.arange(20, 29, dtype=np.int32)]
SHORT = [np.arange(30, 33, dtype=np.int32), np.arange(40, 42, dtype=np.int32)]


OVER = "the {} has {} ids, its EOS included, which is over {}"


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ((6, 9), OVER.format("target", 10, "target_length=9")),
        ((5, 10), OVER.format("source", 6, "length=5 (the objective's input_length)")),
        ((5, 9), "input_length) and " + OVER.format("target", 10, "target_length=9")),
    ],
)
def test_a_pair_over_the_lengths(lengths, problem):
    with pytest.raises(InputError, match=f"{re.escape(problem)}; raise it, or set too_long='skip' or 'cut'"):
        build(TextPairs(*lengths), [SHORT, LONG])
    for packed in (True, False):
        rows, builder = build(TextPairs(*lengths, packed=packed, too_long="skip"), [SHORT, LONG, SHORT, LONG])
        assert [pair for row in rows for pair in zip(*sides_of(row, lengths[0]), strict=True)] == 2 * as_lists([SHORT])
        assert (builder.documents, builder.skipped, builder.too_long) == (4, 2, 2)
        number, found = builder.first_too_long
        assert number == 2 and problem in found
        rows, builder = build(TextPairs(*lengths, packed=packed, too_long="cut"), [SHORT, LONG])
        cut, short = sorted(pair for row in rows for pair in zip(*sides_of(row, lengths[0]), strict=True))
        assert [short] == as_lists([SHORT])
        assert cut == tuple(ids[: length - 1].tolist() for ids, length in zip(LONG, lengths, strict=True))
        assert (builder.skipped, builder.too_long, builder.first_too_long[0]) == (0, 1, 2)
    # At the lengths exactly, nothing is too long.
    assert build(TextPairs(6, 10), [LONG])[1].padding == 0


@pytest.mark.parametrize(("token", "name"), [(PAD, "PAD"), (EOS, "EOS")])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("too_long", ["error", "skip", "cut"])
def test_ids_that_close_or_fill_rows_are_refused(token, name, side, too_long):
    pair = [np.array([10, 11]), np.array([12, 13])]
    pair[side == "target"][1] = token
    with pytest.raises(InputError, match=f"the {side} has the id {token}, which is {name}"):
        build(TextPairs(8, 8, too_long=too_long), [pair])


def test_a_tokenizer_that_pads_with_eos_can_have_a_pair_a_row():
    layout = TextPairs(5, 4, packed=False)
    builder = layout.start(Vocabulary(size=50, pad_id=7, eos_id=7))
    builder.add([np.array([10, 11]), np.array([20])])
    (row,) = builder.take()
    assert (row["inputs"].tolist(), row["targets"].tolist()) == ([10, 11, 7, 7, 7], [20, 7, 7, 7])
    assert as_lists(layout.pairs_of(row, Vocabulary(size=50, pad_id=7, eos_id=7))) == [([10, 11], [20])]
    assert (builder.padding, builder.tokens) == (4, 5)


@pytest.mark.parametrize("num_hosts", [2, 4])
def test_hosts_share_out_packed_rows(num_hosts):
    layout = TextPairs(30, 30)
    rows = [columns_of(row, 30) for row in build(layout, random_pairs(1))[0]]
    whole = batches(rows, batch_size=8, seed=5)
    share = 8 // num_hosts
    rows_of_hosts = [range(host * share, (host + 1) * share) for host in range(num_hosts)]
    hosts = [batches(rows, batch_size=8, seed=5, local=local) for local in rows_of_hosts]
    for step in (0, 3, 50):
        for name, column in whole[step].items():
            np.testing.assert_array_equal(np.concatenate([host[step][name] for host in hosts]), column)
