"""glibc's allocator, told to keep what it has: for training on a CPU."""

import ctypes
import importlib.util
import os

# Names and numbers of mallopt(3).
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -8, -4, -1, -2
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
    return all(mallopt(name, value) == 1 for name, value in settings.items())
