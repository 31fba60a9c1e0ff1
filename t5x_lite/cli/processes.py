"""The memory of this process, for training on a CPU, and several processes of one run: a pod in miniature."""

import ctypes
import importlib.util
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

# Names and numbers of mallopt(3).
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -8, -4, -1, -2
# Of madvise(2).
_HUGE_PAGES = 14
_ACCELERATORS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def keep_memory() -> bool:
    """Has the process keep memory that it frees, if it will train on a CPU; returns whether it does now.

    XLA's CPU backend allocates its temporaries afresh every step, and glibc hands large blocks back to the system each
    time: a fifth to a third of a small model's step goes into page faults. Call it before jax starts its threads.
    """
    platforms = os.environ.get("JAX_PLATFORMS", "")
    on_cpu = platforms == "cpu" or (not platforms and not any(map(importlib.util.find_spec, _ACCELERATORS)))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if not on_cpu or mallopt is None:  # macOS and musl have none
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 64 << 20}
    kept = all(mallopt(name, value) == 1 for name, value in settings.items())
    if kept:
        _use_huge_pages()
    return kept


def _use_huge_pages() -> None:
    """Asks Linux for pages of 2 MiB in the heap, which from here on may grow to half of the machine's memory.

    A step goes through gigabytes: with pages of 4 KiB a twentieth of its time is spent on finding them. The heap is
    made that long at once, which takes addresses and no memory; where that is refused, all stays as it was. Beyond
    its end pages are small again.
    """
    libc, address = ctypes.CDLL(None), ctypes.c_void_p
    if not all(hasattr(libc, name) for name in ("sbrk", "malloc", "free", "madvise")):
        return
    libc.sbrk.restype, libc.sbrk.argtypes = address, (ctypes.c_ssize_t,)
    libc.malloc.restype, libc.malloc.argtypes = address, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (address,)
    libc.madvise.restype, libc.madvise.argtypes = ctypes.c_int, (address, ctypes.c_size_t, ctypes.c_int)
    page = os.sysconf("SC_PAGE_SIZE")
    first = -(-libc.sbrk(0) // page) * page
    libc.free(libc.malloc(os.sysconf("SC_PHYS_PAGES") * page // 2))
    libc.madvise(first, libc.sbrk(0) - first, _HUGE_PAGES)


_END_SECONDS = 90
"""How long the others have once one has failed; by their own means they take a minute at most."""


def run_local_processes(count: int, arguments: list[str]) -> int:
    """Runs `python -m t5x_lite ARGUMENTS` in `count` processes that find each other; returns their exit status.

    Standard output is process 0's. Errors are those of all, each sentence once, with the number of the process before
    those of others. SIGTERM and Ctrl-C go to all of them.

    Raises `InputError` for a number that is none.
    """
    if count < 1:
        raise InputError(f"local_processes={count} is too small; choose 1 or more")
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
