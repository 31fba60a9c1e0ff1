"""The examples of docs/extending.md: each block is a file, and each config a whole run."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite import load
from t5x_lite.cli import main
from t5x_lite.cli.commands import evaluate
from t5x_lite.data import Data
from t5x_lite.decoding import Greedy, decode
from t5x_lite.runs import loop
from t5x_lite.runs.records import read_records

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The blocks of the page by their names, as files."""
    folder = tmp_path_factory.mktemp("outside")
    blocks = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    for name, code in blocks:
        (folder / f"{name}.py").write_text(code)
    return {name: folder / f"{name}.py" for name, _ in blocks}


@pytest.fixture(scope="module")
def modules(files):
    """The blocks as modules, by name; a class is known by its name once its module is imported."""

    def load_module(name):
        spec = importlib.util.spec_from_file_location(name, files[name])
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_module


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, share_program):
    """`run(*arguments)`: what a command prints, its status 0; commands of one experiment share what is compiled."""
    monkeypatch.setenv("T5X_LITE_CACHE", str(tmp_path / "cache"))
    for module in (loop, evaluate):
        monkeypatch.setattr(module, "Program", share_program)

    def command(*arguments):
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    return command


@pytest.mark.slow
def test_a_source_a_metric_an_optimizer_and_a_schedule(files, modules, run, tmp_path):
    workdir = tmp_path / "run"
    assert "learning rate: 1.00e-03 at most" in run("inspect", files["sums"])
    run("train", files["sums"], "--workdir", workdir, "--logging.every", 1)
    records = [record for record in read_records(workdir / "metrics.jsonl") if record["kind"] == "train"]
    experiment = modules("sums").experiment
    assert list(modules("own_loop").losses(experiment, 3)) == [record["loss"] for record in records[:3]]
    watch = modules("watch").Watch()
    watch.on_step(1, records[0])
    assert watch.losses == {1: records[0]["loss"]}
    lines = modules("lines").LineWriter().open(tmp_path, experiment, 0)
    lines.write(1, "train", {"loss": 2.0})
    lines.close()
    assert (tmp_path / "lines.txt").read_text() == "1 train loss=2\n"
    held_out = json.loads((workdir / "held_out.json").read_text())
    options = ("--json", "--out", tmp_path / "answers", "--import", files["sums"])
    figures = json.loads(run("evaluate", workdir, *options).splitlines()[-1])
    assert figures["distance"] == held_out["distance"] > 0
    low, high = figures["intervals"]["distance"]
    assert 0 <= low <= figures["distance"] <= high


@pytest.mark.slow
def test_a_tokenizer(files, run, tmp_path):
    """Through a run that stops and goes on, evaluation, export, and a process that has not imported it."""
    workdir, whole, imports = tmp_path / "run", tmp_path / "whole", ("--import", files["words"])
    run("train", files["words"], "--workdir", workdir, "--steps", 2)
    run("train", files["words"], "--workdir", workdir)
    run("train", files["words"], "--workdir", whole)
    model, expected = load(workdir), load(whole)
    assert model.tokenizer.words == expected.tokenizer.words
    jax.tree.map(np.testing.assert_array_equal, model.params, expected.params)
    assert "loss" in run("evaluate", workdir, *imports)
    run("plot", workdir, "--out", tmp_path / "curves.png")
    out = run("convert", workdir, tmp_path / "theirs", *imports)
    assert "left out: the tokenizer, as Transformers has no class for a WordTokenizer" in out
    again = load(tmp_path / "theirs", tokenizer=model.tokenizer)
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    assert again.generate("1 + 2", max_length=4) == model.generate("1 + 2", max_length=4)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "t5x_lite", "convert", str(workdir), "other"]
    apart = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert apart.returncode == 2
    assert "which is not imported; import it first, on the command line with --import" in apart.stderr


def test_columns_of_every_type_are_stored_and_read_back(modules, tmp_path):
    colours = modules("colours")
    layout, source = colours.Pictures(), colours.Squares()
    store = Data(source, None, held_out=0.25, cache_dir=str(tmp_path)).prepare(layout)
    assert store.tokenizer is None and len(store.train) + len(store.held_out) == 96
    pixels = {np.asarray(Image.open(io.BytesIO(file))).tobytes(): hue for file, hue in source.documents()}
    for row in [*store.train[:], *store.held_out[:]]:
        assert {name: (x.shape, x.dtype) for name, x in row.items()} == {
            name: (column.shape, np.dtype(column.dtype)) for name, column in layout.spec.items()
        }
        hue = pixels[row["image"].tobytes()]
        assert row["hue"] == hue
        np.testing.assert_array_equal(row["box"], np.linspace(0, hue, 4, dtype=np.float32))
        np.testing.assert_array_equal(row["mask"], np.arange(6).reshape(2, 3) % (hue + 1) == 0)


@pytest.mark.slow
def test_a_run_without_text_learns_resumes_and_is_evaluated(files, run, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run("train", files["colours"], "--workdir", whole)
    run("train", files["colours"], "--workdir", resumed, "--steps", "6")
    shown = run("train", files["colours"], "--workdir", resumed)
    assert "resuming from step 6" in shown and "rows/s" in shown and "tokens" not in shown
    figures = json.loads((whole / "held_out.json").read_text())
    assert figures["loss"] < 0.7 * figures["constant_loss"]
    assert json.loads((resumed / "held_out.json").read_text()) == figures
    assert "float32[6, 6, 3]" in (whole / "samples.txt").read_text()
    kernels = [load(run).params["kernel"] for run in (whole, resumed)]
    np.testing.assert_array_equal(*kernels)
    evaluated = json.loads(run("evaluate", whole, "--json").splitlines()[-1])
    assert evaluated["loss"] == pytest.approx(figures["loss"], abs=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_a_run_without_text_is_planned(files, run):
    plan = run("plan", files["colours"], "--topology", "v5e:2x2")
    assert "a step of 8 rows\n" in plan and "rows/s" in plan


@pytest.mark.slow
def test_a_decoding_method(modules, t5):
    method = modules("second_best").NthBest
    options = {"start_ids": jnp.zeros(1, jnp.int32), "max_length": 3, "eos_id": 1, "pad_id": 0}
    ids = [
        decode(*t5, jnp.array([[3, 40]]), method=one, **options).ids.tolist() for one in (Greedy(), method(0), method())
    ]
    assert ids[0] == ids[1] != ids[2]
