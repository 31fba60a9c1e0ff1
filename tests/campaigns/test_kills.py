"""Runs that are killed while they save, and at any other moment: what they make in the end is the same to the bit."""

import collections
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.checksums import find_damage
from t5x_lite.models import GptConfig
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.records import read_records
from t5x_lite.training import Checkpointing, Evaluation, Experiment

pytestmark = pytest.mark.slow

LAYOUTS = {1: [(1, 1)], 2: [(2, 1), (1, 2)], 4: [(4, 1), (2, 2)]}
"""Processes and devices of each, by how many devices there are in all: only where that stays the same sums are rounded
alike. A single process adds four numbers in another order than several do."""
WEIGHTS = (6, 3, 1)  # one process starts in a quarter of the time that four need on two cores
MOST_KILLS = 3  # of one run
PATIENCE = 600
CONFIG = """
from t5x_lite import Experiment
from t5x_lite.runs import report

report.finish = lambda *arguments: None  # pictures and samples, which take longer than the run
experiment = Experiment.from_json({json!r})
"""


@dataclass
class Runs:
    """Starts processes of one run, and keeps what a run makes that nothing disturbs."""

    experiment: Experiment
    config: Path
    shim: Path
    environment: dict[str, str]
    expected: dict[int, Path] = field(default_factory=dict)
    operations: dict[tuple[int, int], list[list[str]]] = field(default_factory=dict)
    """By layout and process: the names of what it does to files."""
    started: list[subprocess.Popen] = field(default_factory=list)

    def start(
        self, workdir: Path, layout: tuple[int, int], **variables: Callable[[int], str]
    ) -> list[subprocess.Popen]:
        """One process after the other, with these variables in the environment of each."""
        count, devices = layout
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        processes = []
        for number in range(count):
            command = [sys.executable, "-m", "t5x_lite", "train", str(self.config), "--workdir", str(workdir)]
            if count > 1:
                command += ["--coordinator", address, "--num-processes", str(count), "--process-id", str(number)]
            flags = f"{self.environment['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
            environment = self.environment | {"XLA_FLAGS": flags, "KILL_FOLDER": f"{workdir}/"}
            environment |= {name: value for name, of in variables.items() if (value := of(number))}
            log = (workdir.parent / f"{workdir.name}.log").open("ab")
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            log.close()
        self.started += processes
        return processes

    def reference(self, devices: int) -> Path:
        """The run that nothing disturbs; it is made for each layout, and all give the same parameters."""
        if devices not in self.expected:
            for layout in LAYOUTS[devices]:
                workdir = self.config.parent / f"{layout[0]}x{layout[1]}"
                logs = [workdir.parent / f"{workdir.name}-{number}.operations" for number in range(layout[0])]
                processes = self.start(workdir, layout, KILL_LOG=lambda number, logs=logs: str(logs[number]))
                assert [process.wait(PATIENCE) for process in processes] == [0] * layout[0], output(workdir)
                self.operations[layout] = [log.read_text().splitlines() for log in logs]
                self.expected.setdefault(devices, workdir)
                assert_same(workdir, self.expected[devices])
        return self.expected[devices]


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory, quick_compiler) -> Iterator[Runs]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("file operations are counted by a library that a C compiler makes, on Linux")
    folder = tmp_path_factory.mktemp("kills")
    sizes = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1, "max_length": 24}
    experiment = replace(
        tiny,
        model=GptConfig(vocab_size=264, **sizes),
        objective=CausalLanguageModel(24),
        steps=12,
        evaluation=Evaluation(every=0, rows=10),
        checkpoints=Checkpointing(every=3, keep_last=2, keep_best=0),
    )
    (folder / "config.py").write_text(CONFIG.format(json=experiment.to_json()))
    source, shim = Path(__file__).parent / "kill_at.c", folder / "kill_at.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": quick_compiler,
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "LD_PRELOAD": str(shim),
    }
    runs = Runs(experiment, folder / "config.py", shim, environment)
    yield runs
    end(runs.started)


def end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def output(workdir: Path) -> str:
    return (workdir.parent / f"{workdir.name}.log").read_text(errors="replace")[-3000:]


def losses(workdir: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in read_records(workdir / "metrics.jsonl") if "loss" in record]


def assert_same(workdir: Path, expected: Path) -> None:
    ours, theirs = (
        traverse_util.flatten_dict(jax.device_get(t5x_lite.load(path).params), sep="/") for path in (workdir, expected)
    )
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert losses(workdir) == losses(expected)
    for left, right in ((workdir, expected), (workdir / "checkpoints", expected / "checkpoints")):
        assert {path.name for path in left.iterdir()} == {path.name for path in right.iterdir()}


