"""What a run opens is closed when the run is over, however it ends."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from t5x_lite.data import TextFiles
from t5x_lite.runs import loop

DESCRIPTORS = Path("/proc/self/fd")
pytestmark = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="only Linux lists the files that a process has open")


def open_shards() -> list[str]:
    """The files of rows that this process has open."""
    paths = []
    for descriptor in DESCRIPTORS.iterdir():
        try:
            paths.append(os.readlink(descriptor))
        except FileNotFoundError:  # the listing's own, or that of another thread
            continue
    return [path for path in paths if ".array_record" in path]


def new_threads(before: set[threading.Thread]) -> list[str]:
    return [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("read batches")]


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_is_open_and_no_thread_reads_after_a_run(tiny, train, tmp_path, monkeypatch, fails):
    before, seen, log_step = set(threading.enumerate()), [], loop._Run.log_step

    def logged(run, step, *args):
        seen.append((len(open_shards()), len(new_threads(before))))
        if fails and step == 4:
            raise KeyboardInterrupt
        log_step(run, step, *args)

    monkeypatch.setattr(loop._Run, "log_step", logged)
    tiny = replace(tiny, data=replace(tiny.data, cache_dir=str(tmp_path / "cache")))
    try:
        train(tiny, tmp_path / "run")
        assert not fails
    except KeyboardInterrupt:
        assert fails
    assert max(files for files, _ in seen) == 2 and max(threads for _, threads in seen) == 2
    assert not open_shards() and not new_threads(before)


def test_a_store_whose_writing_fails_leaves_no_file_open(tiny, tmp_path, monkeypatch):
    opened = []

    class Interrupted(TextFiles):
        def documents(self):
            for number, text in enumerate(super().documents()):
                if opened and number > 100:
                    raise RuntimeError("the source is gone")
                yield text

    def progress(stage, share):
        opened.extend(open_shards() if stage == "tokenize" else [])

    monkeypatch.setattr("t5x_lite.data.splits._CHUNK_EXAMPLES", 50)
    data = replace(tiny.data, source=Interrupted(tiny.data.source.paths), cache_dir=str(tmp_path))
    with pytest.raises(RuntimeError, match="the source is gone"):
        data.prepare(tiny.objective.layout, progress=progress)
    assert opened and not open_shards()


def test_closed_rows_are_not_read(tiny, tmp_path):
    with replace(tiny.data, cache_dir=str(tmp_path)).prepare(tiny.objective.layout) as store:
        assert len(store.train[0]) and open_shards()
    assert not open_shards()
    with pytest.raises(ValueError, match="are closed"):
        store.train[0]
