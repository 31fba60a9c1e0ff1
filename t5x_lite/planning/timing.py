"""The time that a step is expected to take: what the TPU compiler says of its own schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from t5x_lite.errors import InputError
from t5x_lite.planning.collectives import KINDS, collective_id, read_collective
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
    """Of collectives that no operation runs beside, at the full rate of the links."""

    @property
    def seconds(self) -> float:
        return self.operations + self.kernels + self.exposed

    def __add__(self, other: "ExpectedTime") -> "ExpectedTime":
        return ExpectedTime(
            self.operations + other.operations, self.kernels + other.kernels, self.exposed + other.exposed
        )

    def __mul__(self, times: int) -> "ExpectedTime":
        return ExpectedTime(times * self.operations, times * self.kernels, times * self.exposed)


@dataclass(frozen=True)
class Schedule:
    """A compiled program on a slice.

    Operations run one after the other in the order of the text. Transfers between a chip's memories run beside them,
    and so do asynchronous collectives, one after the other, from where they begin to where their result is awaited.

    Args:
      coordinates: the chip of each device, in the order of the program's mesh.
      kernel_cycles: of each kernel, by the name of its instruction (see `kernel_cycles`).
    """

    program: HloProgram
    topology: Topology
    coordinates: Sequence[tuple[int, ...]]
    kernel_cycles: Mapping[str, int]

    @property
    def expected(self) -> ExpectedTime:
        """Raises `InputError` for a loop whose length is not known before it runs."""
        return self._run(self.program.entry)

    def _run(self, name: str) -> ExpectedTime:
        total, underway = ExpectedTime(), {}
        for instruction in self.program.computations[name].instructions:
            took = self._one(instruction)
            total += took
            beside = took.seconds
            begins, ends, seconds = self._transfer(instruction, self.program.computations[name])
            if begins is not None:
                underway[begins] = seconds
                continue
            for transfer, left in underway.items():
                underway[transfer] = max(left - beside, 0.0)
                beside = max(beside - left, 0.0)
            if ends is None:
                total += ExpectedTime(exposed=seconds)
            elif ends in underway:
                # Those that began before it are on the links first.
                before = [*underway][: [*underway].index(ends) + 1]
                total += ExpectedTime(exposed=sum(underway[transfer] for transfer in before))
                underway |= dict.fromkeys(before, 0.0)
                del underway[ends]
        return total + ExpectedTime(exposed=sum(underway.values()))

    def _one(self, instruction: Instruction) -> ExpectedTime:
        opcode, clock = instruction.opcode, self.topology.chip.clock
        if opcode == "while":
            rounds = self.program.trip_count(instruction)
            if rounds is None:
                raise InputError(
                    f"the step has a loop whose length depends on its data ({instruction.name}), so that its time "
                    "is not known; give it a fixed length"
                )
            return self._run(instruction.attribute("body")) * rounds
        if opcode == "conditional":
            return max((self._run(branch) for branch in instruction.called), key=lambda took: took.seconds)
        if opcode in ("call", "async-start"):
            return sum(map(self._run, instruction.called), ExpectedTime())
        if instruction.name in self.kernel_cycles:
            return ExpectedTime(kernels=self.kernel_cycles[instruction.name] / clock)
        return ExpectedTime(operations=instruction.cycles / clock)

    def _transfer(self, instruction: Instruction, computation: Computation) -> tuple[tuple | None, tuple | None, float]:
        """(the collective that begins here, the one that is awaited here, the seconds that it takes)."""
        opcode = instruction.opcode
        if opcode.endswith("-done"):
            return None, instruction.operands[:1], 0.0
        inside, fused = computation, instruction
        if opcode == "fusion":
            inside = self.program.computations[instruction.called[0]]
            fused = next((each for each in inside.instructions if each.opcode in KINDS), instruction)
        one = read_collective(fused, inside, self.topology, self.coordinates)
        if one is None:
            return None, None, 0.0
        if opcode != "fusion":
            begins = (instruction.name,) if opcode.endswith("-start") else None
            return begins, None, one.seconds
        calls = " ".join(each.attributes for each in inside.instructions if each.opcode == "custom-call")
        identity = collective_id(fused)
        if "AsyncCollectiveStart" in calls:
            return identity, None, one.seconds
        if "AsyncCollectiveDone" in calls:
            return None, identity, 0.0
        if inside.name.startswith("async_collective"):
            return None, None, 0.0  # an operation that runs beside it
        return None, None, one.seconds
