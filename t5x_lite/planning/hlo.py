"""Reading a compiled program: XLA's text of it as computations of instructions, and how often each of them runs."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_ARRAY = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^}]*)\})?")
_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)", re.DOTALL)
_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*(?:/\*.*)?$")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")

_REDUCING = ("all-reduce", "all-reduce-start", "reduce-scatter", "reduce", "reduce-window", "scatter", "sort", "map")
_REDUCING += ("select-and-scatter",)
"""Operations that apply a computation to scalars."""

_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_FREE += ("after-all", "partition-id", "replica-id", "optimization-barrier", "iota", "async-start", "async-done")
_FREE += ("opt-barrier", "add-dependency", "domain", "get-dimension-size")
"""Operations that name what is in memory already, or stand for what others do."""

_SLICING = ("slice", "dynamic-slice", "gather")
"""Operations that read no more of their first operand than they give."""


@dataclass(frozen=True)
class HloArray:
    """The type of a value.

    >>> [HloArray(name, (6,), 0).num_bytes for name in ("f32", "bf16", "pred", "s4", "f8e4m3fn", "token")]
    [24, 12, 6, 3, 6, 0]
    """

    element_type: str
    shape: tuple[int, ...]
    memory_space: int
    """0 is the device's main memory, others are on the chip or on the host."""
    stored_elements: int = 0
    """Elements that it takes in memory, where tiles are filled up."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bits(self) -> int:
        """Of an element."""
        bits = {"pred": 8, "token": 0, "opaque": 0}.get(self.element_type)
        return int(re.match(r"[a-z]+(\d+)", self.element_type)[1]) if bits is None else bits

    @property
    def num_bytes(self) -> int:
        return -(-self.num_elements * self.num_bits // 8)

    @property
    def stored_bytes(self) -> int:
        """Bytes that it takes in memory, where tiles are filled up: at least `num_bytes`."""
        return -(-max(self.stored_elements, self.num_elements) * self.num_bits // 8)

    def __str__(self) -> str:
        return f"{self.element_type}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Instruction:
    """One line of a computation. `arrays` are its results: more than one if that is a tuple."""

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
        return (*_CALLED.findall(self.attributes), *re.findall(r"[\w.\-]+", branches[1] if branches else ""))

    def attribute(self, name: str) -> str | None:
        value = re.search(rf'\b{name}=[%"]?([\w.\-]+)', self.attributes)
        return value[1] if value else None

    @property
    def cycles(self) -> int:
        """The clock cycles that the TPU compiler expects it to take; 0 where it does not say."""
        value = re.search(r'"estimated_cycles":"(\d+)"', self.attributes)
        return int(value[1]) if value else 0

    def estimate(self, figure: str) -> int:
        """What a kernel's cost estimate says, such as `flops`; 0 without one."""
        value = re.search(rf'"cost_estimate":\{{[^}}]*"{figure}":"(\d+)"', self.attributes)
        return int(value[1]) if value else 0


