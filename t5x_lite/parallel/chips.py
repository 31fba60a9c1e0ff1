"""What chips can do, as their makers publish it."""

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """One generation of TPU. Rates are a chip's peaks, in units per second."""

    name: str
    hbm_bytes: int
    """Memory that the documentation grants a program; the compiler keeps a little of it for itself."""
    peak_flops: float
    """Of matrix products in bfloat16."""
    hbm_bandwidth: float
    """Bytes between the memory and the cores."""
    ici_bandwidth: float
    """Bytes over all links to the neighbouring chips together, in both directions."""
    dcn_bandwidth: float | None
    """Bytes over the data centre's network in one direction, a chip's share of its host's cards; None: not published.

    v5p, v6e and tpu7x: 50, 100 and 100 Gbit/s of a chip, by the page of tpu7x; v5e: 6.4 Tbit/s of a pod of 256 chips.
    """
    devices: int
    """Devices that JAX sees: one, or the two halves of the chip."""
    pod: int
    """Chips in the largest slice."""
    dimensions: int
    """Of the torus that the chips of a pod form; a chip has two links in each."""
    shapes: tuple[str, ...]
    """Published slices."""
    cores: int
    """Of a device, which share the steps of a kernel."""
    clock: float
    """Cycles per second. v4: Jouppi et al. 2023, table 4; of the others it is their peak over the products and sums
    that their matrix units begin in a cycle: 2 x 128^2 each of four on v5e, of eight on v5p, 2 x 256^2 each of four on
    v6e and a device of tpu7x."""

    @property
    def source(self) -> str:
        """The page with the figures; the six links of v4: Jouppi et al. 2023 (arXiv:2304.01433), table 4."""
        return f"https://docs.cloud.google.com/tpu/docs/{self.name}"

    @property
    def link_bandwidth(self) -> float:
        """Bytes over one link in one direction."""
        return self.ici_bandwidth / 2 / (2 * self.dimensions)


_FLAT = 2, ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16", "16x16x16")
_SOLID = 3, ("2x2x1", "2x2x2", "2x2x4", "2x4x4", *_CUBES)

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("v4", 32 * GIB, 275e12, 1200e9, 600e9, None, 1, 4096, *_SOLID, 2, 1.05e9),
        Chip("v5e", 16 * GIB, 197e12, 819e9, 400e9, 3.125e9, 1, 256, *_FLAT, 1, 1.5e9),
        Chip("v5p", 95 * GIB, 459e12, 2765e9, 1200e9, 6.25e9, 1, 6144, 3, (*_SOLID[1], "16x16x24"), 2, 1.75e9),
        Chip("v6e", 32 * GIB, 918e12, 1638e9, 800e9, 12.5e9, 1, 256, *_FLAT, 1, 1.75e9),
        Chip("tpu7x", 192 * GIB, 2307e12, 7380e9, 1200e9, 12.5e9, 2, 9216, *_SOLID, 1, 2.2e9),
    )
}
"""Every generation that JAX's compiler knows by these names."""


_KINDS = {"TPU v5 lite": "v5e", "TPU v5": "v5p", "TPU v6 lite": "v6e", "TPU7x": "tpu7x"}
_GPU_PEAKS = {"A100": 312e12, "H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12}
"""Of dense matrix products in bfloat16, by what the name of the device holds (NVIDIA's data sheets)."""


def peak_flops(device_kind: str) -> float | None:
    """The peak rate of matrix products in bfloat16 of a device, by the name that JAX has for it; None: not known.

    >>> peak_flops("TPU v5 lite"), peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("cpu")
    (197000000000000.0, 989000000000000.0, None)
    """
    chip = CHIPS.get(_KINDS.get(device_kind, device_kind.removeprefix("TPU ")))
    if chip is not None:
        return chip.peak_flops / chip.devices
    return next((peak for name, peak in _GPU_PEAKS.items() if name in device_kind), None)
