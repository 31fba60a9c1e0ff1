"""Whole runs: what they leave, and that stopping, dying and moving change nothing."""

import calendar
import errno
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.checksums import find_damage
from t5x_lite.data import TextFiles
from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape
from t5x_lite.runs import loop, preparation
from t5x_lite.runs.checkpoints import read_state, steps_of_run
from t5x_lite.runs.loop import NonFiniteError
from t5x_lite.runs.records import Records, read_records

from ..slow import mostly_slow


@pytest.fixture(scope="module")
def train(train):
    """Runs that begin as those of other processes do."""
    return functools.partial(train, drawn=False)


@pytest.fixture(scope="module")
def undisturbed(tiny, tmp_path_factory, train):
    workdir = tmp_path_factory.mktemp("undisturbed")
    train(tiny, workdir)
    return workdir


def final_params(workdir: Path) -> dict[str, np.ndarray]:
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(workdir).params), sep="/")


def losses(workdir: Path) -> list[tuple[int, str, float]]:
    records = read_records(workdir / "metrics.jsonl")
    return [(record["step"], record["kind"], record["loss"]) for record in records if "loss" in record]


def assert_identical(workdir: Path, undisturbed: Path) -> None:
    ours, theirs = final_params(workdir), final_params(undisturbed)
    for name, expected in theirs.items():
        np.testing.assert_array_equal(ours[name], expected, err_msg=name)
    assert losses(workdir) == losses(undisturbed)


def test_callbacks_get_what_is_recorded_and_a_run_has_its_figures_and_its_model(
    tiny, undisturbed, tmp_path, console, share_program, monkeypatch
):
    class Recorder(t5x_lite.Callback):
        def __init__(self):
            self.steps, self.evaluations, self.saves = {}, {}, []

        def on_step(self, step, figures):
            self.steps[step] = figures["loss"]

        def on_evaluation(self, step, figures):
            self.evaluations[step] = figures["loss"]

        def on_save(self, step):
            self.saves.append(step)
            assert (tmp_path / "checkpoints" / str(step) / "_CHECKPOINT_METADATA").exists()

    recorder = Recorder()
    monkeypatch.setattr(loop, "Program", share_program)
    experiment = replace(tiny, logging=replace(tiny.logging, every=4))
    run = t5x_lite.train(experiment, tmp_path, console, jax.devices()[:1], callbacks=[recorder])
    recorded = [(step, kind, loss) for step, kind, loss in losses(undisturbed)]
    assert [*recorder.steps.items()] == [(step, loss) for step, kind, loss in recorded if kind == "train"]
    assert [*recorder.evaluations.items()] == [(step, loss) for step, kind, loss in recorded if kind == "held_out"]
    assert recorder.saves == [2, 4, 6]
    assert run.finished and run.experiment == experiment
    assert repr(run) == f"Run: {tmp_path}, finished\n  attributes: experiment, figures, held_out, model"
    assert [record["step"] for record in run.figures if record["kind"] == "train"] == [4, 6]
    assert run.held_out["loss"] == recorder.evaluations[6]
    jax.tree.map(np.testing.assert_array_equal, run.model.params, t5x_lite.load(undisturbed).params)


def test_old_checkpoints_that_a_killed_run_did_not_remove_go_when_it_ends(tiny, undisturbed, tmp_path, train):
    shutil.copytree(undisturbed, tmp_path / "run")
    train(replace(tiny, checkpoints=replace(tiny.checkpoints, keep_last=2)), tmp_path / "run", report=False)
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} == {"4", "6"}


def at_step(monkeypatch, step: int, action) -> None:
    """Has `action` happen when the figures of `step` are recorded."""
    record = Records.train

    def record_and_act(self, at, metrics):
        record(self, at, metrics)
        if at == step:
            action()

    monkeypatch.setattr(Records, "train", record_and_act)


def test_a_run_leaves_what_it_promises(undisturbed, tiny):
    assert {path.name for path in undisturbed.iterdir()} == {
        *("experiment.json", "store.json", "tokenizer", "checkpoints", "metrics.jsonl", "tensorboard"),
        *("loss.png", "held_out.json", "samples.txt", "times.jsonl"),
    }
    assert [step for step, kind, _ in losses(undisturbed) if kind == "train"] == [1, 2, 3, 4, 5, 6]
    assert [step for step, kind, _ in losses(undisturbed) if kind == "held_out"] == [3, 6]
    assert sorted(path.name for path in (undisturbed / "checkpoints").iterdir()) == ["2", "4", "6"]
    assert (undisturbed / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (undisturbed / "samples.txt").read_text().count("blank         truth") == 5
    figures = json.loads((undisturbed / "held_out.json").read_text())
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]))
    assert figures["tokens"] == 10 * tiny.objective.target_length
    assert t5x_lite.load(undisturbed).experiment == tiny
    assert "tensorflow" not in sys.modules