@dataclass(frozen=True)
class Computation:
    """A function of the program, its instructions in the order in which they run."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def root(self) -> Instruction:
        return next(instruction for instruction in self.instructions if instruction.is_root)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
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
    """The computation that it runs in, or that its fusion runs in."""

    @property
    def fused(self) -> bool:
        """Whether it belongs to a fusion, of which only operands and results are in memory."""
        return self.within != self.computation.name


@dataclass(frozen=True)
class HloProgram:
    """What a compiled program does, for one device."""

    computations: dict[str, Computation]
    entry: str

    def runs(self) -> Iterator[Run]:
        """Every instruction, from the entry down into loops, calls and fusions; not into reducing functions.

        All branches of a condition are included, though only one of them runs.
        """

        def walk(name: str, times: int, within: str) -> Iterator[Run]:
            computation = self.computations[name]
            for instruction in computation.instructions:
                yield Run(instruction, computation, times, within)
                if instruction.opcode in _REDUCING:
                    continue
                rounds = times * (self.trip_count(instruction) or 1) if instruction.opcode == "while" else times
                fuses = instruction.opcode == "fusion" or within != name
                for called in instruction.called:
                    yield from walk(called, rounds, within if fuses else called)

        yield from walk(self.entry, 1, self.entry)

    def trip_count(self, loop: Instruction) -> int | None:
        """How often a loop runs: as the compiler says, or as its condition does if that is `counter < constant`.

        JAX's loops over arrays count from 0. None where the number depends on data.
        """
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        condition = self.computations[loop.attribute("condition")]
        compare, operands = condition.root, condition.operands(condition.root)
        if compare.opcode == "fusion":
            compare = self.computations[compare.called[0]].root
        if compare.opcode != "compare" or compare.attribute("direction") != "LT":
            return None
        constants = [operand for operand in operands if operand.opcode == "constant"]
        return int(constants[0].operands[0]) if len(constants) == 1 and len(operands) == 2 else None


def read_hlo(text: str) -> HloProgram:
    """The program that XLA prints as `text`, as `compiled.as_text()` returns it."""
    computations, entry, name, instructions = {}, "", "", []
    for line in _whole_lines(text):
        if line.startswith("}"):  # which of the chip's processors runs it may follow
            computations[name] = Computation(name, tuple(instructions))
            name = ""
        elif not name and (header := _HEADER.match(line)):
            name, instructions = header["name"], []
            entry = name if header["entry"] else entry
        elif name and (instruction := _INSTRUCTION.match(line)):
            instructions.append(_read_instruction(instruction))
    return HloProgram(computations, entry)


def _whole_lines(text: str) -> Iterator[str]:
    """The lines of a program; an instruction goes on to where the braces and the quoted texts of its attributes end."""
    begun = ""
    for line in text.splitlines():
        begun += line
        if begun == line and not _INSTRUCTION.match(line):
            yield line
            begun = ""
            continue
        unquoted = re.sub(r'"(?:\\.|[^"\\])*"', "", begun)
        if '"' in unquoted or unquoted.count("{") > unquoted.count("}"):
            begun += "\n"
        else:
            yield begun
            begun = ""


def _read_instruction(line: re.Match[str]) -> Instruction:
    rest = re.sub(r"/\*.*?\*/", "", line["rest"])
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    result, rest = rest[:end], rest[end:].lstrip()
    opcode = rest[: rest.index("(")]
    close = _closing(rest, len(opcode))
    inside, attributes = rest[len(opcode) + 1 : close], rest[close + 1 :]
    operands = (inside,) if opcode in ("parameter", "constant") else tuple(re.findall(r"%([\w.\-]+)", inside))
    return Instruction(line["name"], read_arrays(result), opcode, operands, attributes, bool(line["root"]))


def _closing(text: str, opening: int) -> int:
    """The index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    raise ValueError(f"a parenthesis is not closed in {text[:200]!r}")


def read_arrays(text: str) -> tuple[HloArray, ...]:
    """The arrays of a type, of which a tuple has several.

    >>> [tuple(vars(array).values()) for array in read_arrays("(bf16[2,64]{1,0:T(8,128)(2,1)S(1)}, s32[])")]
    [('bf16', (2, 64), 1, 1024), ('s32', (), 0, 1)]
    """
    arrays = []
    for array in _ARRAY.finditer(text):
        space = re.search(r"S\((\d+)\)", array["layout"] or "")
        shape = tuple(int(size.lstrip("<=")) for size in array["dims"].split(",") if size)
        stored = _stored_elements(shape, array["layout"] or "")
        arrays.append(HloArray(array["type"], shape, int(space[1]) if space else 0, stored))
    return tuple(arrays)


