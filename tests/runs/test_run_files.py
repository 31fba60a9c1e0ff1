"""What a run writes on a disk, and in a bucket, for which a folder stands in."""

import json
import os
from pathlib import Path

import fsspec
import pytest
from etils import epath
from fsspec.implementations.local import LocalFileSystem
from rich.console import Console

from t5x_lite import files
from t5x_lite.checksums import write_checksums
from t5x_lite.errors import InputError
from t5x_lite.files import GrowingFile, is_in_bucket, local_or_bucket, write_atomically
from t5x_lite.runs.checkpoints import Saved, leave_damaged, steps_of_run
from t5x_lite.runs.records import Records, read_records
from t5x_lite.runs.workdir import begin, open_workdir, remove_if_empty, saved_tokenizer, tokenizer_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What `bucket` holds."""
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def bucket(folder) -> str:
    """gs://bucket, whose objects are files, which nothing can be appended to."""

    class Bucket(LocalFileSystem):
        protocol = ("gs", "gcs")
        cachable = False

        def __init__(self, **options):
            super().__init__(auto_mkdir=True)

        @classmethod
        def _strip_protocol(cls, path):
            return str(path).replace("gs://bucket", str(folder)).rstrip("/")

        def _open(self, path, mode="rb", **options):
            assert "a" not in mode, "objects do not grow"
            return super()._open(path, mode, **options)

    fsspec.register_implementation("gcs", Bucket, clobber=True)
    return "gs://bucket"


@pytest.fixture(params=["disk", "bucket"])
def location(request, tmp_path) -> epath.Path:
    """A folder of each kind."""
    return epath.Path(tmp_path if request.param == "disk" else f"{request.getfixturevalue('bucket')}/{tmp_path.name}")


def test_what_is_a_bucket():
    assert is_in_bucket("gs://bucket/run")
    assert is_in_bucket(epath.Path("s3://bucket") / "run")
    assert not is_in_bucket("runs/t5")
    assert not is_in_bucket(Path("gs:/bucket"))
    assert str(local_or_bucket("gs://bucket/a/../run")) == "gs://bucket/a/../run"
    for name in ("foo://bucket", "", "a\0b", "~no-such-user/run"):
        with pytest.raises(InputError, match="correct the path|no kind that is known"):
            local_or_bucket(name)
    assert local_or_bucket("~/run") == Path.home() / "run"


def test_small_files_are_replaced_and_leave_nothing(location):
    write_atomically(location / "file", "one")
    write_atomically(location / "file", b"two\n")
    assert (location / "file").read_text() == "two\n"
    assert [path.name for path in location.iterdir()] == ["file"]


def test_growing_files(location, monkeypatch):
    monkeypatch.setattr(files, "_BUCKET_SECONDS", 0.0)
    (location / "log").write_text("of another run")
    log = GrowingFile(location / "log", b"a\n")
    log.write(b"b\n")
    assert (location / "log").read_bytes() == b"a\nb\n"
    log.write(b"c\n")
    log.close()
    assert (location / "log").read_bytes() == b"a\nb\nc\n"


def test_objects_are_not_written_at_every_line(bucket, folder):
    log = GrowingFile(epath.Path(bucket) / "log")
    log.write(b"a\n")
    log.flush()
    assert (folder / "log").read_bytes() == b""
    log.close()
    assert (folder / "log").read_bytes() == b"a\n"


def test_records_go_where_the_run_is(location):
    """Those of steps that a killed run did not save are dropped."""
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere)
        for first in (0, 2):
            with Records(location, console, first=first, last=9, throughput=("tokens", 8)) as records:
                for step in range(first + 1, first + 4):
                    records.train(step, {"loss": 1.5, "accuracy": 0.5})
                records.saved([Saved(first + 2, 0.25, 1.5, 0.0)])
    found = read_records(location / "metrics.jsonl")
    assert [(record["step"], record["kind"]) for record in found] == [
        *((1, "train"), (2, "train"), (2, "checkpoint")),
        *((3, "train"), (4, "train"), (5, "train"), (4, "checkpoint")),
    ]
    saved = found[-1]
    assert (saved["at"], saved["blocked_seconds"], saved["written_seconds"]) == ("1970-01-01T00:00:00Z", 0.25, 1.5)
    events = [path.read_bytes() for path in (location / "tensorboard").iterdir()]
    assert events
    assert all(b"train/loss" in event and b"checkpoint/blocked_seconds" in event for event in events)


def test_a_run_begins_and_goes_on(location, tiny):
    run = location / "runs" / "one"
    open_workdir(run, tiny)
    remove_if_empty(run)
    open_workdir(run, tiny)
    assert saved_tokenizer(run) is None
    store = tiny.data.prepare(tiny.objective.layout)
    begin(run, tiny, store)
    assert json.loads((run / "store.json").read_text())["key"] == store.key
    assert set(tokenizer_files(run / "tokenizer")) == {"tokenizer_config.json"}
    for step in (9, 10):
        (run / "checkpoints" / str(step) / "params").mkdir(parents=True)
        (run / "checkpoints" / str(step) / "params" / "x").write_text("x")
    assert [path.name for path in steps_of_run(run)] == ["9", "10"]
    assert saved_tokenizer(run).fingerprint == store.tokenizer.fingerprint
    open_workdir(run, tiny)
    begin(run, tiny, store)
    remove_if_empty(run)
    assert (run / "experiment.json").exists()


def test_damaged_checkpoints_are_set_aside(location):
    run = location / "run"
    for step in (8, 9, 10):
        folder = run / "checkpoints" / str(step)
        (folder / "params").mkdir(parents=True)
        (folder / "params" / "x").write_text("x" * step)
        if step > 8:
            write_checksums(folder)
    assert leave_damaged(run) == []
    (run / "checkpoints" / "10" / "params" / "x").write_text("y" * 10)
    (remark,) = leave_damaged(run)
    aside = next((run / "damaged").iterdir())
    assert str(aside) in remark and "params/x is not what was written" in remark
    assert (aside / "params" / "x").read_text() == "y" * 10
    assert [path.name for path in steps_of_run(run)] == ["8", "9"]
    (run / "checkpoints" / "9" / "params" / "x").unlink()
    damaged, unchecked = leave_damaged(run)
    assert "params/x is missing" in damaged and "8 has files without a checksum" in unchecked
    assert [path.name for path in steps_of_run(run)] == ["8"]


def test_a_bucket_that_cannot_be_written_to(monkeypatch):
    class Refused(Exception):
        pass

    def refuse(*args, **options):
        raise Refused("403: no permission\nand a long story")

    monkeypatch.setattr(type(epath.Path("gs://x")), "mkdir", refuse)
    with pytest.raises(InputError, match=r"workdir=gs://closed/run cannot be written to \(403: no permission\)"):
        open_workdir(epath.Path("gs://closed/run"), None)
