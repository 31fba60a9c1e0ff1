import shutil
import threading

import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, Stream, stored_rows
from t5x_lite.errors import InputError

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
    sizes = [sum(path.stat().st_size for path in made.path.glob("train-*.rows")) for made in (small, large)]
    assert sizes[1] - sizes[0] == 2 * LENGTH * len(small.train)
    np.testing.assert_array_equal(ids(small.train[:]), ids(large.train[:]))


def test_a_flipped_bit_is_one_sentence(corpus, tmp_path):
    data = Data(corpus, Bytes(), held_out=0.1, cache_dir=str(tmp_path))
    folder = data.prepare(ROWS).path
    shard = next(folder.glob("train-*.rows"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 4
    shard.write_bytes(content)
    message = f"the token store {folder} is damaged .*; remove that folder, and it is made anew"
    with data.prepare(ROWS) as store, pytest.raises(InputError, match=message):
        for row in store.train:
            assert row["ids"].shape == (LENGTH,)
    shutil.rmtree(folder)
    assert ids(data.prepare(ROWS).train).shape[1] == LENGTH, "it is made anew"


def test_where_tensorstore_finds_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    found = [stored_rows._location(f"{store}bucket/a/b.rows") for store in ("gs://", "s3://")]
    assert found[0] == {"driver": "gcs", "bucket": "bucket", "path": "a/b.rows"}
    options = {"endpoint": "http://localhost:1", "aws_region": "eu-west-1"}
    assert found[1] == {"driver": "s3", "bucket": "bucket", "path": "a/b.rows"} | options
    assert stored_rows._location(tmp_path / "b.rows") == {"driver": "file", "path": str(tmp_path / "b.rows")}
    with pytest.raises(InputError, match="hf://x/b.rows is in a store that rows cannot be kept in; choose a folder"):
        stored_rows._location("hf://x/b.rows")


@pytest.mark.parametrize("most", [0, 11])
def test_where_threads_are_refused(corpus, tmp_path, monkeypatch, most):
    """All of them, or the last ones alone."""
    store = Data(corpus, Bytes(), held_out=0.1, cache_dir=str(tmp_path)).prepare(ROWS)
    before, start = threading.active_count(), threading.Thread.start

    def refuse(thread):
        if threading.active_count() >= before + most:
            raise RuntimeError("can't start new thread")
        start(thread)

    stored_rows.check_threads.cache_clear()
    with (
        monkeypatch.context() as patch,
        pytest.raises(InputError, match=f"^the system starts {most} threads more .* takes 65; raise"),
    ):
        patch.setattr(threading.Thread, "start", refuse)
        store.train[0]
    assert threading.active_count() == before
    assert len(store.train[0]) == 1
