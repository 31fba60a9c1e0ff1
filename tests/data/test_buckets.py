"""Text, preparing and rows in a bucket: a real server of S3's interface on this machine, which fails as networks do."""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.data import Data, Stream, TextFiles, WordPiece, batches, prefetch
from t5x_lite.data.records import input_files, remote_files
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError

from ..s3_bucket import Proxy, faults, s3_bucket

pytest.importorskip("moto.server", reason="needs moto[server], as in .[oracle]")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs, as in .[oracle]")
pytestmark = pytest.mark.oracle
ROWS = Stream(32)
SHARDS = 3


@pytest.fixture(scope="module")
def bucket() -> Iterator[Proxy]:
    """`s3://bucket`, with the corpus in `c4/`."""
    with pytest.MonkeyPatch.context() as patch, s3_bucket() as proxy:
        patch.setattr(input_files, "_SHARD_BYTES", 1)
        patch.setattr(remote_files, "_FIRST_WAIT", 0.01)
        yield proxy


@pytest.fixture(autouse=True)
def no_faults(bucket):
    yield
    bucket.faults = iter(())


@pytest.fixture(scope="module")
def files(bucket, corpus) -> list[str]:
    urls = [f"s3://bucket/c4/train.{number:05d}.json.gz" for number in range(SHARDS)]
    for number, url in enumerate(urls):
        lines = [json.dumps({"text": text}) + "\n" for text in corpus.texts[number::SHARDS]]
        s3fs.S3FileSystem().pipe(url, gzip.compress("".join(lines).encode(), mtime=0))
    return urls


def test_text_is_listed_and_read(bucket, files, corpus):
    expected = [text for number in range(SHARDS) for text in corpus.texts[number::SHARDS]]
    for path in ("s3://bucket/c4", "s3://bucket/c4/", "s3://bucket/c4/train.*.json.gz", "s3://bucket/c?/*.gz"):
        assert list(TextFiles((path,)).documents()) == expected
    assert list(TextFiles((files[1],)).documents()) == list(corpus.texts[1::SHARDS])
    assert [str(file) for file in TextFiles(("s3://bucket/c4",)).files()] == files
    assert len(TextFiles(("s3://bucket/c4",)).shards()) == SHARDS


def test_the_fingerprint_reads_nothing_and_follows_the_content(bucket, files):
    source, s3 = TextFiles(("s3://bucket/print",)), s3fs.S3FileSystem()
    prints = []
    for content in (b"one", b"two", b"one"):
        s3.pipe("s3://bucket/print/a.txt", content)
        before = bucket.requests
        prints.append(source.fingerprint())
        assert bucket.requests - before <= 2
    assert prints[0] == prints[2] != prints[1]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/none", "file or folder does not exist; correct the path"),
        ("s3://bucket/none*.txt", "glob matches no file; correct the path"),
        ("s3://no-bucket/x.txt", "does not exist|cannot be read"),
        ("nothing://x/y", "is of no kind that can be read"),
    ],
)
def test_what_is_not_there(bucket, path, message):
    with pytest.raises(InputError, match=message):
        list(TextFiles((path,)).documents())


@pytest.mark.parametrize("seed", range(3))
def test_faults_are_read_over(bucket, files, seed, monkeypatch):
    monkeypatch.setattr(remote_files, "_BLOCK_BYTES", 1000)
    expected = list(TextFiles(("s3://bucket/c4",)).documents())
    with faults(bucket, seed, 0.2):
        assert list(TextFiles(("s3://bucket/c4",)).documents()) == expected


def test_a_bucket_that_stays_away_is_one_sentence(bucket, files, monkeypatch):
    monkeypatch.setattr(remote_files, "_ATTEMPTS", 1)  # in which s3fs tries several times and waits
    bucket.faults = iter(lambda: "error", None)
    with pytest.raises(
        InputError, match=r"s3://bucket/c4/train.00000.json.gz cannot be read \(.*\); see that it is there"
    ):
        list(TextFiles((files[0],)).documents())


