"""The cycles of a program's Pallas kernels, counted in what the TPU compiler makes of them.

The compiler says in its text how long its own operations take, and of kernels nothing; it writes the bundles of
instructions of each, one of which begins in a cycle, into files if libtpu is told so before it is loaded. That is done
in a process of its own, for each distinct kernel by itself.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

from t5x_lite.errors import InputError
from t5x_lite.planning.hlo import HloArray, HloProgram
from t5x_lite.planning.topology import Topology

TARGET = "tpu_custom_call"
_DUMP = "--xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles --xla_jf_dump_to="
_TYPES = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "pred": "bool"}
_TYPES |= {"s8": "int8", "s32": "int32", "u32": "uint32"}

Types = tuple[tuple[str, tuple[int, ...]], ...]
"""The element type and the shape of each array."""


@dataclass(frozen=True)
class Kernel:
    """What a kernel is compiled from."""

    operands: Types
    results: Types
    config: str
    """The kernel's program and its options, as JSON."""
    steps: int
    """How often its body runs, over all cores."""
    blocks: int
    """How often it does what it does not do in every step, such as to begin and to end a sum over several of them."""
    alternatives: int
    """Of the ways to do what it does in every step."""


def find_kernels(program: HloProgram) -> dict[str, Kernel]:
    """The kernels of a program, by the names of the instructions that call them."""
    found = {}
    for computation in program.computations.values():
        for instruction in computation.instructions:
            if f'custom_call_target="{TARGET}"' not in instruction.attributes:
                continue
            start = instruction.attributes.index("backend_config=") + len("backend_config=")
            options, _ = json.JSONDecoder().raw_decode(instruction.attributes, start)
            operands = [array for operand in computation.operands(instruction) for array in operand.arrays[:1]]
            # With the memory that the kernel may take, which is more than the compiler gives others by itself.
            kept = {name: options[name] for name in ("custom_call_config", "scoped_memory_configs") if name in options}
            config = json.dumps(kept)
            counts = [
                re.search(rf'(?s)kernel_metadata=.*?"{name}\\*": *\\*"(\d+)', instruction.attributes)
                for name in ("steps", "blocks", "alternatives")
            ]
            if None in counts:
                raise InputError(
                    f"the kernel {instruction.name} does not say how often it runs; "
                    "give its pallas_call metadata with the numbers steps, blocks and alternatives"
                )
            numbers = (int(count[1]) for count in counts)
            found[instruction.name] = Kernel(_types(operands), _types(instruction.arrays), config, *numbers)
    return found


def _types(arrays: Iterable[HloArray]) -> Types:
    return tuple((_TYPES.get(array.element_type, array.element_type), array.shape) for array in arrays)


_bundles: dict[tuple[str, Kernel], tuple[int, int]] = {}
"""What is known already, by the chip and the kernel: the steps that a search compiles have many in common."""


def kernel_cycles(program: HloProgram, topology: Topology) -> dict[str, int]:
    """The cycles of each kernel, by the name of its instruction.

    A bundle counts as a cycle: transfers run beside them, and are not waited for. The cores of a chip share the steps.
    """
    kernels, chip = find_kernels(program), topology.chip
    if new := [kernel for kernel in dict.fromkeys(kernels.values()) if (chip.name, kernel) not in _bundles]:
        counts = _in_a_process(new, topology)
        _bundles.update(((chip.name, kernel), count) for kernel, count in zip(new, counts, strict=True))
    cycles = {}
    for name, kernel in kernels.items():
        always, at_ends = _bundles[chip.name, kernel]
        cycles[name] = (kernel.steps * always + kernel.blocks * at_ends) // chip.cores
    return cycles


def _in_a_process(kernels: list[Kernel], topology: Topology) -> list[tuple[int, int]]:
    with tempfile.TemporaryDirectory(prefix="t5x_lite_kernels_") as folder:
        request = {"topology": topology.name, "kernels": [vars(kernel) for kernel in kernels], "folder": folder}
        arguments = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} {_DUMP}{folder}".strip()
        done = subprocess.run(
            [sys.executable, "-m", "t5x_lite.planning.kernels"],
            input=json.dumps(request),
            env=os.environ | {"LIBTPU_INIT_ARGS": arguments, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        message = done.stderr[-2000:] or f"status {done.returncode}"
        raise RuntimeError(f"the kernels of the step could not be compiled by themselves: {message}")
    return json.loads(done.stdout.splitlines()[-1])


def _compile_each(request: dict) -> list[tuple[int, int]]:
    """Of each kernel what `count_bundles` says, in a process in which the TPU compiler writes into `folder`."""
    folder, counts = Path(request["folder"]), []
    device = jax.sharding.SingleDeviceSharding(Topology.parse(request["topology"]).devices[0])
    for kernel in request["kernels"]:
        for left in folder.glob("*"):
            left.unlink()
        results = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for dtype, shape in kernel["results"]]
        call = jax.ffi.ffi_call(TARGET, results, custom_call_api_version=1, legacy_backend_config=kernel["config"])
        arguments = [
            jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=device) for dtype, shape in kernel["operands"]
        ]
        jax.jit(call).lower(*arguments).compile()
        (file,) = (path for path in folder.glob("*final_bundles.txt") if re.search(r"ffi_call.*-\d+-final", path.name))
        counts.append(count_bundles(file.read_text(), kernel["alternatives"]))
    return counts


def count_bundles(text: str, alternatives: int) -> tuple[int, int]:
    """(bundles of every step of a kernel, those that it does not run in every step).

    The steps are a loop, in which branches may skip regions. Of those that hold no further ones the largest are the
    `alternatives`, one of which runs in a step: counted is the largest.
    """
    addresses, branches, begins = [], [], None
    regions: dict[int, int] = {}
    for line in text.splitlines():
        if bundle := re.match(r" *(0x[0-9a-f]+|0) +(?:LB|LH|LE|PF|PB|CT)?[^{]*:", line):
            addresses.append(int(bundle[1], 0))
            if begins is None and re.match(r"[^{]*\bLB\b", line):
                begins = addresses[-1]
        for branch in re.findall(r"sbr\.rel \(.*?\) target = \$region(\d+)", line):
            branches.append((addresses[-1], int(branch)))
        for region in re.findall(r"Start(?:/End empty)? region (\d+)", line):
            regions.setdefault(int(region), addresses[-1])
    forward = [(at, regions[to]) for at, to in branches if regions.get(to, 0) > at]
    backward = [at for at, to in branches if regions.get(to, at + 1) <= at] or [at for at, _ in branches]
    leaves = [
        (at, to) for at, to in forward if not any(at < other and end <= to for other, end in forward if other != at)
    ]
    sizes = sorted((to - at for at, to in leaves), reverse=True)
    begins, ends = (addresses[0], addresses[-1]) if begins is None else (begins, max(backward, default=addresses[-1]))
    at_ends = sum(sizes[alternatives:])
    return ends + 1 - begins - at_ends - sum(sizes[1:alternatives]), at_ends


if __name__ == "__main__":
    print(json.dumps(_compile_each(json.load(sys.stdin))))
