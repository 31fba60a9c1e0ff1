"""Real processes over gloo: the same run as one process makes, whatever becomes of them on the way."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import t5x_lite
from t5x_lite.models import GptConfig
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.goodput import read_times
from t5x_lite.runs.records import read_records
from t5x_lite.training import Checkpointing, Evaluation, Experiment

from ..slow import in_campaigns

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds its processes in Linux's /proc")

STEPS = 60
CACHE = Path(__file__).parent.parent.parent / ".pytest_cache" / "jax-processes"


@pytest.fixture(scope="module")
def long(tiny) -> Experiment:
    """A run of a model that compiles soon, which takes some seconds, so that something can happen to it."""
    sizes = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1, "max_length": 24}
    dropout = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
    return replace(
        tiny,
        model=GptConfig(vocab_size=264, **sizes, **dropout),
        objective=CausalLanguageModel(24),
        steps=STEPS,
        evaluation=Evaluation(every=0, rows=10),
        checkpoints=Checkpointing(every=20, keep_best=0),
    )


@pytest.fixture(scope="module")
def config(long, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "config.py"
    path.write_text(f"from t5x_lite import Experiment\nexperiment = Experiment.from_json({long.to_json()!r})\n")
    return path


@pytest.fixture(scope="module")
def alone(long, tmp_path_factory, train) -> Path:
    """The run in one process, that of the test."""
    workdir = tmp_path_factory.mktemp("alone")
    train(long, workdir, drawn=False)
    return workdir


@pytest.fixture
def start(config, quick_compiler) -> Iterator[Callable[..., subprocess.Popen]]:
    """`start(*options, cwd=...)`: `train` with these options, ended with the test."""
    started = []
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": quick_compiler,
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }

    def run(*options: object, cwd: Path | None = None, config: Path = config) -> subprocess.Popen:
        command = [sys.executable, "-m", "t5x_lite", "train", str(config), *map(str, options)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, cwd=cwd, **pipes))
        return started[-1]

    yield run
    for process in started:
        for number in children(process).values():
            os.kill(number, signal.SIGKILL)
        process.kill()
        process.communicate()


IMPATIENT = """
from t5x_lite.cli import processes
from t5x_lite.parallel import hosts
from t5x_lite.runs import report

hosts.HEARTBEAT_SECONDS, processes._END_SECONDS = 10, 5
if not {report}:
    report.finish = lambda *arguments: None
"""


def impatient(config: Path, folder: Path, report: bool = False) -> Path:
    """The config, with processes that count as lost after 10 seconds, and a launcher that ends the last 5 after the
    first: a user waits for either half a minute or more. Without `report` no samples are generated at its end."""
    path = folder / "impatient.py"
    path.write_text(IMPATIENT.format(report=report) + config.read_text())
    return path


def children(process: subprocess.Popen) -> dict[int, int]:
    """Process ids of a run's processes by their number in it."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(parent) == process.pid and "--process-id" in words:
            found[int(words[words.index("--process-id") + 1])] = int(folder.name)
    return found


def wait_for_steps(workdir: Path, process: subprocess.Popen, steps: int) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if len(read_records(workdir / "metrics.jsonl")) >= steps:
            return
        time.sleep(0.02)
    raise AssertionError("the processes never came to their first steps")