def test_the_times_of_checkpoints_are_recorded(undisturbed):
    records = [record for record in read_records(undisturbed / "metrics.jsonl") if record["kind"] == "checkpoint"]
    assert [record["step"] for record in records] == [2, 4, 6]
    for record in records:
        assert 0 < record["blocked_seconds"] <= record["written_seconds"] < 60
        assert 0 < record["blocked_share"] < 1
        written = calendar.timegm(time.strptime(record["at"], "%Y-%m-%dT%H:%M:%SZ"))
        checkpoint = (undisturbed / "checkpoints" / str(record["step"])).stat().st_mtime
        assert abs(written - checkpoint) < 10


@pytest.mark.parametrize("number", mostly_slow([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_asked_to_stop_it_saves_and_goes_on_later(tiny, undisturbed, tmp_path, train, monkeypatch, number):
    with monkeypatch.context() as patch:
        at_step(patch, 3, lambda: signal.raise_signal(number))
        train(tiny, tmp_path)
    stopped_at = max(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert 3 <= stopped_at < 6
    train(tiny, tmp_path, report=False)
    assert_identical(tmp_path, undisturbed)


def test_dying_between_checkpoints_changes_nothing(tiny, undisturbed, tmp_path, train, monkeypatch):
    def die():
        raise MemoryError("as if killed")

    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(MemoryError):
            train(tiny, tmp_path)
    assert losses(tmp_path)[-1][0] == 5
    train(tiny, tmp_path, report=False)
    assert_identical(tmp_path, undisturbed)


@pytest.mark.slow
def test_killed_by_the_system(tiny, undisturbed, tmp_path, train, quick_compiler):
    workdir, config = tmp_path / "run", tmp_path / "config.py"
    config.write_text(
        "import sys\n"
        "from t5x_lite import Experiment\n"
        f"experiment = Experiment.from_json(open({str(undisturbed / 'experiment.json')!r}).read())\n"
    )
    command = [sys.executable, "-m", "t5x_lite", "train", str(config), "--workdir", str(workdir)]
    environment = os.environ | {"XLA_FLAGS": quick_compiler, "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(read_records(workdir / "metrics.jsonl")) >= 3:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert losses(workdir), "the process never came to its first step"
    train(tiny, workdir, report=False)
    # Another process on another number of threads: the same batches, the same figures to rounding.
    assert [entry[:2] for entry in losses(workdir)] == [entry[:2] for entry in losses(undisturbed)]
    np.testing.assert_allclose([e[2] for e in losses(workdir)], [e[2] for e in losses(undisturbed)], rtol=1e-5)


@pytest.mark.slow
def test_it_goes_on_with_eight_devices_where_one_stopped(tiny, undisturbed, tmp_path, train, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 3, lambda: signal.raise_signal(signal.SIGTERM))
        train(tiny, tmp_path)
    train(replace(tiny, mesh=MeshShape(2, 2, tensor=2)), tmp_path, devices=8, report=False)
    assert [entry[:2] for entry in losses(tmp_path)] == [entry[:2] for entry in losses(undisturbed)]
    np.testing.assert_allclose([e[2] for e in losses(tmp_path)], [e[2] for e in losses(undisturbed)], rtol=1e-5)


def test_a_longer_run_goes_on_but_another_run_is_refused(tiny, undisturbed, train):
    before = (undisturbed / "experiment.json").read_text()
    other = replace(tiny, seed=7, objective=replace(tiny.objective, noise_density=0.3))
    with pytest.raises(InputError, match=r"objective.noise_density \(0.15 there, 0.3 here\), seed \(0 there, 7 here\)"):
        train(other, undisturbed)
    assert (undisturbed / "experiment.json").read_text() == before


def test_other_text_is_refused(tiny, tmp_path, train):
    text = tmp_path / "text.txt"
    text.write_text(Path(tiny.data.source.paths[0]).read_text())
    experiment = replace(tiny, steps=1, data=replace(tiny.data, source=replace(tiny.data.source, paths=(str(text),))))
    train(experiment, tmp_path / "run", report=False)
    text.write_text(text.read_text().replace("alpha", "omega"))
    with pytest.raises(InputError, match="began on other data"):
        train(replace(experiment, steps=2), tmp_path / "run")


def test_a_loss_that_is_not_finite_ends_the_run_with_its_remains(tiny, tmp_path, train, monkeypatch):
    def read_huge_state(folder, abstract):
        state = read_state(folder, abstract)
        huge = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf) * 1e18, leaf.sharding), state.params)
        return state.replace(params=huge)

    train(replace(tiny, steps=2), tmp_path, report=False)
    monkeypatch.setattr(preparation, "read_state", read_huge_state)
    with pytest.raises(NonFiniteError, match=r"not finite at step 3; .* the last checkpoint is of step 2"):
        train(tiny, tmp_path)
    remains = tmp_path / "nonfinite"
    step = json.loads((remains / "figures.json").read_text())["step"]
    raw = np.load(remains / "batch.npz")["ids"]
    assert raw.shape == (8, tiny.objective.raw_length)
    assert len((remains / "batch.txt").read_text().split("\n\n")) >= 8
    params = traverse_util.flatten_dict(t5x_lite.load(remains / "model").params, sep="/")
    assert all(np.isfinite(leaf).all() for leaf in params.values())
    largest = json.loads((remains / "parameters.json").read_text())
    assert largest == {name: pytest.approx(np.abs(leaf).max()) for name, leaf in params.items()}
    # The batch is that of the failing step.
    from t5x_lite.data import batches

    store = tiny.data.prepare(tiny.objective.layout)
    np.testing.assert_array_equal(raw, batches(store.train, batch_size=8, seed=0)[step - 1]["ids"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batch_size": 6}, "batch_size=6 .* multiple of 8"),
        ({"mesh": MeshShape(1, tensor=8)}, "num_heads=4 is not divided by mesh.tensor=8"),
        ({"mesh": MeshShape(3)}, "mesh data=3"),
    ],
)
def test_what_the_devices_do_not_divide_is_refused_before_anything_is_written(tiny, tmp_path, train, change, named):
    with pytest.raises(InputError, match=named):
        train(replace(tiny, **change), tmp_path / "run", devices=8)
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(tiny, tmp_path, train):
    with pytest.raises(InputError, match=r"model.vocab_size=100 .* choose 259 or more"):
        train(replace(tiny, model=replace(tiny.model, vocab_size=100)), tmp_path)


def test_a_workdir_that_is_a_file(tiny, tmp_path, train):
    file = tmp_path / "file"
    file.write_text("precious")
    for workdir in (file, file / "below"):
        with pytest.raises(InputError, match="file; choose a folder"):
            train(tiny, workdir)
    assert file.read_text() == "precious"


def test_another_tokenizer_in_the_run_is_refused(tiny, tmp_path, train):
    train(replace(tiny, steps=1), tmp_path, report=False)
    config = tmp_path / "tokenizer" / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"extra_ids": 0', '"extra_ids": 5'))
    with pytest.raises(InputError, match="is not the tokenizer that the run began with"):
        train(replace(tiny, steps=2), tmp_path)


DESCRIPTORS = Path("/proc/self/fd")
lists_files = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="only Linux lists the files that a process has open")


def open_shards() -> list[str]:
    """The files of rows that this process has open."""
    paths = []
    for descriptor in DESCRIPTORS.iterdir():
        try:
            paths.append(os.readlink(descriptor))
        except FileNotFoundError:  # the listing's own, or that of another thread
            continue
    return [path for path in paths if ".rows" in path]


def new_threads(before: set[threading.Thread]) -> list[str]:
    return [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("read batches")]


@lists_files
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
        train(tiny, tmp_path / "run", report=False)
        assert not fails
    except KeyboardInterrupt:
        assert fails
    assert max(threads for _, threads in seen) == 2
    assert min(files for files, _ in seen) == 0, "each read opens and closes; threads may be reading meanwhile"
    assert not open_shards() and not new_threads(before)


def test_a_store_whose_writing_fails_leaves_nothing(tiny, tmp_path, monkeypatch):
    stages = []

    class Interrupted(TextFiles):
        def documents(self):
            for number, text in enumerate(super().documents()):
                if "tokenize" in stages and number > 100:
                    raise RuntimeError("the source is gone")
                yield text

    monkeypatch.setattr("t5x_lite.data.splits._CHUNK_EXAMPLES", 50)
    data = replace(tiny.data, source=Interrupted(tiny.data.source.paths), cache_dir=str(tmp_path))
    with pytest.raises(RuntimeError, match="the source is gone"):
        data.prepare(tiny.objective.layout, progress=lambda stage, share: stages.append(stage))
    assert "tokenize" in stages and not list((tmp_path / "stores").iterdir())


def test_closed_rows_are_not_read(tiny, tmp_path):
    with replace(tiny.data, cache_dir=str(tmp_path)).prepare(tiny.objective.layout) as store:
        assert len(store.train[0])
    with pytest.raises(ValueError, match="are closed"):
        store.train[0]


def test_checksums_that_cannot_be_written_end_the_run(tiny, train, tmp_path, monkeypatch, capfd):
    """By the error itself, of which the thread that writes them says nothing; the same command goes on."""

    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("t5x_lite.runs.checkpoints.write_checksums", refuse)
        with pytest.raises(OSError, match="No space left"):
            train(tiny, tmp_path, report=False)
    assert "exception calling callback" not in capfd.readouterr().err
    train(tiny, tmp_path, report=False)
    assert not find_damage(steps_of_run(tmp_path)[-1])
