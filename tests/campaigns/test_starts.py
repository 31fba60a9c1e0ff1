"""Starts of small runs, several at a time on one core, each from an empty cache: none crashes, and none hangs."""

import os
import shutil
import signal
import subprocess
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