@pytest.fixture(scope="module")
def data(files) -> Data:
    return Data(TextFiles(("s3://bucket/c4",)), WordPiece(vocab_size=200), held_out=0.1)


@pytest.fixture(scope="module")
def local(data, tmp_path_factory):
    """The same rows on a disk."""
    return replace(data, cache_dir=str(tmp_path_factory.mktemp("cache"))).prepare(ROWS)


def test_rows_are_prepared_in_the_bucket_and_read_there(bucket, data, local):
    from etils import epath

    made = data.prepare_in(epath.Path("s3://bucket/data"), ROWS, workers=2)
    assert made.key == local.key
    names = [path.name for path in epath.Path(f"s3://bucket/data/stores/{made.key}").iterdir()]
    assert sorted(names) == sorted(path.name for path in local.path.iterdir())
    opened = replace(data, prepared="s3://bucket/data").prepare(ROWS)
    assert opened.tokenizer.fingerprint == local.tokenizer.fingerprint
    np.testing.assert_array_equal(stack(opened.train[:])["ids"], stack(local.train[:])["ids"])
    before = bucket.requests
    assert len(opened.train[5:15]) == 10
    assert bucket.requests - before <= 10, "a request a row, and none for what is known"


def test_batches_come_through_faults(bucket, data, local):
    from etils import epath

    data.prepare_in(epath.Path("s3://bucket/faults"), ROWS)
    opened = replace(data, prepared="s3://bucket/faults").prepare(ROWS)
    draw = random.Random(1)
    bucket.faults = (draw.choice(["error", "cut"]) if number % 50 == 9 else "" for number in range(10_000))
    read = [prefetch(batches(rows, batch_size=8, seed=3)) for rows in (opened.train, local.train)]
    for _ in range(12):
        here, there = map(next, read)
        np.testing.assert_array_equal(here["ids"], there["ids"])
    for each in read:
        each.close()


def test_a_cache_in_a_bucket(data, local):
    store = replace(data, cache_dir="s3://bucket/cache").prepare(ROWS)
    assert store.key == local.key and len(store.held_out[:]) == len(local.held_out)
    again = replace(data, cache_dir="s3://bucket/cache").prepare(ROWS)
    np.testing.assert_array_equal(stack(again.train[:9])["ids"], stack(local.train[:9])["ids"])


@pytest.mark.parametrize("name", ["train-00001-000.rows", "store.json", "checksums.0.json", "tokenizer/tokenizer.json"])
def test_a_half_written_store_is_not_read(data, local, name):
    s3, folder = s3fs.S3FileSystem(), f"s3://bucket/half/stores/{local.key}"
    half = replace(data, prepared="s3://bucket/half")
    if not s3.exists(folder):
        from etils import epath

        data.prepare_in(epath.Path("s3://bucket/half"), ROWS)
    content = s3.cat_file(f"{folder}/{name}")
    for damaged in (content[:-3], None):
        if damaged is None:
            s3.rm_file(f"{folder}/{name}")
        else:
            s3.pipe(f"{folder}/{name}", damaged)
        with pytest.raises(InputError, match=r"data.prepared=s3://bucket/half is damaged in .*; prepare it again"):
            half.prepare(ROWS)
    s3.pipe(f"{folder}/{name}", content)
    assert len(half.prepare(ROWS).train) == len(local.train)


@pytest.mark.slow
def test_thousands_of_objects_are_listed(bucket):
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    behind = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]  # without a request for each
    for number in range(5_000):
        behind.put_object("bucket", f"many/{number % 7}/{number:06d}.txt", b"a line\n")
    source, before = TextFiles(("s3://bucket/many",)), bucket.requests
    files = source.files()
    assert len(files) == 5_000 and all(file.size == 7 for file in files)
    assert bucket.requests - before <= 7, "a request for a thousand of them"
    assert len(source.shards()) == 5_000
