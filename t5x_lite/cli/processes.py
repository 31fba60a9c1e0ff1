"""The memory of this process, threads that can be given up, and several processes of one run: a pod in miniature."""

import ctypes
import gc
import importlib.util
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import IO, TypeVar

T = TypeVar("T")

# Names and numbers of mallopt(3).
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -8, -4, -1, -2
_ACCELERATORS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def keep_memory() -> bool:
    """Has the process keep the memory that it frees, if it trains on a CPU; returns whether it does so.

    XLA's CPU backend allocates its temporaries in every step, and glibc returns large blocks to the system each time: a
    fifth to a third of a small model's step goes into page faults. Call it before jax starts its threads.
    """
    platforms = os.environ.get("JAX_PLATFORMS", "")
    on_cpu = platforms == "cpu" or (not platforms and not any(map(importlib.util.find_spec, _ACCELERATORS)))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if not on_cpu or mallopt is None:  # macOS and musl have none
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 64 << 20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def collect_garbage_rarely() -> None:
    """Has Python look for cycles of objects after 100,000 new ones, instead of 700, and seldom among all.

    What jax traces are hundreds of thousands of objects that stay. To go through all of them again and again takes a
    twentieth of the time in which a small model's first step is traced and compiled.
    """
    gc.set_threshold(100_000, 20, 20)


_IMPORTED = time.time()
_MOST_SECONDS_OF_IMPORTS = 600
"""A process that is older does something else beside one run."""


def process_started() -> float | None:
    """When this process began to import t5x_lite, in seconds since 1970; None if that is too long ago to be a start.

    The system's own time would count what a shell did before it became this process: `pip install ... && python ...`
    as one command of ssh or of a container is one process, with one start.
    """
    return _IMPORTED if time.time() - _IMPORTED < _MOST_SECONDS_OF_IMPORTS else None


def in_thread(function: Callable[[], T], waiting: Callable[[float], None]) -> T:
    """Calls a function in another thread, and `waiting` each second with the seconds so far.

    Ctrl-C, or an exception of `waiting`, ends the call at once, also within the compiler, where Python would wait for
    its end; the thread then goes on until the process ends.
    """
    pool, started = ThreadPoolExecutor(1), time.monotonic()
    result = pool.submit(function)
    pool.shutdown(wait=False)
    while True:
        try:
            return result.result(timeout=1.0)
        except TimeoutError:
            if result.done():  # the function's own
                raise
            waiting(time.monotonic() - started)


_END_SECONDS = 60
"""How long the others have after one has failed, before they are killed; all but one that hangs end by themselves."""


def run_local_processes(count: int, arguments: list[str]) -> int:
    """Runs `python -m t5x_lite ARGUMENTS` in `count` processes of one run; returns their exit status.

    Standard output is process 0's. Errors are those of all, each sentence once, with the number of the process before
    those of others. SIGTERM and Ctrl-C go to all of them.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "t5x_lite", *arguments, "--local-processes", "1"]
    command += ["--coordinator", f"localhost:{port}", "--num-processes", str(count), "--process-id"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    processes: list[subprocess.Popen[str]] = []

    def send(number: int, frame: FrameType | None = None) -> None:
        for process in processes:
            process.send_signal(number)  # does nothing to a process that has ended

    before = {number: signal.signal(number, send) for number in (signal.SIGTERM, signal.SIGINT)}
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
                    process_group=0,  # a terminal's Ctrl-C reaches them through `send` alone
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
        send(signal.SIGKILL)
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: list[subprocess.Popen[str]]) -> int:
    """The status of the first process to fail, once all have ended; 0 if none does."""
    first, deadline, running = 0, math.inf, dict(enumerate(processes))
    while running:
        time.sleep(0.05)
        for number, process in list(running.items()):
            if (status := process.poll()) is None:
                continue
            del running[number]
            if status and not first:
                first, deadline = status, time.monotonic() + _END_SECONDS
                if status < 0:
                    name = signal.Signals(-status).name
                    print(f"t5x-lite: process {number} was ended by {name}; the others follow", file=sys.stderr)
        if time.monotonic() > deadline:
            for process in running.values():
                process.kill()
    return first if first >= 0 else 128 - first


def _pass_on(lines: IO[str], number: int, reported: set[str]) -> None:
    for line in lines:
        if line.startswith("t5x-lite: ") and line in reported:
            continue
        reported.add(line)
        sys.stderr.write(line if number == 0 else f"[process {number}] {line}")
        sys.stderr.flush()
