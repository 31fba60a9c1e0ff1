"""What a run writes on a disk, and in a bucket, for which a folder stands in."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from etils import epath
from rich.console import Console

from t5x_lite import files
from t5x_lite.checksums import is_checked, write_checksums
from t5x_lite.errors import InputError
from t5x_lite.files import GrowingFile, is_in_bucket, local_or_bucket, write_atomically
from t5x_lite.runs import loop
from t5x_lite.runs.checkpoints import Saved, leave_damaged, steps_of_run
from t5x_lite.runs.goodput import RunTimes
from t5x_lite.runs.profiling import FOLDER, Profiler, ProfileSteps
from t5x_lite.runs.records import Records, read_records
from t5x_lite.runs.status import read_status
from t5x_lite.runs.workdir import begin, open_workdir, saved_tokenizer, tokenizer_files
from t5x_lite.training.writers import TensorBoard

from ..disk_bucket import disk_bucket


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What `bucket` holds."""
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def bucket(folder) -> Iterator[str]:
    """gs://bucket, whose objects are files, which nothing can be appended to."""
    with disk_bucket(folder):
        yield "gs://bucket"


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
        with pytest.raises(InputError, match="folder=.* is not the name of a folder|no kind that is known"):
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
            options = {"first": first, "last": 9, "throughput": ("tokens", 8)}
            with Records(location, console, **options, writers=[TensorBoard().open(location, None, first)]) as records:
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


def test_times_and_status_where_the_run_is(location, tiny):
    """What one process writes the next one and `status` read, before its end."""
    (location / "experiment.json").write_text(tiny.to_json())
    (location / "store.json").write_text("{}")
    for restarts in range(2):
        with RunTimes(time.time() - 2.0) as times:
            times.open(location, 2 * restarts)
            times.switch("steps")
            time.sleep(0.002)
            times.write(2 * restarts + 3)
            goodput = read_status(location).goodput
            assert goodput.restarts == restarts
            assert goodput.seconds["start"] >= 2.0 * (1 + restarts)
            # Nothing was saved; whether the process in a bucket still runs is not known.
            assert goodput.seconds["steps" if is_in_bucket(location) else "repeated"] > 0
    assert read_status(location).running is (None if is_in_bucket(location) else False)
    assert ("not known" in read_status(location).describe()) == is_in_bucket(location)


def test_a_profile_goes_where_the_run_is(location):
    messages = []
    with Profiler(ProfileSteps(3, 1), 0, location, RunTimes(), messages.append) as profiler:
        assert [profiler.begins_or_ends(step, None) for step in (1, 2, 3, 4, 5)] == [False, False, True, True, False]
    folder = location / FOLDER / "steps_3_to_3"
    assert any(path.name.endswith(".xplane.pb") and path.read_bytes() for path in folder.iterdir())
    assert messages == [f"profile of steps 3 to 3: {folder}"]


def test_a_run_begins_and_goes_on(location, tiny):
    run = location / "runs" / "one"
    for _ in range(2):
        with open_workdir(run, tiny):
            assert run.exists()
        assert not run.exists(), "nothing came of it"
    assert saved_tokenizer(run) is None
    store = tiny.data.prepare(tiny.objective.layout)
    with open_workdir(run, tiny):
        begin(run, tiny, store)
    assert json.loads((run / "store.json").read_text())["key"] == store.key
    assert set(tokenizer_files(run / "tokenizer")) == {"tokenizer_config.json"}
    for step in (9, 10):
        (run / "checkpoints" / str(step) / "params").mkdir(parents=True)
        (run / "checkpoints" / str(step) / "params" / "x").write_text("x")
    assert [path.name for path in steps_of_run(run)] == ["9", "10"]
    assert saved_tokenizer(run).fingerprint == store.tokenizer.fingerprint
    with open_workdir(run, tiny):
        begin(run, tiny, store)
    assert {path.name for path in run.iterdir()} == {"checkpoints", "experiment.json", "store.json", "tokenizer"}


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Times and contents of all in a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


def test_a_second_run_in_one_folder_is_refused_and_changes_nothing(tiny, tmp_path):
    run = tmp_path / "run"
    with open_workdir(epath.Path(run), tiny):
        before = everything(run)
        refusal = rf"workdir=.*run is in use by another run \(process {os.getpid()} on .+\); wait for its end, or"
        with pytest.raises(InputError, match=refusal), open_workdir(epath.Path(run), tiny):
            pass
        assert everything(run) == before
    assert not run.exists()


HOLDER = """
import sys, time
from etils import epath
from t5x_lite.runs.workdir import open_workdir
with open_workdir(epath.Path(sys.argv[1]), None):
    print("open", flush=True)
    time.sleep(600)
"""