def killed(runs: Runs, workdir: Path, layout: tuple[int, int], draw: random.Random) -> str:
    """Starts the run and kills it; what it was about to do, or an empty string where it came to its end before."""
    victim = draw.randrange(layout[0])
    of_victim = runs.operations[layout][victim]
    at = draw.randint(1, len(of_victim)) if draw.random() < 0.75 else 0
    log = workdir.parent / f"{workdir.name}.operations"
    log.unlink(missing_ok=True)
    processes = runs.start(
        workdir,
        layout,
        KILL_AT=lambda number: str(at) if number == victim and at else "",
        KILL_LOG=lambda number: str(log) if number == victim else "",
    )
    moment, deadline = None, time.monotonic() + PATIENCE
    if not at:  # once the loop has begun
        records = len(read_records(workdir / "metrics.jsonl"))
        while processes[victim].poll() is None and len(read_records(workdir / "metrics.jsonl")) == records:
            assert time.monotonic() < deadline, output(workdir)
            time.sleep(0.01)
        moment = time.monotonic() + draw.uniform(0, 0.5)
    while processes[victim].poll() is None and (moment is None or time.monotonic() < moment):
        assert time.monotonic() < deadline, output(workdir)
        time.sleep(0.005)
    processes[victim].kill()
    status = processes[victim].wait()
    if status == 0:
        assert [process.wait(PATIENCE) for process in processes] == [0] * layout[0], output(workdir)
        return ""
    assert status == -signal.SIGKILL, output(workdir)
    time.sleep(draw.choice((0, draw.uniform(0, 0.5))))  # the others go on for a while
    end(processes)
    lines = log.read_text().splitlines() if log.exists() else []
    return lines[-1].split(" ")[0] if at and lines else "a moment"


@pytest.mark.least(1)
def test_killed_runs_make_the_same_in_the_end(runs, tmp_path, draws):
    kills: collections.Counter = collections.Counter()
    for number, draw in enumerate(draws):
        (devices,) = draw.choices(list(LAYOUTS), WEIGHTS)
        expected, workdir = runs.reference(devices), tmp_path / str(number)
        story = []
        while len(story) < MOST_KILLS:
            layout = draw.choice(LAYOUTS[devices])
            if not (what := killed(runs, workdir, layout, draw)):
                break
            story.append(f"{layout[0]} x {layout[1]}: {what}")
            kills[story[-1]] += 1
            # An earlier one may be half removed; the run that goes on removes the rest.
            for step in steps_of_run(workdir)[-1:]:
                assert not find_damage(step), story
        else:
            layout = draw.choice(LAYOUTS[devices])
            processes = runs.start(workdir, layout)
            assert [process.wait(PATIENCE) for process in processes] == [0] * layout[0], (story, output(workdir))
        try:
            assert_same(workdir, expected)
        except AssertionError as error:
            raise AssertionError(f"after {story}: {error}") from error
        shutil.rmtree(workdir)
        print(f"{number}: {'; '.join(story) or 'not killed'}", flush=True)
    print(f"\n{sum(kills.values())} kills in {number + 1} runs, none of which made other parameters:")
    print("\n".join(f"{count:5} {what}" for what, count in sorted(kills.items())))
    assert kills


@pytest.mark.least(5)
def test_what_a_kill_leaves_before_any_operation_makes_the_same_in_the_end(runs, tmp_path, draws, train):
    """As if one process were killed before each of them; this one goes on with what it leaves."""
    expected, copies = runs.reference(1), tmp_path / "copies"
    copies.mkdir()
    (process,) = runs.start(tmp_path / "run", (1, 1), KILL_COPIES=lambda number: str(copies))
    assert process.wait(PATIENCE) == 0, output(tmp_path / "run")
    left = sorted(copies.iterdir(), key=lambda path: int(path.name))
    assert len(left) > 0.9 * len(runs.operations[1, 1][0])
    count = len(left)
    for draw in draws:
        if not left:
            break
        workdir = left.pop(draw.randrange(len(left)))
        try:
            train(runs.experiment, workdir, report=False)
            assert_same(workdir, expected)
        except Exception as error:
            raise AssertionError(f"before operation {workdir.name}: {error}") from error
        shutil.rmtree(workdir)
    print(f"\n{count - len(left)} of {count} moments between two file operations, none of which made other parameters")
