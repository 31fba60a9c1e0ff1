"""Settings of glibc, in processes of their own, since they last as long as the process; calls in a thread; when one
began."""

import platform
import subprocess
import sys
import threading
import time

import pytest

from t5x_lite.cli.processes import in_thread, process_started

PROGRAM = """
import resource, sys
import numpy as np
from t5x_lite.cli.processes import keep_memory

kept = keep_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(10_000_000, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def output_of(program: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env={"PATH": "", **environment}, capture_output=True, text=True, check=True
    ).stdout.strip()


def run(**environment: str) -> tuple[bool, int]:
    kept, faults = output_of(PROGRAM, **environment).split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_memory_is_kept_on_a_cpu_alone():
    kept, faults = run(JAX_PLATFORMS="cpu")
    assert kept
    kept_for_tpu, more_faults = run(JAX_PLATFORMS="tpu")
    assert not kept_for_tpu
    # 20 arrays of 40 MB, 10,000 pages each, fault in anew only where memory was given back.
    assert faults < 100 < more_faults


OBJECTS = """
import gc, sys
from t5x_lite.cli.processes import collect_garbage_rarely

if sys.argv[1:]:
    collect_garbage_rarely()
generations = []
gc.callbacks.append(lambda phase, info: generations.append(info["generation"]))
kept = [{"number": number} for number in range(50_000)]
print(len(generations))
"""


def test_garbage_is_collected_rarely():
    assert int(output_of(OBJECTS)) > 0
    assert int(output_of(OBJECTS, "rarely")) == 0


def test_what_runs_in_a_thread_reports_the_seconds_and_can_be_interrupted():
    ticks, never = [], threading.Event()
    assert in_thread(lambda: time.sleep(1.2) or 7, ticks.append) == 7
    assert ticks
    assert 0.9 < ticks[0] < 5

    def interrupt(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_thread(lambda: never.wait(60), interrupt)
    never.set()
    with pytest.raises(TimeoutError, match="its own"):
        in_thread(lambda: (_ for _ in ()).throw(TimeoutError("its own")), ticks.append)


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU date and exec")
def test_a_process_began_when_it_ran_this_and_not_when_its_shell_did():
    """As in `ssh host "pip install ... && python -m t5x_lite train ..."`: the shell becomes the process."""
    program = f"import {process_started.__module__} as processes; print(processes.process_started())"
    command = 'sleep 0.5; date +%s.%N; exec "$0" -c "$1"'
    times = subprocess.run(["sh", "-c", command, sys.executable, program], capture_output=True, text=True, check=True)
    executed, began = map(float, times.stdout.split())
    assert executed <= began <= time.time()
