"""Bits that flip, and files that are cut short: none is read as if nothing were wrong."""

import contextlib
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import t5x_lite
from t5x_lite.errors import InputError
from t5x_lite.runs.checkpoints import leave_damaged, steps_of_run

from .mutations import damaged

pytestmark = pytest.mark.slow


def same(left, right) -> bool:
    """Whether two models have the same parameters, to the bit, and came from one experiment."""
    leaves = zip(jax.tree.leaves(left.params), jax.tree.leaves(right.params), strict=True)
    return left.experiment == right.experiment and all(np.array_equal(a, b) for a, b in leaves)


def test_checkpoints(tiny, train, tmp_path, draws):
    run = tmp_path / "run"
    train(tiny, run)
    steps, whole = [folder.name for folder in steps_of_run(run)], t5x_lite.load(run)
    assert len(steps) > 1
    files = [path for path in steps_of_run(run)[-1].rglob("*") if path.is_file() and path.stat().st_size]
    for number, draw in enumerate(draws):
        copy = tmp_path / str(number)
        shutil.copytree(run, copy)
        file = copy / draw.choice(files).relative_to(run)
        content, what = damaged(file.read_bytes(), draw)
        if content == file.read_bytes():
            continue
        file.write_bytes(content)
        what = f"{file.relative_to(copy)}: {what}"
        try:
            assert same(t5x_lite.load(copy), whole), what
            assert file.relative_to(copy).parts[2] == "training", f"unnoticed: {what}"
        except InputError as error:
            assert "damaged" in str(error) and steps[-2] in str(error), what
        assert leave_damaged(copy), f"not noticed on resuming: {what}"
        assert [folder.name for folder in steps_of_run(copy)] == steps[:-1], what
        shutil.rmtree(copy)


def test_exported_weights(tiny, train, tmp_path, draws):
    train(tiny, tmp_path / "run")
    t5x_lite.load(tmp_path / "run").export(tmp_path / "hf")
    whole, weights = t5x_lite.load(tmp_path / "hf"), Path(tmp_path / "hf" / "model.safetensors")
    content = weights.read_bytes()
    for draw in draws:
        damaged_content, what = damaged(content, draw)
        weights.write_bytes(damaged_content)
        with contextlib.suppress(InputError):
            assert same(t5x_lite.load(tmp_path / "hf"), whole), what
