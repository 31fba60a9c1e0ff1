"""The time that a step is expected to take: what the TPU compiler says of its own schedule."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from t5x_lite.planning.collectives import KINDS, Network, collective_id, read_collective
from t5x_lite.planning.hlo import Computation, HloProgram, Instruction
from t5x_lite.planning.topology import Topology


@dataclass(frozen=True)
class ExpectedTime:
    """Seconds of a chip in one step, one after the other."""

    operations: float = 0.0
    """Of the operations that the compiler makes, by its own estimate of their cycles."""
    kernels: float = 0.0
    """Of Pallas kernels, by the compiler's count of their bundles."""
    exposed: float = 0.0
    """Of collectives that no operation runs beside, at the full rate of the links, or of the network between slices."""

    data_round: float = 0.0
    """Of one round of each loop whose length depends on the data, as often as it is begun; the sum counts one round."""

    @property
    def seconds(self) -> float:
        return self.operations + self.kernels + self.exposed

    def __add__(self, other: "ExpectedTime") -> "ExpectedTime":
        return ExpectedTime(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __mul__(self, times: int) -> "ExpectedTime":
        return ExpectedTime(*(times * getattr(self, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Transfer:
    """What an instruction does to a collective: it begins, or its result is awaited, or both."""

    network: Network = "ici"
    seconds: float = 0.0
    """That the whole collective takes."""
    begins: tuple | None = None
    """The identity of one that runs beside other operations from here on."""
    ends: tuple | None = None
    """The identity of one whose result is awaited."""


@dataclass(frozen=True)
class Schedule:
    """A compiled program on a slice, or on each of several.

    Operations run one after the other in the order of the text. Transfers between a chip's memories run beside them,
    and so do asynchronous collectives, from where they begin to where their result is awaited: one after the other over
    the links of a slice, and one after the other over the network between slices, each of which runs while the other is
    awaited as well.

    Args:
      coordinates: the chip of each device of a slice, in the order of the program's mesh.
      kernel_cycles: of each kernel, by the name of its instruction (see `kernel_cycles`).
    """

    program: HloProgram
    topology: Topology
    coordinates: Sequence[tuple[int, ...]]
    kernel_cycles: Mapping[str, int]

    @property
    def expected(self) -> ExpectedTime:
        return self._run(self.program.entry)

    def _run(self, name: str) -> ExpectedTime:
        computation, total = self.program.computations[name], ExpectedTime()
        underway: dict[Network, dict[tuple, float]] = {"ici": {}, "dcn": {}}  # the seconds that are left of each

        def pass_by(seconds: float, network: Network) -> None:
            for transfer, left in underway[network].items():
                underway[network][transfer] = max(left - seconds, 0.0)
                seconds = max(seconds - left, 0.0)

        for instruction in computation.instructions:
            took = self._one(instruction)
            total += took
            transfer = self._transfer(instruction, computation)
            of_network = underway[transfer.network]
            if transfer.begins is not None:
                of_network[transfer.begins] = transfer.seconds
                continue
            for network in underway:
                pass_by(took.seconds, network)
            waits = transfer.seconds
            if transfer.ends in of_network:
                # Those that began before it are on the network first.
                before = [*of_network][: [*of_network].index(transfer.ends) + 1]
                waits = sum(of_network[other] for other in before)
                of_network |= dict.fromkeys(before, 0.0)
                del of_network[transfer.ends]
            total += ExpectedTime(exposed=waits)
            pass_by(waits, "dcn" if transfer.network == "ici" else "ici")
        return total + ExpectedTime(exposed=max(sum(left.values()) for left in underway.values()))

    def _one(self, instruction: Instruction) -> ExpectedTime:
        opcode, clock = instruction.opcode, self.topology.chip.clock
        if opcode == "while":
            rounds, one = self.program.trip_count(instruction), self._run(instruction.attribute("body"))
            return replace(one, data_round=one.seconds + one.data_round) if rounds is None else one * rounds
        if opcode == "conditional":
            return max((self._run(branch) for branch in instruction.called), key=lambda took: took.seconds)
        if opcode in ("call", "async-start"):
            return sum(map(self._run, instruction.called), ExpectedTime())
        if instruction.name in self.kernel_cycles:
            return ExpectedTime(kernels=self.kernel_cycles[instruction.name] / clock)
        return ExpectedTime(operations=instruction.cycles / clock)

    def _transfer(self, instruction: Instruction, computation: Computation) -> Transfer:
        opcode = instruction.opcode
        if opcode == "recv-done":  # of the transfer between slices that the `send` of the same name began
            (received,) = computation.operands(instruction)
            return Transfer("dcn", ends=_rendezvous(received))
        if opcode.endswith("-done"):
            return Transfer(ends=instruction.operands[:1])
        inside, fused = computation, instruction
        if opcode == "fusion":
            inside = self.program.computations[instruction.called[0]]
            fused = next((each for each in inside.instructions if each.opcode in KINDS), instruction)
        one = read_collective(fused, inside, self.topology, self.coordinates)
        if one is None:
            return Transfer()
        if one.network == "dcn":
            return Transfer("dcn", one.seconds, begins=_rendezvous(instruction))
        if opcode != "fusion":
            return Transfer(seconds=one.seconds, begins=(instruction.name,) if opcode.endswith("-start") else None)
        calls = " ".join(each.attributes for each in inside.instructions if each.opcode == "custom-call")
        identity = collective_id(fused)
        if "AsyncCollectiveStart" in calls:
            return Transfer(seconds=one.seconds, begins=identity)
        if "AsyncCollectiveDone" in calls:
            return Transfer(ends=identity)
        if inside.name.startswith("async_collective"):
            return Transfer()  # an operation that runs beside it
        return Transfer(seconds=one.seconds)


def _rendezvous(instruction: Instruction) -> tuple | None:
    """What a `send` and a `recv` between slices have in common."""
    name = re.search(r'_xla_host_transfer_rendezvous="([^"]*)"', instruction.attributes)
    return name and name.groups()
