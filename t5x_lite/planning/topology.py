"""Slices of TPU pods, and the abstract devices of which they are made."""

import importlib.util
import math
import os
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from t5x_lite.errors import InputError
from t5x_lite.parallel.chips import CHIPS, Chip

# Without a pod around it, the library asks a metadata server that does not answer, and complains; and it lets one
# process at a time in, as if each wanted the machine's own chips.
_WITHOUT_POD = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


@dataclass(frozen=True)
class Topology:
    """A slice of a pod, or several of one shape: `v5p:4x4x4` is 64 chips of v5p, 4 in each dimension.

    >>> topology = Topology.parse("v5p:4x4x8")
    >>> topology.num_chips, topology.shape, topology.chip.name
    (128, (4, 4, 8), 'v5p')
    >>> several = Topology.parse("v5p:4x4x8", num_slices=3)
    >>> str(several), several.num_chips
    ('3 x v5p:4x4x8', 384)
    """

    chip: Chip
    shape: tuple[int, ...]
    """Of one slice."""
    num_slices: int = 1
    """Slices, which the data centre's network (DCN) alone connects."""

    @classmethod
    def parse(cls, name: str, num_slices: int = 1) -> "Topology":
        """The slice KIND:AxB or KIND:AxBxC, or several of them.

        Raises `InputError` for an unknown kind or shape, and for several slices of a kind whose network is not known.
        """
        kind, _, shape = name.partition(":")
        if kind not in CHIPS:
            raise InputError(
                f"topology={name!r} is not known; choose KIND:SHAPE with one of {', '.join(CHIPS)}, such as v5p:4x4x4"
            )
        chip = CHIPS[kind]
        sizes = tuple(map(int, shape.split("x"))) if re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})+", shape) else ()
        # A pod of three dimensions is made of cubes, and any box of them can be had as a slice.
        of_cubes = chip.dimensions == len(sizes) == 3 and all(size % 4 == 0 for size in sizes)
        if shape not in chip.shapes and not (of_cubes and math.prod(sizes) <= chip.pod):
            more = f", or any other of whole cubes of 4x4x4 up to {chip.pod} chips" if chip.dimensions == 3 else ""
            known = ", ".join(f"{kind}:{shape}" for shape in chip.shapes)
            raise InputError(f"topology={name!r} is not known; choose {known}{more}")
        if num_slices > 1 and chip.dcn_bandwidth is None:
            known = ", ".join(other.name for other in CHIPS.values() if other.dcn_bandwidth)
            raise InputError(
                f"slices={num_slices} of {kind} cannot be planned, as the bandwidth between them is not published; "
                f"choose slices of {known}, or one slice"
            )
        return cls(chip, sizes, num_slices)

    @property
    def name(self) -> str:
        """Of one slice, such as `v5p:4x4x4`."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    def __str__(self) -> str:
        return self.name if self.num_slices == 1 else f"{self.num_slices} x {self.name}"

    @property
    def num_chips(self) -> int:
        """Of all slices."""
        return self.num_slices * math.prod(self.shape)

    @property
    def num_devices(self) -> int:
        """As many as JAX would see."""
        return self.num_chips * self.chip.devices

    @cached_property
    def num_hosts(self) -> int:
        """Virtual machines, each of which runs one process."""
        return len({device.process_index for device in self.devices})

    @cached_property
    def devices(self) -> tuple[Any, ...]:
        """Abstract devices, as many as JAX would see, slice after slice. Raises `InputError` where the TPU compiler is
        not installed, or another one than goes with JAX."""
        if importlib.util.find_spec("libtpu") is None:
            raise InputError(
                f"topology={str(self)!r} needs the TPU compiler, the package libtpu, which is not installed; "
                "install the extra: pip install 't5x_lite[tpu]' (no TPU is needed)"
            )
        check_libtpu()
        for name, value in _WITHOUT_POD.items():
            os.environ.setdefault(name, value)
        enlarge_stacks()
        from jax.experimental import topologies

        options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if math.prod(self.shape) == 1 else {}
        if self.chip.name == "v4":
            options["chip_config_name"] = "megacore"  # as on Cloud TPU: a chip's two cores are one device
        rings = [self.is_ring(dimension) for dimension in range(len(self.shape))]
        if any(rings):
            # By default the compiler takes a slice for a mesh, whose collectives go along lines.
            options["wrap"] = (*rings, False)[:3]
        if self.num_slices > 1:
            options["num_slices"] = self.num_slices
        return tuple(topologies.get_topology_desc(platform="tpu", topology_name=self.name, **options).devices)

    def is_ring(self, dimension: int) -> bool:
        """Whether the chips along a dimension form a ring rather than a line.

        v4, v5p and tpu7x: slices of whole 4x4x4 cubes are tori, smaller ones are not; v5e and v6e: a dimension is a
        ring where it is that of the whole pod, 16 chips.
        """
        if self.chip.dimensions == 3:
            return all(size % 4 == 0 for size in self.shape)
        return self.shape[dimension] == 16

    def group_bandwidth(self, chips: list[tuple[int, ...]]) -> float:
        """Bytes per second that each of some chips of a slice, given by coordinates, can receive from the others over
        their links.

        A collective uses, in each dimension that the chips differ in, two links where they are a whole ring and one
        where they are not. The result is infinite where they differ in none and are one chip.
        """
        links = 0
        for dimension, size in enumerate(self.shape):
            columns = len({chip[dimension] for chip in chips})
            links += 0 if columns == 1 else 2 if columns == size and self.is_ring(dimension) else 1
        return links * self.chip.link_bandwidth if links else math.inf


def check_libtpu() -> None:
    """Raises `InputError` for a TPU compiler other than the one that the installed JAX names in its extra `tpu`: jaxlib
    may not read what another one writes."""
    named = [one for one in map(Requirement, metadata.requires("jax") or ()) if one.name == "libtpu"]
    pins = [pin for pin in named if pin.marker is None or pin.marker.evaluate({"extra": "tpu"})]
    try:
        installed = metadata.version("libtpu")
    except metadata.PackageNotFoundError:  # a build of one's own
        return
    for pin in pins:
        if not pin.specifier.contains(installed, prereleases=True):
            jax = metadata.version("jax")
            raise InputError(
                f"libtpu={installed} does not go with jax {jax}, which needs libtpu{pin.specifier}; "
                f"install that one: pip install 'jax[tpu]=={jax}'"
            )


def enlarge_stacks() -> None:
    """Gives the TPU compiler's threads larger stacks; call it before libtpu is loaded.

    Products that the compiler fuses into one another, as it does those of small models, overflow the default stacks,
    which ends the process.
    """
    option, arguments = "fibers_default_thread_stack_size", os.environ.get("LIBTPU_INIT_ARGS", "")
    if option not in arguments:
        os.environ["LIBTPU_INIT_ARGS"] = f"{arguments} --{option}={4 << 20}".strip()
