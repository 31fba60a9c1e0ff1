"""Reading a compiled program: XLA's text of it as computations of instructions, and how often each of them runs."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_ELEMENT_BITS = {"pred": 8, "token": 0, "opaque": 0}
_ARRAY = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^}]*)\})?")
_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)")
_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*(?:/\*.*)?$")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")


@dataclass(frozen=True)
class HloArray:
    """The type of a value."""

    element_type: str
    shape: tuple[int, ...]
    memory_space: int
    """0 is the device's main memory, others are on the chip or on the host."""

    @property
    def num_elements(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def num_bytes(self) -> int:
        return -(-self.num_elements * element_bits(self.element_type) // 8)


@dataclass(frozen=True)
class Instruction:
    """One line of a computation. `arrays` are what it gives: more than one if that is a tuple."""

    name: str
    arrays: tuple[HloArray, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that it runs or applies."""
        branches = _BRANCHES.search(self.attributes)
        more = re.findall(r"[\w.\-]+", branches[1]) if branches else []
        return (*_CALLED.findall(self.attributes), *more)

    def attribute(self, name: str) -> str | None:
        """The word behind `name=`."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else None


@dataclass(frozen=True)
class Computation:
    """A function of the program, its instructions in the order in which they run."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """What it is called with, in order."""
        parameters = [instruction for instruction in self.instructions if instruction.opcode == "parameter"]
        return tuple(sorted(parameters, key=lambda parameter: int(parameter.operands[0])))

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions whose values it reads."""
        return tuple(self.by_name[name] for name in instruction.operands if name in self.by_name)


@dataclass(frozen=True)
class Run:
    """An instruction, and how it is run."""

    instruction: Instruction
    computation: Computation
    times: int
    """In one run of the program; a loop whose length is not known counts as one round."""
    within: str
    """The computation that it runs in, or that the fusion runs in which it is part of."""

    @property
    def fused(self) -> bool:
        """Part of a fusion, so that only what goes into the fusion and comes out of it is in memory."""
        return self.within != self.computation.name


@dataclass(frozen=True)
class HloProgram:
    """What a compiled program does, for one device."""

    computations: dict[str, Computation]
    entry: str

    def runs(self) -> Iterator[Run]:
        """Every instruction, from the entry down into loops, calls and fusions; not into reducing functions.

        Of a condition all branches are given, though only one of them runs.
        """
        yield from self._runs(self.entry, 1, self.entry)

    def _runs(self, name: str, times: int, within: str) -> Iterator[Run]:
        computation = self.computations[name]
        for instruction in computation.instructions:
            yield Run(instruction, computation, times, within)
            if instruction.opcode in _APPLY:
                continue
            rounds = times * (self.trip_count(instruction) or 1) if instruction.opcode == "while" else times
            fuses = instruction.opcode == "fusion" or within != name
            for called in instruction.called:
                yield from self._runs(called, rounds, within if fuses else called)

    def trip_count(self, loop: Instruction) -> int | None:
        """How often a loop runs: as the compiler says, or as its condition does if that is `counter < constant`.

        JAX's loops over arrays count from 0. None where the number depends on data.
        """
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        condition = self.computations[loop.attribute("condition")]
        compare = next(instruction for instruction in condition.instructions if instruction.is_root)
        operands = condition.operands(compare)
        if compare.opcode == "fusion":
            compare = next(inner for inner in self.computations[compare.called[0]].instructions if inner.is_root)
        if compare.opcode != "compare" or compare.attribute("direction") != "LT":
            return None
        constants = [operand for operand in operands if operand.opcode == "constant"]
        return int(constants[0].operands[0]) if len(constants) == 1 and len(operands) == 2 else None


_APPLY = ("all-reduce", "all-reduce-start", "reduce-scatter", "reduce", "reduce-window", "scatter", "sort", "map")
_APPLY += ("select-and-scatter",)


def read_hlo(text: str) -> HloProgram:
    """The program that XLA prints as `text`, which is what `compiled.as_text()` gives."""
    computations, entry, name, instructions = {}, "", "", []
    for line in text.splitlines():
        if line.startswith("}"):  # behind it may stand which of the chip's processors runs it
            computations[name] = Computation(name, tuple(instructions))
            name = ""
        elif not name and (header := _HEADER.match(line)):
            name, instructions = header["name"], []
            entry = name if header["entry"] else entry
        elif name and (instruction := _INSTRUCTION.match(line)):
            instructions.append(_read_instruction(instruction))
    return HloProgram(computations, entry)


def element_bits(element_type: str) -> int:
    """Bits of one element.

    >>> [element_bits(name) for name in ("f32", "bf16", "pred", "s4", "f8e4m3fn", "token")]
    [32, 16, 8, 4, 8, 0]
    """
    if element_type in _ELEMENT_BITS:
        return _ELEMENT_BITS[element_type]
    return int(re.match(r"[a-z]+(\d+)", element_type)[1])


def read_arrays(text: str) -> tuple[HloArray, ...]:
    """The arrays of a type, of which a tuple has several.

    >>> [tuple(vars(array).values()) for array in read_arrays("(bf16[2,64]{1,0:T(8,128)(2,1)S(1)}, s32[])")]
    [('bf16', (2, 64), 1), ('s32', (), 0)]
    """
    found = []
    for array in _ARRAY.finditer(text):
        space = re.search(r"S\((\d+)\)", array["layout"] or "")
        shape = tuple(int(size.lstrip("<=")) for size in array["dims"].split(",") if size)
        found.append(HloArray(array["type"], shape, int(space[1]) if space else 0))
    return tuple(found)


def _read_instruction(line: re.Match[str]) -> Instruction:
    rest = re.sub(r"/\*.*?\*/", "", line["rest"])
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].lstrip()
    opcode = rest[: rest.index("(")]
    close = _closing(rest, len(opcode))
    inside, attributes = rest[len(opcode) + 1 : close], rest[close + 1 :]
    operands = (inside,) if opcode in ("parameter", "constant") else tuple(re.findall(r"%([\w.\-]+)", inside))
    return Instruction(line["name"], read_arrays(kind), opcode, operands, attributes, bool(line["root"]))


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens at `opening` closes."""
    depth = 0
    for number in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[number], 0)
        if depth == 0:
            return number
    raise ValueError(f"a parenthesis is not closed in {text[:200]!r}")


# These give a name to what is in memory already, or stand for what others do.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_FREE += ("after-all", "partition-id", "replica-id", "optimization-barrier", "iota", "async-start", "async-done")
_FREE += ("opt-barrier", "add-dependency", "domain", "get-dimension-size")


def matrix_flops(program: HloProgram) -> int:
    """Operations of all dots and convolutions, those of a loop as often as it runs: 2 for each product and its sum.

    Those of a Pallas kernel are what it says of itself. XLA's own count, `cost_analysis`, takes the body of a loop
    once.
    """
    return sum(run.times * _flops(run.instruction, run.computation) for run in program.runs())


def memory_traffic(program: HloProgram) -> int:
    """Bytes that are read from and written to the main memory, those of a loop as often as it runs.

    What goes into an instruction or a fusion and what comes out of it, so far as it lies in the main memory; of an
    array that is read or written in one slice, the slice. The compiler may keep more on the chip than its text says, so
    that this is not a lower bound in the strict sense.
    """
    return sum(
        run.times * _traffic(run.instruction, run.computation, program) for run in program.runs() if not run.fused
    )


def _flops(instruction: Instruction, computation: Computation) -> int:
    if instruction.opcode == "custom-call":
        return _estimate(instruction, "flops")
    if instruction.opcode not in ("dot", "convolution"):
        return 0
    left, right = (operand.arrays[0].shape for operand in computation.operands(instruction))
    (output,) = (array.shape for array in instruction.arrays)
    if instruction.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
        axes = contracted[1].split(",") if contracted and contracted[1] else []
        return 2 * math.prod(output) * math.prod(left[int(axis)] for axis in axes)
    return _convolution_flops(instruction.attributes, left, right, output)


def _estimate(instruction: Instruction, figure: str) -> int:
    """What a kernel says of itself; 0 where it says nothing."""
    found = re.search(rf'"cost_estimate":\{{[^}}]*"{figure}":"(\d+)"', instruction.attributes)
    return int(found[1]) if found else 0


def _convolution_flops(attributes: str, left: tuple, right: tuple, output: tuple) -> int:
    """As the TPU compiler writes matrix products: only those places of the window count that meet the input."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    lhs, rhs, out = labels.groups()
    window = re.search(r"window=\{([^}]*)\}", attributes)
    options = dict(re.findall(r"(\w+)=([\w\-x]+)", window[1])) if window else {}
    total = 2 * output[out.index("b")] * output[out.index("f")] * right[rhs.index("i")]
    for number, axis in enumerate(sorted(label for label in out if label.isdigit())):
        total *= _meetings(
            input_size=left[lhs.index(axis)],
            kernel_size=right[rhs.index(axis)],
            output_size=output[out.index(axis)],
            stride=_at(options.get("stride"), number, 1),
            padding=_at(options.get("pad"), number, 0),
            input_dilation=_at(options.get("lhs_dilate"), number, 1),
            kernel_dilation=_at(options.get("rhs_dilate"), number, 1),
        )
    return total


def _meetings(
    *,
    input_size: int,
    kernel_size: int,
    output_size: int,
    stride: int,
    padding: int,
    input_dilation: int,
    kernel_dilation: int,
) -> int:
    """How many pairs of an output's place and a kernel's place meet an element of the input, not padding or a hole."""
    outputs = np.arange(output_size)[:, None] * stride - padding
    positions = outputs + np.arange(kernel_size)[None, :] * kernel_dilation
    inside = (positions >= 0) & (positions <= (input_size - 1) * input_dilation) & (positions % input_dilation == 0)
    return int(inside.sum())


def _at(option: str | None, number: int, default: int) -> int:
    """The value of one dimension: `3x1` strides, `0_0x2_1` paddings before and behind."""
    return int(option.split("x")[number].split("_")[0]) if option else default


def _traffic(instruction: Instruction, computation: Computation, program: HloProgram) -> int:
    opcode = instruction.opcode
    if opcode in _FREE or opcode.endswith("-done"):
        return 0
    operands = [array for operand in computation.operands(instruction) for array in operand.arrays]
    if opcode == "dynamic-slice":
        return 2 * _in_memory(instruction.arrays)
    if opcode == "dynamic-update-slice":
        return 2 * _in_memory(computation.operands(instruction)[1].arrays)
    if opcode == "fusion":
        return sum(_fusion_traffic(instruction, computation, program.computations[instruction.called[0]]))
    if opcode == "custom-call" and (estimate := _estimate(instruction, "bytes_accessed")):
        # A kernel may fetch the same part more than once.
        return max(estimate, _in_memory(operands) + _in_memory(instruction.arrays))
    results = (
        instruction.arrays[: len(instruction.arrays) // 2 or 1] if opcode.endswith("-start") else instruction.arrays
    )
    return _in_memory(operands) + _in_memory(results)


def _fusion_traffic(instruction: Instruction, outside: Computation, inside: Computation) -> Iterator[int]:
    # What a fusion only hands on, as one that a transfer goes on beside does, is not touched.
    results, handed_on = _handed_on(instruction.attributes)
    updated: set[str] = set()
    for update in _updates(inside):
        whole, part = inside.operands(update)[:2]
        source = _source(whole, inside)
        updated.add(source.name)
        yield 2 * _size(part.arrays) if _in_memory(source.arrays) else 0
    if not updated:
        yield _in_memory([array for number, array in enumerate(instruction.arrays) if number not in results])
    for number, (operand, parameter) in enumerate(zip(outside.operands(instruction), inside.parameters, strict=False)):
        if parameter.name in updated or number in handed_on:
            continue
        readers = [other for other in inside.instructions if parameter.name in other.operands]
        sliced = readers and all(reader.opcode == "dynamic-slice" for reader in readers)
        in_memory = _in_memory(operand.arrays)
        yield min(in_memory, sum(_size(reader.arrays) for reader in readers)) if sliced else in_memory


def _handed_on(attributes: str) -> tuple[set[int], set[int]]:
    """(which results, which operands) are one and the same array."""
    written = re.search(r"output_to_operand_aliasing=\{((?:\{[\d,]*\}: \(\d+, \{[\d,]*\}\)(?:, )?)*)\}", attributes)
    pairs = re.findall(r"\{(\d*)\}: \((\d+),", written[1]) if written else []
    return {int(result or 0) for result, _ in pairs}, {int(operand) for _, operand in pairs}


def _updates(inside: Computation) -> list[Instruction]:
    """The updates in place that a fusion ends with."""
    root = next(instruction for instruction in inside.instructions if instruction.is_root)
    ends = inside.operands(root) if root.opcode == "tuple" else (root,)
    found = [_source(end, inside) for end in ends]
    return [end for end in found if end.opcode == "dynamic-update-slice"]


def _source(instruction: Instruction, computation: Computation) -> Instruction:
    while instruction.opcode in ("bitcast", "convert", "copy") and computation.operands(instruction):
        (instruction,) = computation.operands(instruction)[:1]
    return instruction


def _in_memory(arrays: tuple[HloArray, ...] | list[HloArray]) -> int:
    return sum(array.num_bytes for array in arrays if array.memory_space == 0)


def _size(arrays: tuple[HloArray, ...]) -> int:
    return sum(array.num_bytes for array in arrays)
