"""Which platform a program is for, and what depends on that beside its operations."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax

Platform = Literal["cpu", "gpu", "tpu"]


def platform(device: Any = None) -> Platform:
    """The platform of `device`; None: of the mesh that a program is traced for, or, without one, of this machine."""
    device = jax.sharding.get_abstract_mesh().abstract_device if device is None else device
    return jax.default_backend() if device is None else device.platform


def kernel_memory() -> int:
    """Bytes of VMEM that a Pallas kernel may use on the TPU that a program is traced for, a tenth or more left over."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    kind = getattr(jax.devices()[0] if device is None else device, "device_kind", "")
    return next((mebibytes for start, mebibytes in _KERNEL_MEMORY if kind.startswith(start)), 14) << 20


_KERNEL_MEMORY = (("TPU v5 lite", 110), ("TPU v5e", 110), ("TPU v6", 110), ("TPU v5", 56), ("TPU7", 56))
"""Of 128 and of 64 MiB, by the beginning of a chip's name; older ones have 16."""


def train_step_options(device: Any) -> dict[str, bool]:
    """The compiler's options for a train step.

    XLA's CPU backend copies both moments of Adam in every step unless it looks at where an array is last used, as
    other backends do by default: the moments' updates write over what the parameters' update reads.

    The TPU compiler waits for each gather of parameters unless it may fuse its steps into the products that run
    meanwhile: of a step of GPT-3 13B on 128 v5p chips it then waits for 89 ms of collectives instead of 198 (libtpu
    0.0.42.1). It does not do so with the sums of gradients.
    """
    return _TRAIN_STEP_OPTIONS.get(platform(device), {})


_TRAIN_STEP_OPTIONS: dict[Platform, dict[str, bool]] = {
    "cpu": {"xla_cpu_copy_insertion_use_region_analysis": True},
    "tpu": {
        "xla_enable_async_all_gather": True,
        "xla_tpu_enable_async_collective_fusion": True,
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
        "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
        "xla_tpu_overlap_compute_collective_tc": True,
    },
}


def can_offload(device: Any) -> bool:
    """Whether the device moves activations to its host's memory."""
    return platform(device) in ("tpu", "gpu")


def tpu_slice(device: Any) -> int:
    """The number of the TPU slice that a device belongs to, whose chips are wired to each other; 0 for all others.

    Other accelerators number their hosts as slices, whose network may carry any axis of a mesh.
    """
    return getattr(device, "slice_index", 0) if platform(device) == "tpu" else 0


def has_wired_slices(device: Any) -> bool:
    """Whether chips are wired in slices: TPUs, and the devices that a CPU simulates in their place."""
    return platform(device) != "gpu"


def forms_torus(devices: Sequence[Any]) -> bool:
    """Whether TPUs are rings in every dimension: whole cubes of 4 x 4 x 4 chips, or a pod of 16 x 16 that has two."""
    places = [getattr(device, "coords", None) for device in devices if platform(device) == "tpu"]
    if not places or None in places:
        return False
    sizes = [len(set(along)) for along in zip(*places, strict=True)]
    return sizes == [16, 16, 1] or all(size % 4 == 0 for size in sizes)


def unrolls_layers() -> bool:
    """Whether training compiles each layer by itself: a CPU's loop copies all that waits for the backward pass."""
    return platform() == "cpu"


def multiplies_tensors() -> bool:
    """Whether products keep all dimensions of activations, heads among them, instead of being those of plain matrices,
    which a CPU multiplies faster. A TPU would copy what it stores in tiles of other dimensions: heads, which its kernel
    reads apart, and rows whose length no tile divides."""
    return platform() == "tpu"


def free_memory() -> int | None:
    """Bytes that arrays may still take on the devices of all processes; None where they do not say it."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    if all(stats):
        return jax.process_count() * sum(each["bytes_limit"] - each["bytes_in_use"] for each in stats)
    if platform() != "cpu" or not (memory := Path("/proc/meminfo")).exists():
        return None
    return jax.process_count() * 1024 * int(re.search(r"MemAvailable: *(\d+) kB", memory.read_text())[1])