def test_a_killed_run_leaves_no_lock(tiny, tmp_path):
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLDER, run], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "open\n"
        with (
            pytest.raises(InputError, match=rf"in use by another run \(process {holder.pid} on "),
            open_workdir(epath.Path(run), tiny),
        ):
            pass
        holder.kill()
    assert (run / ".lock").exists(), "it could not be removed"
    for name in ("experiment.json.123.tmp", ".written-0a1b", ".seen-0a1b"):
        (run / name).write_text("as killed while it wrote")
    with open_workdir(epath.Path(run), tiny):
        assert str(os.getpid()) in (run / ".lock").read_text()
    assert not run.exists()


def test_one_at_a_time_whatever_the_moment(tiny, tmp_path):
    """Six threads want the folder again and again, so that one opens the file that another is about to remove."""
    run, inside, refused, seen = epath.Path(tmp_path / "run"), [], [], []

    def work() -> None:
        for _ in range(60):
            try:
                with open_workdir(run, tiny):
                    inside.append(None)
                    seen.append(len(inside))
                    inside.pop()
            except InputError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {1}
    assert len(seen) + len(refused) == 360, "one ended otherwise"
    assert not run.exists()


def test_names_that_are_none(tiny):
    for name in ("", "a\0b"):
        with pytest.raises(InputError, match=f"workdir={re.escape(repr(name))} is not the name of a folder; give one"):
            loop.train(tiny, name)


def test_damaged_checkpoints_are_set_aside(location):
    run = location / "run"
    for step in (8, 9, 10):
        folder = run / "checkpoints" / str(step)
        (folder / "params").mkdir(parents=True)
        (folder / "params" / "x").write_text("x" * step)
        (folder / "_CHECKPOINT_METADATA").write_text("{}")
        write_checksums(folder)
    assert leave_damaged(run) == []
    (run / "checkpoints" / "10" / "params" / "x").write_text("y" * 10)
    (remark,) = leave_damaged(run)
    aside = next((run / "damaged").iterdir())
    assert str(aside) in remark and "params/x is not what was written" in remark
    assert (aside / "params" / "x").read_text() == "y" * 10
    assert [path.name for path in steps_of_run(run)] == ["8", "9"]
    (run / "checkpoints" / "9" / "params" / "x").unlink()
    (remark,) = leave_damaged(run)
    assert "params/x is missing" in remark
    assert [path.name for path in steps_of_run(run)] == ["8"]


def test_checkpoints_without_checksums(location):
    """The latest may be one whose write was cut short at the very end; an earlier one is what a removal has left."""
    run = location / "run"
    for step in (8, 9):
        (run / "checkpoints" / str(step) / "params").mkdir(parents=True)
        for name in ("params/x", "_CHECKPOINT_METADATA"):
            (run / "checkpoints" / str(step) / name).write_text("{}")
    earlier, latest = leave_damaged(run)
    aside = next((run / "damaged").iterdir())
    assert re.match(r".+8 has files without a checksum, as if .+", earlier) and str(aside) in earlier
    assert re.match(r".+9 had files without a checksum", latest)
    assert (aside / "params" / "x").exists()
    assert is_checked(run / "checkpoints" / "9")
    assert leave_damaged(run) == []


@pytest.mark.parametrize("removed", ["params/x", "_CHECKPOINT_METADATA"])
def test_what_is_left_of_a_removed_checkpoint_is_removed(location, removed):
    run = location / "run"
    for step in (7, 8, 9):
        folder = run / "checkpoints" / str(step)
        (folder / "params").mkdir(parents=True)
        (folder / "params" / "x").write_text("x")
        (folder / "_CHECKPOINT_METADATA").write_text("{}")
        write_checksums(folder)
    (run / "checkpoints" / "8" / removed).unlink()
    (remark,) = leave_damaged(run)
    assert remark == f"{run / 'checkpoints' / '8'} was removed in part; the rest is removed now"
    assert [path.name for path in steps_of_run(run)] == ["7", "9"]


def test_a_bucket_that_cannot_be_written_to(monkeypatch):
    class Refused(Exception):
        pass

    def refuse(*args, **options):
        raise Refused("403: no permission\nand a long story")

    monkeypatch.setattr(type(epath.Path("gs://x")), "mkdir", refuse)
    refusal = r"workdir=gs://closed/run cannot be written to \(403: no permission\)"
    with pytest.raises(InputError, match=refusal), open_workdir(epath.Path("gs://closed/run"), None):
        pass


def test_a_workdir_that_orbax_cannot_write_to_is_refused():
    message = r"workdir=s3://bucket/run is in a store into which Orbax writes no checkpoints; choose a bucket in gs://"
    with pytest.raises(InputError, match=message), open_workdir(epath.Path("s3://bucket/run"), None):
        pass
