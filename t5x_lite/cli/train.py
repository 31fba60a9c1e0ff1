"""Several processes of one run on this machine: a pod in miniature, on CPUs."""

import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import IO

from rich.console import Console

from t5x_lite.cli.arguments import ExperimentOptions, load_config, parse, take_config
from t5x_lite.cli.own_data import with_data
from t5x_lite.errors import InputError
from t5x_lite.parallel import hosts
from t5x_lite.parallel.processes import Place
from t5x_lite.planning.chips import enlarge_stacks
from t5x_lite.runs.files import local_or_bucket
from t5x_lite.training.experiment import flat_fields
from t5x_lite.training.loop import train
from t5x_lite.training.signals import Stopped

_END_SECONDS = 90
"""How long the others have once one has failed; by their own means they take a minute at most."""


def run_local_processes(count: int, arguments: list[str]) -> int:
    """Runs `python -m t5x_lite ARGUMENTS` in `count` processes that find each other; returns their exit status.

    Standard output is process 0's. Errors are those of all, each sentence once, with the number of the process before
    those of others. SIGTERM and Ctrl-C go to all of them.

    Raises `InputError` for a number that is none.
    """
    if count < 1:
        raise InputError(f"local_processes={count} is no number of processes; choose 1 or more")
    command = [sys.executable, "-m", "t5x_lite", *arguments, "--local-processes", "1"]
    command += ["--coordinator", f"localhost:{_free_port()}", "--num-processes", str(count), "--process-id"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    processes: list[subprocess.Popen[str]] = []
    before = {
        number: signal.signal(number, lambda number, _: _send(processes, number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        for number in range(count):
            processes.append(
                subprocess.Popen(
                    [*command, str(number)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=None if number == 0 else subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    process_group=0,  # a terminal's Ctrl-C comes to them from here alone
                )
            )
        readers, reported = [], set()
        for number, process in enumerate(processes):
            reader = threading.Thread(target=_pass_on, args=(process.stderr, number, reported), daemon=True)
            reader.start()
            readers.append(reader)
        status = _wait(processes)
        for reader in readers:
            reader.join(5)
        return status
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: list[subprocess.Popen[str]]) -> int:
    """The status of the first process to fail, once all have ended; 0 if none does."""
    first, deadline = 0, None
    running = dict(enumerate(processes))
    while running:
        time.sleep(0.05)
        for number, process in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[number]
            if status and not first:
                first, deadline = status, time.monotonic() + _END_SECONDS
                if status < 0:
                    name = signal.Signals(-status).name
                    print(f"t5x-lite: process {number} was ended by {name}; the others follow", file=sys.stderr)
        if deadline is not None and time.monotonic() > deadline:
            _send(list(running.values()), signal.SIGKILL)
    return first if first >= 0 else 128 - first


def _send(processes: list[subprocess.Popen[str]], number: int, frame: FrameType | None = None) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _pass_on(lines: IO[str], number: int, reported: set[str]) -> None:
    for line in lines:
        if line.startswith("t5x-lite: ") and line in reported:
            continue
        reported.add(line)
        sys.stderr.write(line if number == 0 else f"[process {number}] {line}")
        sys.stderr.flush()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


PROG = "t5x-lite train"
USAGE = f"""usage: {PROG} CONFIG [options]

Trains what CONFIG describes, from text to checkpoints; CONFIG is a Python file that binds `experiment`. If the
workdir holds checkpoints of the same experiment, training goes on from the last one. SIGTERM and Ctrl-C save and exit.

  --workdir FOLDER     checkpoints, records and pictures go there, on a disk or in a bucket such as gs://bucket/run
                       (default: runs/<name of CONFIG>)
  --text PATH ...      train on these files, globs or folders (.txt, .jsonl, .gz) instead of the config's source
  --pairs PATH ...     the same for objectives on pairs: .tsv (source TAB target) or .jsonl, and their .gz
  --held-out-pairs PATH ...  pairs to evaluate on, instead of a part of the others
  --examples PATH ...  the same for tasks, whose files are like those of the config
  --held-out-examples PATH ...  examples to evaluate on

On several hosts run the same command on each. On a TPU pod, on GKE and in a SLURM step they find each other; elsewhere

  --coordinator HOST:PORT --num-processes N --process-id I   say where process 0 listens, and which one this is
  --join-timeout SECONDS     how long to wait for the others at the start (default: 300)
  --local-processes N        N processes on this machine's CPUs: a pod in miniature

A signal to one of them saves the same step on all and ends them with status 75, for a supervisor to start them again.

and every field of the experiment, such as --steps 200 --objective.noise-density 0.3 --mesh.fsdp 4:
"{PROG} CONFIG --help" lists them with CONFIG's values."""

PACKAGES = ("t5x_lite", "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "tokenizers")
"""Those that have to be of one version on all hosts."""


@dataclass(frozen=True)
class Train:
    """Train what the config describes, with these fields of the experiment changed."""

    experiment: ExperimentOptions
    workdir: str
    """Checkpoints, records and pictures go there, on a disk or in a bucket such as gs://bucket/run; if it holds
    checkpoints of this experiment, training goes on."""
    text: tuple[str, ...] = ()
    """Files, globs or folders (.txt, .jsonl, .gz) to train on instead of the config's source."""
    pairs: tuple[str, ...] = ()
    """The same for objectives on pairs: .tsv or .jsonl, and their .gz, read as the config reads its own."""
    held_out_pairs: tuple[str, ...] = ()
    """Pairs to evaluate on, instead of a part of the others."""
    examples: tuple[str, ...] = ()
    """Files with the examples of a task, like those of the config."""
    held_out_examples: tuple[str, ...] = ()
    """Examples to evaluate on, instead of a part of the others."""
    coordinator: str = ""
    """HOST:PORT of process 0, for several hosts; on a TPU pod, on GKE and in a SLURM step it is found."""
    num_processes: int = 0
    """Processes of the run, with --coordinator."""
    process_id: int = -1
    """Which of them this is, from 0, with --coordinator."""
    join_timeout: int = 300
    """Seconds to wait at the start for the other processes."""
    local_processes: int = 1
    """Processes to run on this machine's CPUs: a pod in miniature."""


def run(arguments: list[str]) -> int:
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Train(load_config(config), f"runs/{Path(config).stem}")
    command = parse(Train, arguments, prog=f"{PROG} {config}", default=default)
    experiment = with_data(
        command.experiment,
        text=command.text,
        pairs=command.pairs,
        held_out_pairs=command.held_out_pairs,
        examples=command.examples,
        held_out_examples=command.held_out_examples,
    )
    if command.local_processes != 1:
        if command.coordinator:
            raise InputError("--local-processes and --coordinator are two ways to start; give one of them")
        return run_local_processes(command.local_processes, ["train", config, *arguments])
    console, place = Console(), _place(command)
    facts = {name: str(value) for name, value in flat_fields(experiment)} | {"--workdir": command.workdir} | _versions()
    enlarge_stacks()
    stopped = os.EX_TEMPFAIL if place is not None or os.environ.get("T5X_LITE_SUPERVISED") else 0
    try:
        with hosts.joined(place, facts, timeout=command.join_timeout):
            finished = train(experiment, local_or_bucket(command.workdir), console)
    except Stopped:
        if place is None or hosts.is_first():
            console.print("stopped before the first step; there was nothing to save", highlight=False)
        return stopped
    return 0 if finished else stopped


def _place(command: Train) -> Place | None:
    """Among the processes of a run; None for one that is alone."""
    given = (bool(command.coordinator), command.num_processes > 0, command.process_id >= 0)
    if all(given):
        return Place(command.coordinator, command.num_processes, command.process_id)
    if any(given):
        raise InputError(
            f"--coordinator {command.coordinator or '(none)'} --num-processes {command.num_processes} --process-id "
            f"{command.process_id} do not say which process this is; give all three, or none on a TPU pod, GKE or SLURM"
        )
    return hosts.find_place(command.join_timeout)


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found