def wait_for_checkpoint(workdir: Path, process: subprocess.Popen, step: int) -> None:
    """It is written while the steps go on: those of an idle machine are far ahead of it."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if any(int(folder.name) >= step for folder in steps_of_run(workdir)):
            return
        time.sleep(0.02)
    raise AssertionError(f"there is no checkpoint of step {step}")


def losses(workdir: Path) -> dict[tuple[int, str], float]:
    records = read_records(workdir / "metrics.jsonl")
    return {(record["step"], record["kind"]): record["loss"] for record in records if "loss" in record}


def assert_same_run(workdir: Path, alone: Path) -> None:
    """The same batches and the same figures to rounding, each written down once."""
    ours, theirs = losses(workdir), losses(alone)
    assert list(ours) == list(theirs)
    assert len(ours) == sum("loss" in record for record in read_records(workdir / "metrics.jsonl"))
    np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-4)
    first = [key for key in ours if key[0] <= 20]
    np.testing.assert_allclose([ours[key] for key in first], [theirs[key] for key in first], rtol=1e-5)


def checkpoints(workdir: Path) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.mark.slow
def test_two_processes_make_the_run_of_one_over_a_signal_and_a_death(start, config, alone, long, tmp_path):
    """A signal saves the same step on all, a death ends all, and the same command goes on."""
    config, workdir = impatient(config, tmp_path, report=True), tmp_path / "run"
    command = ("--local-processes", 2, "--workdir", workdir)
    process = start(*command, config=config)
    wait_for_steps(workdir, process, 5)
    os.kill(children(process)[1], signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == os.EX_TEMPFAIL, err
    assert "Traceback" not in err
    assert out.count("step 3/60 ") == 1, "process 0 alone tells"
    step = checkpoints(workdir)[-1]
    assert 5 <= step < STEPS
    assert f"stopped at step {step}; the same command goes on from there" in out
    assert max(step for step, _ in losses(workdir)) == step

    process = start(*command, config=config)
    wait_for_steps(workdir, process, len(read_records(workdir / "metrics.jsonl")) + 3)
    others = children(process)
    os.kill(others.pop(1), signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert process.returncode not in (0, os.EX_TEMPFAIL)
    assert not any(Path(f"/proc/{pid}").exists() for pid in others.values())
    assert "process 1 was ended by SIGKILL; the others follow" in err

    process = start(*command, config=config)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    resumed = int(re.search(r"resuming from step (\d+)\b", out)[1])
    assert resumed in {step, 20, 40} and resumed >= step
    assert_same_run(workdir, alone)
    assert {path.name for path in workdir.iterdir()} == {path.name for path in alone.iterdir()}
    figures, expected = (json.loads((path / "held_out.json").read_text()) for path in (workdir, alone))
    assert figures["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert (workdir / "samples.txt").read_text().count("model:") == 5
    assert t5x_lite.load(workdir).experiment == long
    saves = [record for record in read_records(workdir / "metrics.jsonl") if record["kind"] == "checkpoint"]
    recorded = [record["step"] for record in saves]
    assert recorded == sorted(set(recorded))
    # The one that it went on from may have been complete just before the death, and not yet told.
    assert {step, 20, 40, 60} - {resumed} <= set(recorded) <= {step, 20, 40, 60}
    assert all(0 < record["blocked_seconds"] <= record["written_seconds"] for record in saves)
    assert all(0 < record["blocked_share"] < 1 for record in saves)


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(0, marks=in_campaigns), 1])
def test_one_that_hangs_ends_the_others_and_one_process_goes_on(start, config, long, alone, train, tmp_path, number):
    workdir = tmp_path / "run"
    process = start("--local-processes", 2, "--workdir", workdir, config=impatient(config, tmp_path))
    wait_for_checkpoint(workdir, process, 20)
    others = children(process)
    os.kill(others[number], signal.SIGSTOP)
    _, err = process.communicate(timeout=180)
    assert process.returncode == os.EX_TEMPFAIL, err
    assert re.fullmatch(
        rf"(\[process 1\] )?t5x-lite: process {number} on .+ gave no sign of life for 10 s; the last complete "
        rf"checkpoint is {workdir}/checkpoints/(20|40), and the same command goes on from there\n",
        err,
    )
    assert not any(Path(f"/proc/{pid}").exists() for pid in others.values()), "the launcher ends the one that hangs"
    train(long, workdir, report=False)
    assert read_times(workdir)[-1]["first"] in (20, 40), "it went on, and did not begin anew"
    assert_same_run(workdir, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, what", [(0, "is gone"), pytest.param(1, "gave no sign of life for 10 s", marks=in_campaigns)]
)
def test_the_death_of_one_ends_the_others_on_their_hosts(start, config, tmp_path, number, what):
    config, workdir = impatient(config, tmp_path), tmp_path / "run"
    address = ("--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--process-id")
    processes = [start(*address, number, "--workdir", workdir, config=config) for number in range(2)]
    wait_for_checkpoint(workdir, processes[0], 20)
    processes.pop(number).kill()
    _, err = processes[0].communicate(timeout=180)
    assert processes[0].returncode == os.EX_TEMPFAIL, err
    assert re.fullmatch(
        rf"t5x-lite: process {number} on .+ {what}; the last complete checkpoint is {workdir}/checkpoints/(20|40), "
        "and the same command goes on from there",
        err.splitlines()[-1],
    )


@pytest.mark.slow
def test_unlike_hosts_are_told_apart_before_anything_is_written(start, tmp_path):
    address = ("--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--process-id")
    processes = [
        start(*address, number, "--workdir", tmp_path / "run", "--batch-size", 8 * (number + 1)) for number in range(2)
    ]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert err.startswith("t5x-lite: process 1 on ")
        assert "in batch_size (16 there, 8 here); start all of them with one command" in err
        assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_folders_that_not_all_hosts_see(start, tmp_path):
    """Two working directories stand for two hosts: one path, two folders."""
    address = ("--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--process-id")
    for number in range(2):
        (tmp_path / str(number)).mkdir()
    processes = [start(*address, number, "--workdir", "run", cwd=tmp_path / str(number)) for number in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2, err
        assert "t5x-lite: workdir=run is not the same folder on all hosts: process 1 on " in err
        assert "choose a folder that all share" in err


SLOW = """
import itertools
import sys
import time

