"""glibc's allocator, set to keep what it has: for training on a CPU."""

import ctypes
import importlib.util
import os

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
