"""Rows of examples with labels."""

import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.data.tasks.classification import Labeled

WORDS = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)


def row_of(length, *texts, label=0.0):
    builder = Labeled(length).start(WORDS)
    builder.add([*(np.array(text, np.int32) for text in texts), label])
    (row,) = builder.take()
    return row["ids"], builder


@pytest.mark.parametrize("label", [0.0, 1.0, 76.0, 2.5, -3.7, 1e-20, 4.199999])
def test_labels_are_in_the_row_to_the_last_bit(label):
    builder = Labeled(8).start(WORDS)
    builder.add([np.array([10], np.int32), label])
    (row,) = builder.take()
    assert row["label"].dtype == np.float32
    assert row["label"] == np.float32(label)


def test_one_text_and_a_pair():
    row, builder = row_of(8, [10, 11])
    assert row.tolist() == [2, 10, 11, 3, 0, 0, 0, 0]
    assert (builder.padding, builder.tokens, builder.too_long) == (4, 2, 0)
    row, _ = row_of(8, [10, 11], [12])
    assert row.tolist() == [2, 10, 11, 3, 12, 3, 0, 0]


@pytest.mark.parametrize("first", range(12))
@pytest.mark.parametrize("second", range(1, 12))
def test_the_longer_text_loses_a_token_at_a_time(first, second):
    """By doing just that."""
    texts = [list(range(10, 10 + first)), list(range(30, 30 + second))]
    row, builder = row_of(10, *texts)
    cut = [list(text) for text in texts]
    while sum(map(len, cut)) > 7:
        (cut[0] if len(cut[0]) > len(cut[1]) else cut[1]).pop()
    expected = [2, *cut[0], 3, *cut[1], 3]
    assert row.tolist() == expected + [0] * (10 - len(expected))
    assert builder.too_long == (first + second > 7)


def test_the_first_that_is_too_long_is_told():
    builder = Labeled(8).start(WORDS)
    for size in (3, 7, 9):
        builder.add([np.full(size, 10, np.int32), 0.0])
    assert builder.too_long == 2
    assert builder.first_too_long[0] == 2
    assert "9 ids, special ones included, which is over length=8" in builder.first_too_long[1]
