"""Rows of examples as a decoder reads them."""

import numpy as np
import pytest

from t5x_lite.data import Delimited, Vocabulary
from t5x_lite.data.layouts.base import UnfitDocumentError
from t5x_lite.data.stored_rows import RowFormat, Rows, RowWriter
from t5x_lite.errors import InputError

# As in GPT-2, padding is EOS, which is not a special id of these rows.
WORDS = Vocabulary(size=100, pad_id=99, eos_id=99)


def row_of(layout, *texts, label=0.0):
    builder = layout.start(WORDS)
    builder.add([*(np.array(text, np.int32) for text in texts), label])
    (row,) = builder.take()
    return row["ids"], builder


def test_one_text_and_a_pair():
    row, builder = row_of(Delimited(8), [10, 11])
    assert row.tolist() == [100, 10, 11, 102, 99, 99, 99, 99]
    assert (builder.padding, builder.tokens, builder.too_long) == (4, 2, 0)
    row, _ = row_of(Delimited(8), [10, 11], [12])
    assert row.tolist() == [100, 10, 11, 101, 12, 102, 99, 99]


@pytest.mark.parametrize("first", [1, 4, 9])
@pytest.mark.parametrize("second", [1, 4, 9])
def test_what_is_too_long_keeps_its_marks(first, second):
    row, builder = row_of(Delimited(10), range(10, 10 + first), range(30, 30 + second))
    text = row.tolist()
    assert (text[0], text.count(101), text.count(102)) == (100, 1, 1)
    middle, end = text.index(101), text.index(102)
    assert text[1:middle] == list(range(10, 10 + middle - 1))
    assert text[middle + 1 : end] == list(range(30, 30 + end - middle - 1))
    assert text[end + 1 :] == [99] * (9 - end)
    assert builder.too_long == (first + second > 7)


def test_pairs_alone():
    with pytest.raises(UnfitDocumentError, match="one text, which cannot be read in both orders; .*both_orders"):
        row_of(Delimited(8, pairs=True), [10])
    row_of(Delimited(8, pairs=True), [10], [11])


def test_a_row_too_short_for_marks():
    with pytest.raises(InputError, match="length=7 is too small"):
        Delimited(7)


@pytest.mark.parametrize(("num_ids", "dtype"), [(65_536, "uint16"), (65_537, "int32")])
def test_a_store_has_room_for_the_delimiters(num_ids, dtype, tmp_path):
    layout = Delimited(8)
    row = {"ids": np.full(8, num_ids - 1, np.int32), "label": np.float32(2.5)}
    row_format = RowFormat(layout.spec, num_ids)
    with RowWriter(tmp_path, row_format) as writer:
        writer.add({"train": [row], "held_out": []})
    assert len(row_format.encode(row)) == 8 * np.dtype(dtype).itemsize + 4 + 8  # a label and a checksum
    (read,) = Rows(tmp_path, writer.files["train"], row_format)
    assert read["ids"].dtype == np.int32
    np.testing.assert_array_equal(read["ids"], row["ids"])
    assert read["label"] == row["label"]
