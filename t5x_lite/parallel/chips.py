"""What the TPU chips can do, as Google publishes it."""

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
    """Bytes over all links to the neighbouring chips together, both directions added up."""
    dimensions: int
    """Of the torus that the chips of a pod form; a chip has two links in each."""
    ring_of: int
    """Chips in a row from which on a dimension closes to a ring (see `Topology.is_ring`)."""
    devices: int
    """What JAX sees of a chip: one device, or its two halves."""
    pod: int
    """Chips in the largest slice."""
    shapes: tuple[str, ...]
    """Slices that can be had."""
    source: str
    """Where the figures stand."""

    @property
    def link_bandwidth(self) -> float:
        """Bytes over one link in one direction."""
        return self.ici_bandwidth / 2 / (2 * self.dimensions)


_TWO_DIMENSIONS = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16", "16x16x16")
_THREE_DIMENSIONS = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", *_CUBES)

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            name="v4",
            hbm_bytes=32 * GIB,
            peak_flops=275e12,
            hbm_bandwidth=1200e9,
            ici_bandwidth=600e9,
            dimensions=3,
            ring_of=4,
            devices=1,
            pod=4096,
            shapes=_THREE_DIMENSIONS,
            source="https://docs.cloud.google.com/tpu/docs/v4; six links of 50 GB/s each way: Jouppi et al. 2023 "
            "(arXiv:2304.01433), table 4",
        ),
        Chip(
            name="v5e",
            hbm_bytes=16 * GIB,
            peak_flops=197e12,
            hbm_bandwidth=819e9,
            ici_bandwidth=400e9,
            dimensions=2,
            ring_of=16,
            devices=1,
            pod=256,
            shapes=_TWO_DIMENSIONS,
            source="https://docs.cloud.google.com/tpu/docs/v5e",
        ),
        Chip(
            name="v5p",
            hbm_bytes=95 * GIB,
            peak_flops=459e12,
            hbm_bandwidth=2765e9,
            ici_bandwidth=1200e9,
            dimensions=3,
            ring_of=4,
            devices=1,
            pod=6144,
            shapes=(*_THREE_DIMENSIONS, "16x16x24"),
            source="https://docs.cloud.google.com/tpu/docs/v5p",
        ),
        Chip(
            name="v6e",
            hbm_bytes=32 * GIB,
            peak_flops=918e12,
            hbm_bandwidth=1638e9,
            ici_bandwidth=800e9,
            dimensions=2,
            ring_of=16,
            devices=1,
            pod=256,
            shapes=_TWO_DIMENSIONS,
            source="https://docs.cloud.google.com/tpu/docs/v6e",
        ),
        Chip(
            name="tpu7x",
            hbm_bytes=192 * GIB,
            peak_flops=2307e12,
            hbm_bandwidth=7380e9,
            ici_bandwidth=1200e9,
            dimensions=3,
            ring_of=4,
            devices=2,
            pod=9216,
            shapes=_THREE_DIMENSIONS,
            source="https://docs.cloud.google.com/tpu/docs/tpu7x",
        ),
    )
}
"""Every generation that JAX's compiler knows by these names."""
