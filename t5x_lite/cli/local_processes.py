"""Several processes of one run on this machine: a pod in miniature, on CPUs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import IO

from t5x_lite.errors import InputError

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
