"""A run for each combination of values: folders, order, what is complete, what fails."""

import shlex

import pytest

from t5x_lite.training import Experiment

CONFIG = """
from t5x_lite import Experiment

experiment = Experiment.from_json({json!r})
"""


@pytest.fixture
def config(tiny, tmp_path):
    (tmp_path / "tiny.py").write_text(CONFIG.format(json=tiny.to_json()))
    return tmp_path / "tiny.py"


def test_commands_of_every_run(run, config, tmp_path):
    options = ("--over", "optimizer.schedule.rate=1e-3,3e-3", "seed=0,1", "--commands", "--steps", "4")
    status, out, err = run("sweep", config, *options, "--workdir", tmp_path / "sweep")
    assert status == 0, err
    commands = [shlex.split(line) for line in out.splitlines()]
    assert [command[1:5] for command in commands] == [["-m", "t5x_lite", "train", str(config)]] * 4
    assert [command[-1] for command in commands] == [
        str(tmp_path / "sweep" / f"rate={rate}_seed={seed}") for rate in ("1e-3", "3e-3") for seed in (0, 1)
    ]
    assert commands[2][5:] == [
        *("--steps", "4", "--optimizer.schedule.rate", "3e-3", "--seed", "0", "--workdir", commands[2][-1]),
    ]
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_runs_and_their_table(run, config, tmp_path):
    options = ("--over", "seed=0,1", "--steps", "2", "--workdir", tmp_path / "sweep")
    status, out, err = run("sweep", config, *options)
    assert status == 0, err
    for seed in (0, 1):
        folder = tmp_path / "sweep" / f"seed={seed}"
        assert Experiment.from_json((folder / "experiment.json").read_text()).seed == seed
        assert (folder / "held_out.json").exists()
    table = out[out.rindex("run ") :]
    assert "seed=0" in table and "seed=1" in table and "loss" in table
    assert "t5x-lite plot" in out
    status, out, err = run("sweep", config, *options)
    assert (status, out.count("complete already")) == (0, 2)
    status, out, err = run("sweep", config, *options, "--batch-size", "16")
    assert status == 1
    assert out.count("holds a run that differs in batch_size") == 2
    assert "failed" in out


BAD = {
    "nothing": ([], "--over is missing"),
    "no value": (["--over", "seed"], "--over has 'seed'; write a field and its values"),
    "a field twice": (["--over", "seed=0", "seed=1"], "--over names seed twice"),
    "a value twice": (["--over", "seed=1,1"], "names a value twice"),
    "an unknown field": (["--over", "sead=0,1"], "perhaps you meant --seed"),
    "a bad value": (["--over", "steps=4,0"], "steps=0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_starts_nothing(run, config, tmp_path, case):
    arguments, message = BAD[case]
    status, _, err = run("sweep", config, *arguments, *(["--workdir", tmp_path / "sweep"] if arguments else []))
    assert status == 2
    assert message in err
    assert not (tmp_path / "sweep").exists()
