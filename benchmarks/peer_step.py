"""Another trainer's compiled step beside ours: memory, and the time that one reader expects of both programs.

    python benchmarks/peer_step.py CONFIG --topology KIND:SHAPE --hlo PEER.hlo --memory BYTES [--seconds S]
        [--model PRESET] [--rows N]

CONFIG is ours, with all chips sharing the parameters, everything computed again, --rows rows a chip and, with --model,
another of the presets with the config's vocabulary. PEER.hlo is what `compiled.as_text()` gave of the peer's step for
the same slice, BYTES the sum of `peak_memory_in_bytes` and `generated_code_size_in_bytes` of its `memory_analysis()`, S
the seconds of its `compile`.
Model FLOPs of both are ours. A minute or two for large models; no TPU is needed, but the TPU compiler.

The peer's attention is JAX's splash attention under a causal mask. Its kernels are compiled by themselves as ours are,
and their bundles counted: a step of the grid for each block that the mask does not hide, the beginning and the end of a
sum for each row of blocks. Steps in which nothing is computed are left out, in the peer's favour.
"""

import argparse
import math
import re
from dataclasses import replace
from pathlib import Path

import jax

from t5x_lite.cli.arguments import load_config
from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape
from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.hlo import read_hlo
from t5x_lite.planning.kernels import kernel_cycles
from t5x_lite.planning.plan import make_plan
from t5x_lite.planning.timing import ExpectedTime, Schedule
from t5x_lite.planning.topology import Topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--topology", type=Topology.parse, required=True)
    parser.add_argument("--hlo", type=Path, required=True, help="the peer's program")
    parser.add_argument("--memory", type=int, required=True, help="bytes of the peer's peak, code included")
    parser.add_argument("--seconds", type=float, default=0.0, help="that the peer's compilation took")
    parser.add_argument("--model", help="a preset instead of the config's model")
    parser.add_argument("--rows", type=int, default=1, help="of a chip")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    topology, experiment = arguments.topology, load_config(arguments.config)
    chips = topology.num_chips
    mesh = MeshShape(data=1, fsdp=chips)
    experiment = replace(experiment, mesh=mesh, batch_size=arguments.rows * chips, accumulation=1, remat="full")
    if arguments.model:
        model = replace(PRESETS[arguments.model], vocab_size=experiment.model.vocab_size)
        experiment = replace(experiment, model=model)
    plan = make_plan(experiment, topology)
    print_row("step", "GiB", "operations", "kernels", "exposed", "expected ms", "MFU", "compiled in s")
    print_row("---", *7 * ["---:"])
    peak = plan.model_flops / (chips * topology.chip.peak_flops)
    rows = {"peer": (arguments.memory, peer_time(arguments.hlo.read_text(), topology), arguments.seconds)}
    if plan.cost is not None:
        rows["ours"] = plan.memory.total, plan.cost.expected, plan.compile_seconds
    for name, (memory, took, seconds) in reversed(rows.items()):
        times = (took.operations, took.kernels, took.exposed, took.seconds)
        figures = [f"{1e3 * one:,.1f}" for one in times]
        print_row(name, f"{memory / GIB:.2f}", *figures, f"{peak / took.seconds:.1%}", f"{seconds:.0f}")


def peer_time(text: str, topology: Topology) -> ExpectedTime:
    """The time of the peer's program, whose collectives are among all chips."""
    program = read_hlo(with_steps(text))
    coordinates = [tuple(device.coords) for device in topology.devices]
    return Schedule(program, topology, coordinates, kernel_cycles(program, topology)).expected


def with_steps(text: str) -> str:
    """The program, whose splash kernels say how often they run, as `planning.kernels` reads it."""

    def add(call: re.Match[str]) -> str:
        before, sizes = call.groups()
        *rows_and_heads, length, _ = map(int, re.search(r"bf16\[([\d,]+)\]", before)[1].split(","))
        each = math.prod(rows_and_heads)
        name = re.search(r"splash\w*_(dq|dkv)_", before)
        suffix = f"_{name[1]}" if name else ""
        queries, keys = (length // int(re.search(rf"block_{axis}{suffix}\W+(\d+)", sizes)[1]) for axis in ("q", "kv"))
        # Of row i of the blocks, those that begin before its last query.
        visible = sum(-(-(row + 1) * keys // queries) for row in range(queries))
        steps, ends = each * visible, each * (keys if suffix == "_dkv" else queries)
        return f'{before}"steps":"{steps}","blocks":"{ends}","alternatives":"1",{sizes}'

    return re.sub(r"(%splash[^\n]* custom-call\([^\n]*kernel_metadata=\{\n)([^\n]*)", add, text)


def print_row(*cells: object) -> None:
    """A row of a table."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
