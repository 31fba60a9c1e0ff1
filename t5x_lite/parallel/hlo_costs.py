"""What a compiled program costs one device: operations of its matrix products, bytes to and from its memory."""

import math
import re
from collections.abc import Iterator

import numpy as np

from t5x_lite.parallel.hlo import Computation, HloArray, HloProgram, Instruction

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
    that this is no lower bound in the strict sense.
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
    for place, axis in enumerate(sorted(label for label in out if label.isdigit())):
        total *= _meetings(
            input_size=left[lhs.index(axis)],
            kernel_size=right[rhs.index(axis)],
            output_size=output[out.index(axis)],
            stride=_at(options.get("stride"), place, 1),
            padding=_at(options.get("pad"), place, 0),
            input_dilation=_at(options.get("lhs_dilate"), place, 1),
            kernel_dilation=_at(options.get("rhs_dilate"), place, 1),
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
    places = outputs + np.arange(kernel_size)[None, :] * kernel_dilation
    inside = (places >= 0) & (places <= (input_size - 1) * input_dilation) & (places % input_dilation == 0)
    return int(inside.sum())


def _at(option: str | None, place: int, default: int) -> int:
    """The value of one dimension: `3x1` strides, `0_0x2_1` paddings before and behind."""
    return int(option.split("x")[place].split("_")[0]) if option else default


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
    if opcode == "custom-call" and (said := _estimate(instruction, "bytes_accessed")):
        # A kernel may fetch the same part more than once.
        return max(said, _in_memory(operands) + _in_memory(instruction.arrays))
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
        yield _in_memory([array for place, array in enumerate(instruction.arrays) if place not in results])
    for place, (operand, parameter) in enumerate(zip(outside.operands(instruction), inside.parameters, strict=False)):
        if parameter.name in updated or place in handed_on:
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
