"""What the chips of a compiled program send each other: kinds, counts, bytes, and the least time it takes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from t5x_lite.planning.chips import Topology
from t5x_lite.planning.hlo import HloProgram, Run

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


@dataclass(frozen=True)
class Collective:
    """All collectives of one kind among groups of one size, in one run of the program.

    As the compiler has them, not as the program asks for them: where all chips of a larger slice take part, the TPU
    compiler writes a reduce-scatter as an all-reduce and a slice, and on a torus a gather as an all-reduce of parts and
    zeros (which is why parameters are not asked for so, see `parallel.partitioning`).
    """

    kind: str
    group_size: int
    """Devices that take part in one of them."""
    count: int
    num_bytes: int
    """What each device receives at least: (n - 1) / n of the whole array in a group of n, twice that for an all-reduce,
    which is a reduce-scatter and an all-gather; all of it for a permute."""
    seconds: float
    """At least: over all links that a group has (see `Topology.group_bandwidth`), nothing else on them."""
    largest: str
    """The type of the largest array that a device puts into one."""


def read_collectives(
    program: HloProgram, topology: Topology, coordinates: Sequence[tuple[int, ...]]
) -> tuple[Collective, ...]:
    """The collectives of a program, those with the most bytes first.

    Args:
      coordinates: the chip of each device, in the order of the program's mesh.
    """
    found: dict[tuple[str, int], list[tuple[int, int, float, int, str]]] = {}
    seen: set[tuple] = set()
    for run in program.runs():
        kind = _kind(run)
        if kind is None or (piece := _pieces(run)) in seen:
            continue
        seen.add(piece)
        group = _group(run.instruction.attributes, len(coordinates))
        inputs = [array for operand in run.computation.operands(run.instruction) for array in operand.arrays]
        num_bytes = _received(kind, sum(array.num_bytes for array in inputs), len(group)) * run.times
        # Two devices of one chip share its links.
        chips = [coordinates[device] for device in group]
        sharing = len(chips) / len(set(chips)) if kind != "collective-permute" else 1
        seconds = num_bytes * sharing / topology.group_bandwidth(chips)
        largest = max(inputs, key=lambda array: array.num_bytes)
        shape = f"{largest.element_type}[{','.join(map(str, largest.shape))}]"
        found.setdefault((kind, len(group)), []).append((run.times, num_bytes, seconds, largest.num_bytes, shape))
    collectives = (
        Collective(
            kind,
            size,
            count=sum(times for times, *_ in each),
            num_bytes=sum(num_bytes for _, num_bytes, *_ in each),
            seconds=sum(seconds for _, _, seconds, *_ in each),
            largest=max(each, key=lambda one: one[3])[4],
        )
        for (kind, size), each in found.items()
    )
    return tuple(sorted(collectives, key=lambda collective: -collective.num_bytes))


def device_groups(attribute: str, num_devices: int) -> Int[np.ndarray, "G N"]:
    """Which devices take part together, in any of the notations that XLA has for it.

    >>> device_groups("replica_groups={{0,2},{1,3}}", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups=[2,2]<=[2,2]T(1,0)", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups=mesh['a'=2,'b'=2] {'a'}", 4).tolist()
    [[0, 2], [1, 3]]
    >>> device_groups("replica_groups={}", 4).tolist()
    [[0, 1, 2, 3]]

    Raises ValueError for a notation that is none of these.
    """
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? ?\{([^}]*)\}", attribute):
        return _groups_of_mesh(*mesh.groups())
    if iota := re.search(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", attribute):
        return _iota(iota[2]).reshape(_numbers(iota[1]))
    if given := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", attribute):
        groups = [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", given[1])]
        return np.array(groups or [range(num_devices)])
    raise ValueError(f"the groups of a collective are written in a way that is not known: {attribute[:300]!r}")


def _kind(run: Run) -> str | None:
    """What kind of collective an instruction is, if it is one.

    A sum of which each device keeps a part is the TPU compiler's reduce-scatter, written as a fusion of an all-reduce
    and a slice.
    """
    kind = run.instruction.opcode.removesuffix("-start").removeprefix("ragged-")
    if kind == "all-reduce" and run.computation.name.startswith("all-reduce-scatter"):
        return "reduce-scatter"
    return kind if kind in KINDS else None


def _pieces(run: Run) -> tuple:
    """The same for all pieces of one collective.

    What goes on beside other work is written several times: in a fusion that begins it, in those it goes on beside, and
    in one that ends it, all with one number of a channel. Others may have that number too.
    """
    instruction = run.instruction
    if (channel := instruction.attribute("channel_id")) is None:
        return run.within, instruction.name
    made_by = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return run.within, channel, instruction.arrays, made_by and made_by[1]


def _group(attributes: str, num_devices: int) -> list[int]:
    """One of the groups of a collective; they are all alike. Of a permute, the devices that its pairs lead through."""
    if "source_target_pairs" not in attributes:
        return device_groups(attributes, num_devices)[0].tolist()
    written = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
    target = {int(a): int(b) for a, b in re.findall(r"\{(\d+),(\d+)\}", written[1])}
    start = next(iter(target))
    chain, device = [start], target[start]
    while device not in chain:
        chain.append(device)
        device = target.get(device, start)
    return chain


def _received(kind: str, put_in: int, size: int) -> int:
    match kind:
        case "all-gather":
            return put_in * (size - 1)
        case "all-reduce":
            return 2 * put_in * (size - 1) // size
        case "collective-permute":
            return put_in if size > 1 else 0
    return put_in * (size - 1) // size


def _groups_of_mesh(axes: str, devices: str | None, along: str) -> Int[np.ndarray, "G N"]:
    names, sizes = zip(*re.findall(r"'([^']+)'=(\d+)", axes), strict=True)
    shape = tuple(map(int, sizes))
    ids = np.arange(np.prod(shape)) if devices is None else _iota(f"<={devices}")
    # An axis may be cut in parts: 'a':(2)4 is the part of 4 within a, 2 being what stands before it.
    parts, group = [], []
    cuts = {name: (int(before), int(size)) for name, before, size in re.findall(r"'([^']+)':\((\d+)\)(\d+)", along)}
    whole = set(re.findall(r"'([^']+)'(?!:)", along))
    for name, length in zip(names, shape, strict=True):
        before, size = cuts.get(name, (1, length))
        inside = name in cuts or name in whole
        for part, taken in ((before, False), (size, inside), (length // before // size, False)):
            group += [len(parts)] if taken else []
            parts.append(part)
    others = [axis for axis in range(len(parts)) if axis not in group]
    members = int(np.prod([parts[axis] for axis in group]))
    return ids.reshape(parts).transpose([*others, *group]).reshape(-1, members)


def _iota(text: str) -> Int[np.ndarray, "N"]:
    """The numbers from 0 on, reshaped and transposed: `<=[2,4]T(1,0)`."""
    shape, order = re.match(r"<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text).groups()
    ids = np.arange(np.prod(_numbers(shape))).reshape(_numbers(shape))
    return (ids.transpose(_numbers(order)) if order else ids).reshape(-1)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
