"""What the chips of a compiled program send each other: kinds, counts, bytes, and the least time it takes.

Within a slice they do so over its links (ICI). For several slices the compiler writes the program of one of them. It
adds up gradients within the slice first, most of them so that each chip has a shard of the sum. What goes to the other
slices is a `send` to the host, which names the operation and the slices; the hosts do it over the data centre's network
(DCN), and a `recv` brings its result.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from t5x_lite.planning.hlo import Computation, HloProgram, Instruction, read_arrays
from t5x_lite.planning.topology import Topology

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")

Network = Literal["ici", "dcn"]


@dataclass(frozen=True)
class Collective:
    """All collectives of one kind and network among groups of one size, in one run of the program.

    As the compiler has them, which may differ from the program: where all chips of a larger slice take part, the TPU
    compiler writes a reduce-scatter as an all-reduce and a slice, and on a torus a gather as an all-reduce of shards
    padded with zeros (`parallel.partitioning` gathers parameters in two stages for that reason).
    """

    kind: str
    group_size: int
    """Devices of a slice (ICI), or slices (DCN)."""
    count: int
    num_bytes: int
    """What each device receives at least: (n - 1) / n of the whole array in a group of n, twice that for an all-reduce,
    which is a reduce-scatter and an all-gather; all of it for a permute."""
    seconds: float
    """At least: over all links that a group has (see `Topology.group_bandwidth`) or a chip's share of the data centre's
    network, nothing else on them."""
    largest: str
    """The type of the largest array that a device puts into one."""
    network: Network = "ici"


def read_collectives(
    program: HloProgram, topology: Topology, coordinates: Sequence[tuple[int, ...]]
) -> tuple[Collective, ...]:
    """The collectives of a program, those with the most bytes first.

    Args:
      coordinates: the chip of each device of a slice, in the order of the program's mesh.
    """
    totals: dict[tuple[str, int, Network], tuple] = {}
    seen: set[tuple] = set()
    for run in program.runs():
        one = read_collective(run.instruction, run.computation, topology, coordinates)
        if one is None:
            continue
        # An asynchronous collective is written several times: in a fusion that begins it, in those that run meanwhile,
        # and in one that ends it.
        in_pieces = run.fused and not run.computation.name.startswith("all-reduce-scatter")
        name = collective_id(run.instruction) if in_pieces else (run.computation.name, run.instruction.name)
        if (identity := (run.within, *name)) in seen:
            continue
        seen.add(identity)
        key = (one.kind, one.group_size, one.network)
        count, total_bytes, seconds, largest = totals.get(key, (0, 0, 0.0, one.largest))
        totals[key] = (
            count + run.times,
            total_bytes + one.num_bytes * run.times,
            seconds + one.seconds * run.times,
            max(largest, one.largest, key=lambda array: read_arrays(array)[0].num_bytes),
        )
    collectives = (
        Collective(kind, group_size, *figures, network) for (kind, group_size, network), figures in totals.items()
    )
    return tuple(sorted(collectives, key=lambda collective: -collective.num_bytes))


def collective_id(instruction: Instruction) -> tuple:
    """What the texts of one asynchronous collective have in common, and no other has in its computation.

    That is the channel, which others may have too, with the type and the name of the operation.
    """
    channel = instruction.attribute("channel_id")
    op_name = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return (channel, instruction.arrays, op_name and op_name[1]) if channel else (instruction.name,)


def read_collective(
    instruction: Instruction, computation: Computation, topology: Topology, coordinates: Sequence[tuple[int, ...]]
) -> Collective | None:
    """One instruction of a computation, run once; None where it is not a collective."""
    if instruction.opcode == "send":
        return _between_slices(instruction, computation, topology)
    kind = instruction.opcode.removesuffix("-start").removeprefix("ragged-")
    if kind not in KINDS:
        return None
    # The TPU compiler writes a sum of which each device keeps a shard as a fusion of an all-reduce and a slice.
    if kind == "all-reduce" and computation.name.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    group = _group(instruction.attributes, len(coordinates))
    inputs = [array for operand in computation.operands(instruction) for array in operand.arrays]
    size = len(group)
    received = _received(kind, size, sum(array.num_bytes for array in inputs))
    # Two devices of one chip share its links.
    chips = [coordinates[device] for device in group]
    sharing = len(chips) / len(set(chips)) if kind != "collective-permute" else 1
    seconds = received * sharing / topology.group_bandwidth(chips)
    return Collective(kind, size, 1, received, seconds, str(max(inputs, key=lambda array: array.num_bytes)))


def _between_slices(instruction: Instruction, computation: Computation, topology: Topology) -> Collective | None:
    """What a `send` to the host begins; None where it is not for other slices."""
    written = re.search(r'_xla_megascale_transfer_type="(\w+)"', instruction.attributes)
    if written is None:
        return None
    kind = written[1].lower().replace("_", "-").replace("one-to-one", "collective-permute")
    if kind not in KINDS:
        raise ValueError(f"a transfer between slices is of a kind that is not known: {written[1]}")
    size = _num_slices(instruction.attributes)
    inputs = [array for operand in computation.operands(instruction) for array in operand.arrays]
    received = _received(kind, size, sum(array.num_bytes for array in inputs))
    assert topology.chip.dcn_bandwidth is not None, "Topology.parse refuses such slices"
    # The devices of a chip send at the same time.
    seconds = received * topology.chip.devices / topology.chip.dcn_bandwidth
    return Collective(kind, size, 1, received, seconds, str(max(inputs, key=lambda array: array.num_bytes)), "dcn")


def _num_slices(attributes: str) -> int:
    """How many slices take part in a transfer, which are numbered from 1: of `"{1,2}x{0:3}"`, slices and the devices of
    each, two; or of devices, 100,000 times the slice and the number in it, in groups or as sources and targets."""
    if product := re.search(r'_xla_megascale_target="\{([\d,]+)\}x', attributes):
        return len(_numbers(product[1]))
    if devices := re.search(r"_xla_megascale_target=\{((?:\{[\d,>-]+\},?)+)\}", attributes):
        return len({int(device) // 100_000 for device in re.findall(r"\d+", devices[1])})
    raise ValueError(f"the slices of a transfer are written in a way that is not known: {attributes[:300]!r}")


def _received(kind: str, size: int, sent: int) -> int:
    """Bytes that each of a group of `size` receives at least where each puts in `sent`."""
    return {
        "all-gather": sent * (size - 1),
        "all-reduce": 2 * sent * (size - 1) // size,
        "collective-permute": sent if size > 1 else 0,
    }.get(kind, sent * (size - 1) // size)


def _group(attributes: str, num_devices: int) -> list[int]:
    """One of the groups of a collective; they are all alike. Of a permute, a cycle of its pairs."""
    if "source_target_pairs" not in attributes:
        return device_groups(attributes, num_devices)[0].tolist()
    pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
    target = {int(a): int(b) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[1])}
    start = next(iter(target))
    cycle, device = [start], target[start]
    while device not in cycle:
        cycle.append(device)
        device = target.get(device, start)
    return cycle


def device_groups(attribute: str, num_devices: int) -> Int[np.ndarray, "G N"]:
    """The groups of devices that take part together, in any of XLA's notations.

    >>> device_groups("replica_groups={{0,2},{1,3}}", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups=[2,2]<=[2,2]T(1,0)", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups=mesh['a'=2,'b'=2] {'a'}", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups={}", 4).tolist()
    [[0, 1, 2, 3]]

    Raises ValueError for any other notation.
    """
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? ?\{([^}]*)\}", attribute):
        return _groups_of_mesh(*mesh.groups())
    if iota := re.search(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", attribute):
        return _iota(iota[2]).reshape(_numbers(iota[1]))
    if listed := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", attribute):
        groups = [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
        return np.array(groups or [range(num_devices)])
    raise ValueError(f"the groups of a collective are written in a way that is not known: {attribute[:300]!r}")


def _groups_of_mesh(axes: str, devices: str | None, along: str) -> Int[np.ndarray, "G N"]:
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    ids = np.arange(np.prod(list(sizes.values()))) if devices is None else _iota(f"<={devices}")
    # An axis may be split: 'a':(2)4 is the factor of 4 in a, after one of 2.
    splits = {name: (int(before), int(size)) for name, before, size in re.findall(r"'([^']+)':\((\d+)\)(\d+)", along)}
    whole = set(re.findall(r"'([^']+)'(?!:)", along))
    shape, group = [], []
    for name, length in sizes.items():
        before, size = splits.get(name, (1, length))
        if name in splits or name in whole:
            group.append(len(shape) + 1)
        shape += [before, size, length // before // size]
    others = [axis for axis in range(len(shape)) if axis not in group]
    members = int(np.prod([shape[axis] for axis in group]))
    return ids.reshape(shape).transpose([*others, *group]).reshape(-1, members)


def _iota(text: str) -> Int[np.ndarray, "N"]:
    """The numbers from 0 on, reshaped and transposed: `<=[2,4]T(1,0)`."""
    shape, order = re.match(r"<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text).groups()
    ids = np.arange(np.prod(_numbers(shape))).reshape(_numbers(shape))
    return (ids.transpose(_numbers(order)) if order else ids).reshape(-1)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