from t5x_lite.data import batches
from t5x_lite.runs import pace, records

pace.EXCHANGE_SECONDS, pace._REPEAT_SECONDS = 0.5, 0.0


def slowed(function, seconds, which):  # which: the numbers of the calls that take so much longer
    numbers = itertools.count()

    def slow(*arguments):
        if next(numbers) in which:
            time.sleep(seconds)
        return function(*arguments)

    return slow


if "--process-id" in sys.argv and sys.argv[sys.argv.index("--process-id") + 1] == "1":
    module = sys.modules["t5x_lite.data.batches"]
    module.stack = slowed(module.stack, 1.2, range(12))
    records.Records.advance = slowed(records.Records.advance, 0.6, range(16, 28))
"""


@pytest.mark.slow
def test_hosts_without_a_common_cache_tokenize_once_and_a_slow_one_is_named(start, config, alone, tmp_path):
    """Process 0 tokenizes, into the workdir, which all of them see. The slow one is named for what it is slow in: its
    data in the first steps, its callbacks in the last."""
    config, workdir = impatient(config, tmp_path), tmp_path / "run"
    (tmp_path / "config.py").write_text(config.read_text() + SLOW)
    options = ("--workdir", workdir, "--data.cache-dir", "cache", "--steps", 28)
    address = ("--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--process-id")
    hosts = [tmp_path / str(number) for number in range(2)]
    for host in hosts:
        host.mkdir()
    processes = [
        start(*options, *address, number, cwd=host, config=tmp_path / "config.py") for number, host in enumerate(hosts)
    ]
    out, err = processes[0].communicate(timeout=300)
    assert [processes[0].returncode, processes[1].wait(timeout=60)] == [0, 0], err
    assert len(list((workdir / "cache" / "stores").iterdir())) == 1
    assert not any((host / "cache" / "stores").exists() for host in hosts)
    found, expected = losses(workdir), losses(alone)
    for step in (1, 2, 3):
        assert found[step, "train"] == pytest.approx(expected[step, "train"], rel=1e-5)

    warnings = [line for line in out.splitlines() if line.startswith("WARNING: ")]
    for what in (r"waits 0\.\d+ s for its data", r"is behind the others: its devices wait 0\.\d+ s for it"):
        # The processes share two cores: another one may be late for a while too.
        assert any(re.match(rf"WARNING: (.*; )?process 1 on \S+ {what} in each", line) for line in warnings), out
    records = [one for one in read_records(workdir / "metrics.jsonl") if one["kind"] == "train"]
    assert records[-1]["host_seconds_per_step"] < 0.04, "process 0 waits for the other in its steps, not for itself"


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]
