import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.pretrained.writing import Row, row_batches


def rows(lengths):
    return [Row("", [index + 2] * length, 0) for index, length in enumerate(lengths)]


def test_every_row_comes_once_in_few_shapes():
    lengths = np.random.default_rng(0).integers(0, 300, 200)
    seen, shapes = [], set()
    for batch in row_batches(rows(lengths), pad_id=1, most_rows=24, longest=None):
        shapes.add(batch.ids.shape)
        assert len(batch.indices) == len(batch.ids)
        for index, ids, valid in zip(batch.indices, batch.ids, batch.valid, strict=True):
            assert ids[valid].tolist() == [index + 2] * lengths[index]
            assert set(ids[~valid].tolist()) <= {1}
        seen += batch.indices[: batch.count]
    assert sorted(seen) == list(range(200))
    assert {length for _, length in shapes} <= {32, 64, 128, 256, 512}
    assert {count for count, _ in shapes} <= {1, 2, 4, 8, 16, 24}


def test_rows_are_padded_to_no_more_than_there_is_room_for():
    batches = list(row_batches(rows([40, 0]), pad_id=0, most_rows=8, longest=50))
    assert [batch.ids.shape for batch in batches] == [(1, 32), (1, 50)]
    assert next(row_batches(rows([0]), pad_id=0, most_rows=8, longest=0)).ids.shape == (1, 0)


def test_padding_inside_a_row_stays():
    batch = next(row_batches([Row("", [5, 0, 6], 0, [True, False, True])], pad_id=0, most_rows=8, longest=None))
    assert batch.valid[0].astype(int).tolist()[:4] == [1, 0, 1, 0]


def test_no_rows_together():
    with pytest.raises(InputError, match="batch_size=0"):
        list(row_batches(rows([3]), pad_id=0, most_rows=0, longest=None))
