"""Disks that are full, or become read-only, while a run writes: it ends in one sentence, and goes on when it can."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import t5x_lite
from t5x_lite.checksums import find_damage
from t5x_lite.runs.checkpoints import steps_of_run

pytestmark = [pytest.mark.slow, pytest.mark.least(2)]

ROOM = "64m"


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small disk in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def whole(tmp_path, start, write_pairs) -> tuple[Path, list[np.ndarray], int]:
    """(config, parameters of its run, bytes that cache and run take)."""
    config, folder = write_pairs(random.Random(0)), tmp_path / "whole"
    process = start("train", config, "--workdir", folder / "run", cache=folder / "cache")
    assert process.wait() == 0, process.stderr.read()
    used = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    return config, jax.tree.leaves(t5x_lite.load(folder / "run").params), used


def check_end(process: subprocess.Popen, problem: str, disk: Path) -> None:
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2, errors
    assert errors.startswith("t5x-lite: ") and errors.count("\n") == 1 and problem in errors, errors
    for step in steps_of_run(disk / "run"):
        assert not find_damage(step)


def check_going_on(process: subprocess.Popen, params: list[np.ndarray], disk: Path) -> None:
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    again = jax.tree.leaves(t5x_lite.load(disk / "run").params)
    assert all(np.array_equal(one, other) for one, other in zip(params, again, strict=True))
    for folder in ("run", "cache"):
        shutil.rmtree(disk / folder)


def test_full(disk, whole, start, draws):
    config, params, used = whole
    command = "train", config, "--workdir", disk / "run"
    for draw in draws:
        size = int(used * draw.uniform(0.02, 0.98))
        mount("-o", f"remount,size={size}", disk)
        check_end(start(*command, cache=disk / "cache"), "the disk is full", disk)
        mount("-o", f"remount,size={ROOM}", disk)
        check_going_on(start(*command, cache=disk / "cache"), params, disk)


def test_read_only(tmp_path, whole, start, draws, preload):
    config, params, _ = whole
    disk, since = tmp_path / "folder", tmp_path / "since"
    command = "train", config, "--workdir", disk / "run"
    environment = preload("read_only") | {"READ_ONLY_FOLDER": str(disk), "READ_ONLY_SINCE": str(since)}
    for draw in draws:
        process, lines = start(*command, cache=disk / "cache", **environment), draw.randrange(12)
        for _ in range(lines):
            process.stdout.readline()
        since.touch()
        check_end(process, "ead-only", disk)
        since.unlink()
        check_going_on(start(*command, cache=disk / "cache"), params, disk)
