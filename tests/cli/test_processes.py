"""Settings of glibc, in processes of their own, since they last as long as the process."""

import platform
import subprocess
import sys

import pytest

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
