"""Starts of small runs, several at a time on one core, each from an empty cache: none crashes, and none hangs."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.least(3)]

AT_ONCE = 3
MOST_SECONDS = 600


def check(process: subprocess.Popen, folder: Path) -> None:
    """Waits for the end of a start; one that takes too long has to print what each of its threads does."""
    try:
        _, errors = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        pytest.fail(f"a start hangs:\n{process.communicate()[1]}")
    assert process.returncode == 0, errors
    assert (folder / "run" / "held_out.json").exists()
    shutil.rmtree(folder)


def test_on_pairs(tmp_path, draws, start, write_pairs):
    running: list[tuple[subprocess.Popen, Path]] = []
    try:
        for number, draw in enumerate(draws):
            folder = tmp_path / str(number)
            process = start("train", write_pairs(draw), "--workdir", folder / "run", cache=folder / "cache")
            running.append((process, folder))
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
            if len(running) == AT_ONCE:
                check(*running.pop(0))
        while running:
            check(*running.pop(0))
    finally:
        for process, _ in running:
            process.kill()


READ = """
import sys
from t5x_lite.data import Bytes, Data, Stream, TextFiles
store = Data(TextFiles((sys.argv[1],)), Bytes(), held_out=0.1, cache_dir=sys.argv[2]).prepare(Stream(32))
print(len(store.train[:]))
"""


def test_where_threads_are_refused(text_file, tmp_path, draws, preload):
    command = [sys.executable, "-c", READ, text_file, tmp_path / "cache"]
    rows = subprocess.run(command, check=True, capture_output=True).stdout
    environment = os.environ | preload("few_threads")
    for draw in draws:
        most = draw.choice((draw.randrange(1, 80), draw.randrange(62, 70)))  # near what is needed as well
        process = subprocess.run(
            command, env=environment | {"MOST_THREADS": str(most)}, capture_output=True, timeout=MOST_SECONDS
        )
        if process.returncode:
            assert b"InputError: the system starts" in process.stderr, (most, process)
        else:
            assert process.stdout == rows and most >= 65
