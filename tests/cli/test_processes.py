"""Settings of glibc, in processes of their own, since they last as long as the process."""

import platform
import subprocess
import sys
from pathlib import Path

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


OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")

HEAP_PROGRAM = """
import ctypes, resource, sys
from pathlib import Path
from t5x_lite.cli.processes import keep_memory

resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), -1))
keep_memory()
malloc = ctypes.CDLL(None).malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
begin = malloc(100_000_000)
assert begin
in_block, flags = False, None
for line in Path("/proc/self/smaps").read_text().splitlines():
    first, *rest = line.split()
    if first.count("-") == 1 and not first.endswith(":"):
        low, high = (int(end, 16) for end in first.split("-"))
        in_block = low <= begin + 50_000_000 < high
    elif in_block and first == "VmFlags:":
        flags = rest
print("hg" in flags)
"""
"""Whether a large block lies in memory with huge pages, in a process that may have so many bytes."""


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
    # 20 arrays of 40 MB, 10,000 pages each (or 20 huge ones), fault in anew only where memory was given back.
    assert faults < 100 < more_faults


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="needs glibc, and a Linux with transparent huge pages",
)
@pytest.mark.skipif(
    OVERCOMMIT.exists() and OVERCOMMIT.read_text().strip() == "2",
    reason="this Linux gives no process more addresses than there is memory",
)
def test_the_heap_asks_for_huge_pages_where_it_may_grow_that_far():
    assert output_of(HEAP_PROGRAM, str(2**46), JAX_PLATFORMS="cpu") == "True"
    assert output_of(HEAP_PROGRAM, str(2**46), JAX_PLATFORMS="tpu") == "False"
    assert output_of(HEAP_PROGRAM, str(2**29), JAX_PLATFORMS="cpu") == "False"