def _stored_elements(shape: tuple[int, ...], layout: str) -> int:
    """With the tile of the layout, such as `1,0:T(8,128)`, filled up along the dimensions that change fastest."""
    order, _, tiling = layout.partition(":")
    tile = re.match(r"T\(([\d,]+)\)", tiling)
    if not tile:
        return math.prod(shape)
    sizes = [shape[int(dimension)] for dimension in reversed(order.split(",")) if dimension]
    tiles = list(map(int, tile[1].split(",")))
    sizes = [1] * (len(tiles) - len(sizes)) + sizes
    filled = [-(-size // length) * length for size, length in zip(sizes[-len(tiles) :], tiles, strict=True)]
    return math.prod(sizes[: -len(tiles)]) * math.prod(filled)


def matrix_flops(program: HloProgram) -> int:
    """Operations of all dots and convolutions, times the rounds of their loops: 2 for each product and its sum.

    A Pallas kernel counts by its cost estimate. XLA's `cost_analysis` counts the body of a loop once.
    """
    return sum(run.times * _flops(run.instruction, run.computation) for run in program.runs())


def _flops(instruction: Instruction, computation: Computation) -> int:
    if instruction.opcode == "custom-call":
        return instruction.estimate("flops")
    if instruction.opcode not in ("dot", "convolution"):
        return 0
    left, right = (operand.arrays[0].shape for operand in computation.operands(instruction))
    (output,) = (array.shape for array in instruction.arrays)
    if instruction.opcode == "convolution":
        return _convolution_flops(instruction.attributes, left, right, output)
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
    axes = contracted[1].split(",") if contracted and contracted[1] else []
    return 2 * math.prod(output) * math.prod(left[int(axis)] for axis in axes)


def _convolution_flops(attributes: str, left: tuple, right: tuple, output: tuple) -> int:
    """Of the pairs of output and kernel positions that meet the input, which the TPU compiler pads in its products."""
    lhs, rhs, out = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes).groups()
    window = re.search(r"window=\{([^}]*)\}", attributes)
    options = dict(re.findall(r"(\w+)=([\w\-x]+)", window[1])) if window else {}

    def option(name: str, number: int, default: int) -> int:
        """Of one dimension: `3x1` strides, `0_0x2_1` paddings before and after."""
        return int(options[name].split("x")[number].split("_")[0]) if name in options else default

    total = 2 * output[out.index("b")] * output[out.index("f")] * right[rhs.index("i")]
    for number, axis in enumerate(sorted(filter(str.isdigit, out))):
        outputs = np.arange(output[out.index(axis)]) * option("stride", number, 1) - option("pad", number, 0)
        kernel = np.arange(right[rhs.index(axis)]) * option("rhs_dilate", number, 1)
        positions, dilation = outputs[:, None] + kernel[None, :], option("lhs_dilate", number, 1)
        last = (left[lhs.index(axis)] - 1) * dilation
        total *= int(((positions >= 0) & (positions <= last) & (positions % dilation == 0)).sum())
    return total


def memory_traffic(program: HloProgram) -> int:
    """Bytes that are read from and written to the main memory, times the rounds of loops.

    Counted are the operands and results of an instruction or a fusion that are in the main memory, with the tiles of
    their layouts filled up; of an array that is read or written in one slice, the slice. The compiler may keep more on
    the chip than its text says, so that this is not a lower bound in the strict sense.
    """
    return sum(
        run.times * _traffic(run.instruction, run.computation, program) for run in program.runs() if not run.fused
    )


def _traffic(instruction: Instruction, computation: Computation, program: HloProgram) -> int:
    opcode, results = instruction.opcode, instruction.arrays
    if opcode in _FREE or opcode.endswith("-done") or instruction.attribute("custom_call_target") == "AllocateBuffer":
        return 0
    operands = [array for operand in computation.operands(instruction) for array in operand.arrays]
    if opcode.removesuffix("-start") in _SLICING:
        # What begins a transfer gives its operands, the slice, and what counts the transfer.
        piece = results[len(operands) if opcode.endswith("-start") else 0]
        return _in_memory((piece,)) + (piece.stored_bytes if operands[0].memory_space == 0 else 0)
    if opcode == "dynamic-update-slice":
        whole, piece = operands[:2]
        return _in_memory((piece,)) + (piece.stored_bytes if whole.memory_space == 0 else 0)
    if opcode == "fusion":
        return sum(_fusion_traffic(instruction, computation, program))
    if opcode == "custom-call" and (estimate := instruction.estimate("bytes_accessed")):
        # A kernel may fetch a block more than once.
        return max(estimate, _in_memory(operands) + _in_memory(results))
    if opcode == "send":
        return _in_memory(operands)  # its results are its operands
    if opcode == "copy-start":
        results = results[:1]  # then its operand
    elif opcode.endswith("-start") and len(results) > len(operands):
        results = results[len(operands) : 2 * len(operands)]  # after its operands
    return _in_memory(operands) + _in_memory(results)


def _fusion_traffic(instruction: Instruction, outside: Computation, program: HloProgram) -> Iterator[int]:
    inside = program.computations[instruction.called[0]]
    # What a fusion passes through unchanged, such as the arrays of a transfer in progress, is not touched.
    aliases = re.search(
        r"output_to_operand_aliasing=\{((?:\{[\d,]*\}: \(\d+, \{[\d,]*\}\)(?:, )?)*)\}", instruction.attributes
    )
    pairs = re.findall(r"\{(\d*)\}: \((\d+),", aliases[1]) if aliases else []
    results, unchanged = {int(result or 0) for result, _ in pairs}, {int(operand) for _, operand in pairs}
    ends = inside.operands(inside.root) if inside.root.opcode == "tuple" else (inside.root,)
    updated: set[str] = set()
    for number, (result, end) in enumerate(zip(instruction.arrays, ends, strict=False)):
        if update := _update(end, inside, program):
            whole, piece = update
            updated.add(whole.name)
            yield _size(piece) if _in_memory(whole.arrays) else 0
        elif number not in results:
            yield _in_memory((result,))
    for number, (operand, parameter) in enumerate(zip(outside.operands(instruction), inside.parameters, strict=False)):
        if parameter.name not in updated and number not in unchanged:
            in_memory = _in_memory(operand.arrays)
            sliced = _sliced(parameter, inside, program)
            yield in_memory if sliced is None else min(in_memory, sliced)


def _update(
    end: Instruction, computation: Computation, program: HloProgram
) -> tuple[Instruction, tuple[HloArray, ...]] | None:
    """(the value, the slice of it) that a result of a fusion has updated in place; None where it is a new array."""
    end = _source(end, computation)
    if end.opcode == "dynamic-update-slice":
        whole, piece = computation.operands(end)[:2]
        return _source(whole, computation), piece.arrays
    if end.opcode != "fusion":
        return None
    inner = program.computations[end.called[0]]
    update = _update(inner.root, inner, program)
    if update is None or update[0].opcode != "parameter":
        return None
    return _source(computation.operands(end)[int(update[0].operands[0])], computation), update[1]


def _sliced(value: Instruction, computation: Computation, program: HloProgram) -> int | None:
    """Bytes of the slices that are all that a fusion reads of a value; None where it reads the whole."""
    total = 0
    for reader in (other for other in computation.instructions if value.name in other.operands):
        if reader.opcode in _SLICING and reader.operands[0] == value.name:
            part: int | None = _size(reader.arrays)
        elif reader.opcode == "bitcast":
            part = _sliced(reader, computation, program)
        elif reader.opcode == "fusion":
            inner = program.computations[reader.called[0]]
            numbers = [number for number, name in enumerate(reader.operands) if name == value.name]
            parts = [_sliced(inner.parameters[number], inner, program) for number in numbers]
            part = None if None in parts else sum(parts)
        else:
            part = None
        if part is None:
            return None
        total += part
    return total or None


def _source(instruction: Instruction, computation: Computation) -> Instruction:
    while instruction.opcode in ("bitcast", "convert", "copy") and computation.operands(instruction):
        instruction = computation.operands(instruction)[0]
    return instruction


def _in_memory(arrays: Sequence[HloArray]) -> int:
    return sum(array.stored_bytes for array in arrays if array.memory_space == 0)


def _size(arrays: Sequence[HloArray]) -> int:
    return sum(array.stored_bytes for array in arrays)
