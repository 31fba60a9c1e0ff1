"""Reading a compiled program: XLA's text of it as computations of instructions, and how often each of them runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"a parenthesis is not closed in {text[:200]!r}")
