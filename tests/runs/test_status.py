"""What a run's folder says of it, from any machine."""

import fcntl
import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from t5x_lite.errors import InputError
from t5x_lite.runs.goodput import FILE
from t5x_lite.runs.status import read_status
from t5x_lite.runs.workdir import open_workdir


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory, train):
    workdir = tmp_path_factory.mktemp("finished")
    train(tiny, workdir, report=False)
    return workdir


@pytest.fixture
def stopped(finished, tmp_path):
    """The run as if it had been killed before its last checkpoint."""
    workdir = tmp_path / "run"
    shutil.copytree(finished, workdir)
    shutil.rmtree(workdir / "checkpoints" / "6")
    return workdir


def test_a_run_that_is_finished(finished):
    status = read_status(finished)
    assert (status.step, status.steps, status.checkpoints, status.running) == (6, 6, (2, 4, 6), False)
    assert status.finished and status.seconds_left == 0
    assert status.age < 600
    assert status.goodput.restarts == 0
    text = status.describe()
    assert text.startswith(f"{finished}: step 6 of 6 (100.0%), finished\n")
    assert f"loss {status.train['loss']:.3f}, held-out loss {status.held_out['loss']:.3f}, " in text
    assert "tokens/s" in text and "checkpoints: 2, 4, 6" in text and " left" not in text
    assert "goodput: " in text


def test_a_run_that_was_killed(stopped):
    end = read_status(stopped)
    later = read_status(stopped, now=time.time() + 3600.0)
    assert not later.finished and later.running is False
    assert (later.step, later.checkpoints) == (6, (2, 4))
    assert later.age == pytest.approx(3600.0, abs=600)
    assert later.goodput.seconds["down"] == pytest.approx(3600.0, abs=600)
    assert later.goodput.seconds["steps"] == end.goodput.seconds["steps"]
    assert later.goodput.seconds["repeated"] > 0, "steps 5 and 6 were not saved"
    assert later.goodput.wall == pytest.approx(sum(later.goodput.seconds.values()))
    assert "step 6 of 6 (100.0%), stopped" in later.describe()


def test_a_run_that_goes_on(stopped, tiny):
    longer = replace(tiny, steps=600)
    (stopped / "experiment.json").write_text(longer.to_json())
    with open_workdir(stopped, longer):
        status = read_status(stopped)
        assert status.running
        assert status.process.startswith("process ")
        assert f"step 6 of 600 (1.0%), running ({status.process})" in status.describe()
        assert "down" not in status.goodput.seconds
        assert status.seconds_left > 0
        assert status.describe().count(" left") == 1
    assert read_status(stopped).running is False


def test_to_look_does_not_take_the_lock(stopped, tiny):
    (stopped / ".lock").write_text("process 1 on a host that is gone")
    assert read_status(stopped).running is False
    with open(stopped / ".lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_time_left_is_that_of_the_last_process(stopped, tiny):
    (stopped / "experiment.json").write_text(replace(tiny, steps=106).to_json())
    lines = [
        {"started": 1.0, "first": 0, "step": 4, "seconds": {"steps": 4000.0}},
        {"started": 9e3, "first": 4, "step": 4, "seconds": {"start": 50.0}},
        {"started": 9e3, "first": 4, "step": 5, "seconds": {"start": 50.0, "compile": 70.0, "steps": 2.0}},
        {
            "started": 9e3,
            "first": 4,
            "step": 6,
            "seconds": {"start": 50.0, "compile": 70.0, "steps": 4.0, "saves": 1.0},
        },
    ]
    (stopped / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_status(stopped).seconds_left == pytest.approx(102 * 3.0), "from the checkpoint of step 4 on"
    with open_workdir(stopped, replace(tiny, steps=106)):
        assert read_status(stopped).seconds_left == pytest.approx(100 * 3.0), "from the last record on"


def test_a_run_before_its_first_record(stopped):
    for name in ("metrics.jsonl", FILE):
        (stopped / name).unlink()
    shutil.rmtree(stopped / "checkpoints")
    status = read_status(stopped)
    assert (status.step, status.age, status.goodput, status.seconds_left) == (0, None, None, None)
    assert status.describe().splitlines()[1:] == ["no record yet", "checkpoints: none yet"]


def test_what_is_not_a_run(tmp_path, stopped):
    for folder in (tmp_path, tmp_path / "absent", stopped / "checkpoints" / "4"):
        with pytest.raises(InputError, match="is not the folder of a run"):
            read_status(folder)
    (stopped / "experiment.json").write_text('{"steps": "many"}')
    with pytest.raises(InputError, match="does not say how many steps"):
        read_status(stopped)
    (stopped / "experiment.json").write_text('{"steps"')
    with pytest.raises(InputError, match="cannot be read as JSON"):
        read_status(stopped)


def test_the_command_is_quick(finished):
    """It imports nothing of JAX."""
    code = (
        "import sys\n"
        "from t5x_lite.cli import main\n"
        f"assert main(['status', {str(finished)!r}, '--json']) == 0\n"
        "assert not {'jax', 'flax', 'orbax', 'tensorflow_datasets'} & {*sys.modules}\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found, status = json.loads(result.stdout), read_status(finished)
    assert found["finished"] is True and found["checkpoints"] == [2, 4, 6]
    assert (found["loss"], found["held_out_loss"]) == (status.train["loss"], status.held_out["loss"])
    assert found["tokens_per_second"] == status.train["tokens_per_second"]
    assert sum(found["goodput"]["seconds"].values()) == pytest.approx(found["goodput"]["wall"])
