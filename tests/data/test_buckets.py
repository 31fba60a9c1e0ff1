"""Text, preparing and rows in a bucket: a real server of S3's interface on this machine, which fails as networks do."""

import gzip
import http.client
import http.server
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.data import Data, Stream, TextFiles, WordPiece, batches, prefetch
from t5x_lite.data.records import input_files, remote_files
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError

moto_server = pytest.importorskip("moto.server", reason="needs moto[server], as in .[oracle]")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs, as in .[oracle]")
pytestmark = pytest.mark.oracle
ROWS = Stream(32)
SHARDS = 3


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to the server. Those that read an object meet the next of `faults` before: "error", "cut",
    "slow", "drop", or "" for none."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int) -> None:
        self.server_port_behind, self.faults, self.requests = port, iter(()), 0
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _pass_on(self):
        self.server.requests += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_read = self.command == "GET" and "list-type" not in self.path and "." in self.path
        fault = next(self.server.faults, "") if is_read else ""
        if fault == "error":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "slow":
            time.sleep(0.5)
        behind = http.client.HTTPConnection("127.0.0.1", self.server.server_port_behind)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        if fault == "cut":
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of the bucket's server."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture(scope="module")
def bucket(server) -> Iterator[Proxy]:
    """`s3://bucket` behind a proxy, with the corpus in `c4/`."""
    with pytest.MonkeyPatch.context() as patch:
        proxy = Proxy(server)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        patch.setattr(input_files, "_SHARD_BYTES", 1)
        patch.setattr(remote_files, "_FIRST_WAIT", 0.01)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("bucket")
        yield proxy
        proxy.shutdown()
        s3fs.S3FileSystem.clear_instance_cache()


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


@contextmanager
def faults(bucket: Proxy, seed: int, share: float) -> Iterator[None]:
    draw = random.Random(seed)
    kinds = ("error", "cut", "drop", "slow")
    bucket.faults = (draw.choice(kinds) if draw.random() < share else "" for _ in iter(int, 1))
    yield
    bucket.faults = iter(())


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
    monkeypatch.setattr(remote_files, "_ATTEMPTS", 2)  # in each of which s3fs tries several times and waits
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
def test_tens_of_thousands_of_objects_are_listed(bucket):
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    behind = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]  # without a request for each
    for number in range(20_000):
        behind.put_object("bucket", f"many/{number % 7}/{number:06d}.txt", b"a line\n")
    source, before = TextFiles(("s3://bucket/many",)), bucket.requests
    files = source.files()
    assert len(files) == 20_000 and all(file.size == 7 for file in files)
    assert bucket.requests - before <= 22, "a request for a thousand of them"
    assert len(source.shards()) == 20_000
