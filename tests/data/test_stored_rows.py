import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, Stream

LENGTH = 32
ROWS = Stream(LENGTH)


def ids(rows):
    return np.stack([row["ids"] for row in rows])


def test_rows_are_random_access_int32(corpus, tmp_path):
    rows = Data(corpus, Bytes(), held_out=0.1, cache_dir=str(tmp_path)).prepare(ROWS).train
    every = np.stack([rows[i]["ids"] for i in range(len(rows))])
    assert every.dtype == np.int32 and every.shape == (len(rows), LENGTH)
    order = [5, 0, len(rows) - 1, 5]
    np.testing.assert_array_equal(ids(rows.__getitems__(order)), every[order])
    np.testing.assert_array_equal(ids(rows[3:6]), every[3:6])
    np.testing.assert_array_equal(rows[-1]["ids"], every[-1])
    assert len(list(rows)) == len(rows)
    with pytest.raises(IndexError):
        rows[len(rows)]


def test_a_vocabulary_beyond_sixteen_bits(corpus, tmp_path):
    small, large = (
        Data(corpus, config, held_out=0.1, cache_dir=str(tmp_path)).prepare(ROWS)
        for config in (Bytes(), Bytes(extra_ids=70_000))
    )
    assert '"uint16"' in (small.path / "features.json").read_text()
    assert '"int32"' in (large.path / "features.json").read_text()
    np.testing.assert_array_equal(ids(small.train[:]), ids(large.train[:]))
