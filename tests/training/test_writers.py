"""Where records go: files of the library's own, and services of others."""

import csv
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from etils import epath
from rich.console import Console

from t5x_lite.errors import InputError
from t5x_lite.runs.records import Records, read_records
from t5x_lite.training import Csv, Experiment, Logging, TensorBoard, WeightsAndBiases, Writer


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_in_csv(tmp_path):
    """A run that goes on drops the lines of later steps; what is not a line of figures is dropped too."""
    folder = epath.Path(tmp_path)
    writer = Csv().open(folder, None, 0)
    for step in (5, 10):
        writer.write(step, "train", {"loss": 0.5 * step, "a,b": float("nan")})
    writer.close()
    assert rows(tmp_path / "figures.csv")[-2:] == [
        {"step": "10", "kind": "train", "name": "loss", "value": "5.0"},
        {"step": "10", "kind": "train", "name": "a,b", "value": "nan"},
    ]
    with (tmp_path / "figures.csv").open("ab") as file:
        file.write(b"\xff\xfe\n12,torn")
    writer = Csv().open(folder, None, 5)
    writer.write(8, "held_out", {"loss": 1.0})
    writer.close()
    assert [(row["step"], row["name"]) for row in rows(tmp_path / "figures.csv")] == [
        *(("5", "loss"), ("5", "a,b"), ("8", "loss")),
    ]


WITH_TORCH = """
import sys
from etils import epath
from t5x_lite.training import TensorBoard
writer = TensorBoard().open(epath.Path(sys.argv[1]), None, 0)
writer.write(1, "train", {"loss": 2.0})
writer.close()
print("written")
import torch
"""


@pytest.mark.slow
def test_tensorboard_does_without_torch_though_installed(run_python, tmp_path):
    """tensorboardX would import it, which takes longer than the rest of a start; afterwards it can be imported."""
    (tmp_path / "torch.py").write_text("print('torch was imported')\n")
    done = run_python(WITH_TORCH, tmp_path / "board", path=str(tmp_path))
    assert (done.returncode, done.stdout.splitlines()) == (0, ["written", "torch was imported"]), done.stderr


def test_a_run_writes_what_it_records(tiny, train, tmp_path):
    experiment = replace(tiny, logging=Logging(every=2, writers=(Csv(),)))
    train(experiment, tmp_path)
    assert not (tmp_path / "tensorboard").exists()
    expected = [
        (record["step"], record["kind"], name, value)
        for record in read_records(tmp_path / "metrics.jsonl")
        for name, value in record.items()
        if name not in ("step", "kind", "at")
    ]
    found = [
        (int(row["step"]), row["kind"], row["name"], float(row["value"])) for row in rows(tmp_path / "figures.csv")
    ]
    assert found == expected
    of_training = [record for record in read_records(tmp_path / "metrics.jsonl") if record["kind"] == "train"]
    for record in of_training:
        assert record["seconds_per_step"] > 0
        assert record["peak_memory_bytes"] >= record["memory_bytes"] > 1e6
        assert record["learning_rate"] > 0
        assert "mfu" not in record  # nobody publishes the peak of this processor


class FakeRun:
    """What `wandb.init` returns."""

    def __init__(self):
        self.logged, self.axes, self.ended = [], [], False

    def define_metric(self, name, step_metric):
        self.axes.append((name, step_metric))

    def log(self, figures):
        self.logged.append(figures)

    def finish(self):
        self.ended = True


def test_weights_and_biases(tiny, tmp_path, monkeypatch):
    runs, begun = [], []

    def init(**options):
        begun.append(options)
        runs.append(FakeRun())
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, __spec__=object()))
    writer = WeightsAndBiases(project="zoo", name="first")
    writer.check()
    for first in (0, 4):
        opened = writer.open(epath.Path(tmp_path / "run"), tiny, first)
        opened.write(first + 2, "train", {"loss": 2.0})
        opened.close()
    assert (begun[0]["project"], begun[0]["name"], begun[0]["resume"]) == ("zoo", "first", "allow")
    assert begun[0]["id"] == begun[1]["id"], "a run that goes on is one run"
    assert begun[0]["config"]["batch_size"] == tiny.batch_size
    assert runs[1].logged == [{"step": 6, "train/loss": 2.0}]
    assert runs[1].axes == [("*", "step")]
    assert runs[1].ended
    other = writer.open(epath.Path(tmp_path / "other"), tiny, 0)
    assert begun[2]["id"] != begun[0]["id"]
    other.close()


def test_a_missing_package_is_named_before_anything_is_prepared(tiny, train, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="needs the package wandb; pip install wandb, or leave it out"):
        train(replace(tiny, logging=Logging(writers=(WeightsAndBiases(),))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


TAKEN = []


@dataclass(frozen=True)
class Listed(Writer):
    """One of one's own."""

    name: str = "figures"

    def open(self, workdir, experiment, first):
        return self

    def write(self, step, kind, figures):
        TAKEN.append((self.name, step, kind, figures.get("loss")))

    def close(self):
        TAKEN.append("closed")


def test_one_of_ones_own(tiny, train, tmp_path):
    experiment = replace(tiny, logging=Logging(every=2, writers=(Listed("mine"), TensorBoard())))
    assert Experiment.from_json(experiment.to_json()) == experiment
    TAKEN.clear()
    train(experiment, tmp_path)
    assert TAKEN[0][:3] == ("mine", 2, "train")
    assert {taken[2] for taken in TAKEN[:-1]} == {"train", "held_out", "checkpoint"}
    assert TAKEN[-1] == "closed"
    assert (tmp_path / "tensorboard").is_dir()


def test_all_are_closed_whichever_of_them_fails(tmp_path):
    closed = []

    def fail():
        closed.append("first")
        raise OSError("gone")

    writers = [SimpleNamespace(close=fail), SimpleNamespace(close=lambda: closed.append("second"))]
    options = {"first": 0, "last": 1, "throughput": ("tokens", 8), "writers": writers}
    with pytest.raises(OSError, match="gone"), Records(epath.Path(tmp_path), Console(quiet=True), **options):
        pass
    assert sorted(closed) == ["first", "second"]


def test_a_writer_that_opens_nothing():
    with pytest.raises(NotImplementedError, match="Writer defines no open, which every Writer has"):
        Writer().open(None, None, 0)
