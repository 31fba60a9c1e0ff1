"""What attention with T5's bias by distance costs: on two CPU cores against torch, on TPU chips by their compiler.

    python benchmarks/attention.py [--rounds 7] [--skip-cpu] [--skip-tpu]

CPU: forward and backward in float32, gradients of queries, keys, values and bias, 8 heads of 64. Ours and torch's each
run in a process of their own, with glibc's allocator set to keep what is freed, and take turns (A B B A).
Torch does it by `scaled_dot_product_attention` with the bias as its mask, and in plain operations: the faster in a
round is what ours is compared with. Short rows are done ten times for one figure. Ratios are the median of the rounds',
time over time. Operations are those of six matrix products.

TPU: one row of T5 large's 16 heads of 64 in bfloat16, compiled for a chip that is not there. Flash is the kernel, dense
what other devices run; memory is what lives during the step beside inputs and outputs, and the times are bounds:
operations and bytes at the chip's published peaks, of which the greater holds. Needs libtpu (`pip install -e
'.[tpu]'`); the first needs torch (`pip install -e '.[oracle]'`).
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table
from turns import CORES, Others, Worker, in_turns, middle, ratios, serve, spread, use_cores, wide_console

from t5x_lite.cli.processes import keep_memory

CPU_HEADS, WIDTH = 8, 64
SIZES = {"8 x 128": (8, 128), "8 x 512": (8, 512), "2 x 1,024": (2, 1024), "1 x 2,048": (1, 2048)}
"""(rows, length) by name."""
SHORT, TIMES = 256, 10
"""Rows up to this length are done as often for one figure: once is too short to compare."""
OURS, TORCH = "ours", {"torch sdpa": True, "torch plain": False}
TOPOLOGIES, LENGTHS, TPU_HEADS = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"), (512, 4096, 32_768), 16
TOO_LONG = 8192
"""From here on the arrays of all pairs are not worth trying."""


def our_task() -> Callable[[int, int], None]:
    """`do(rows, length)` by t5x_lite."""
    import jax
    import jax.numpy as jnp

    from t5x_lite.kernels.masks import DistanceBias
    from t5x_lite.layers.attention import dot_product_attention

    @partial(jax.grad, argnums=(0, 1, 2, 3))
    def gradients(query: Any, key: Any, value: Any, bias: Any) -> Any:
        return dot_product_attention(query, key, value, bias=DistanceBias(bias), scale=1.0).sum()

    step, made = jax.jit(gradients), {}

    def do(rows: int, length: int) -> None:
        if (rows, length) not in made:
            keys = jax.random.split(jax.random.key(0), 4)
            shapes = [(rows, length, CPU_HEADS, WIDTH)] * 3 + [(CPU_HEADS, 2 * length - 1)]
            draws = zip(keys, shapes, strict=True)
            made[rows, length] = [jax.random.normal(key, shape, jnp.float32) for key, shape in draws]
        jax.block_until_ready(step(*made[rows, length]))

    return do


def torch_task(fused: bool) -> Callable[[int, int], None]:
    """`do(rows, length)` by torch."""
    import torch

    torch.set_num_threads(CORES)
    made: dict[tuple[int, int], Any] = {}

    def do(rows: int, length: int) -> None:
        if (rows, length) not in made:
            shapes = [(rows, CPU_HEADS, length, WIDTH)] * 3 + [(CPU_HEADS, 2 * length - 1)]
            places = length - 1 + torch.arange(length)[None] - torch.arange(length)[:, None]
            made[rows, length] = [torch.randn(shape, requires_grad=True) for shape in shapes], places
        (query, key, value, bias), places = made[rows, length]
        every = bias[:, places][None]
        if fused:
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=every, scale=1.0)
        else:
            out = torch.softmax(query @ key.transpose(-1, -2) + every, dim=-1) @ value
        torch.autograd.grad(out.sum(), (query, key, value, bias))

    return do


def on_cpu(rounds: int) -> Table:
    workers = {name: Worker(__file__, "--worker", name) for name in (OURS, *TORCH)}
    title = f"attention with a bias by distance, forward and backward, {CPU_HEADS} heads of {WIDTH}, {CORES} cores"
    columns = ("rows x length", "by", "ms", "lowest to highest", "over best torch", "lowest to highest", "GFLOP/s")
    table, others = Table(*columns, title=title), Others(workers.values())
    for size, (rows, length) in SIZES.items():
        times = TIMES if length <= SHORT else 1
        asked = {name: partial(worker.seconds, rows, length, times=times) for name, worker in workers.items()}
        in_turns(asked, 2)  # compiles
        found = in_turns(asked, rounds)
        best = [min(found[name][turn] for name in TORCH) for turn in range(rounds)]
        flops = 6 * 2 * rows * CPU_HEADS * length**2 * WIDTH
        for name, seconds in found.items():
            milliseconds, over = [1e3 * value for value in seconds], ratios(seconds, best)
            rate = middle([flops / value / 1e9 for value in seconds], ".0f")
            row = (middle(milliseconds, ".1f"), spread(milliseconds, ".1f"), middle(over, ".2f"), spread(over, ".2f"))
            table.add_row(size, name, *row, rate)
    table.caption = f"other processes took {others.share():.0%} of the machine's time meanwhile"
    for worker in workers.values():
        worker.close()
    return table


def on_tpu() -> Table:
    from t5x_lite.kernels.dense_attention import dense_attention
    from t5x_lite.kernels.flash_attention import flash_attention

    title = f"one row, {TPU_HEADS} heads of {WIDTH}, bfloat16, forward and backward, by the TPU compiler"
    table = Table("chip", "length", "by", "temporaries (MiB)", "compute (ms)", "memory (ms)", title=title)
    for topology in TOPOLOGIES:
        for length in LENGTHS:
            for name, attend in {"flash": flash_attention, "dense": dense_attention}.items():
                if name == "dense" and length >= TOO_LONG:
                    continue
                table.add_row(topology.partition(":")[0], f"{length:,}", name, *compiled(topology, length, attend))
    return table


def compiled(topology: str, length: int, attend: Any) -> tuple[str, str, str]:
    """(temporaries, bound by operations, bound by bytes)."""
    import jax
    import jax.numpy as jnp

    from t5x_lite.kernels.masks import AttentionInputs, DistanceBias
    from t5x_lite.layers.attention import attend_on_mesh
    from t5x_lite.parallel import MeshShape, make_mesh, replicated, use_mesh
    from t5x_lite.planning.hlo import matrix_flops, memory_traffic, read_hlo
    from t5x_lite.planning.plan import compile_or_measure
    from t5x_lite.planning.topology import Topology

    slice_ = Topology.parse(topology)
    mesh = make_mesh(MeshShape(), slice_.devices[:1])

    def loss(query: Any, key: Any, value: Any, bias: Any) -> Any:
        with use_mesh(mesh):
            out = attend_on_mesh(attend, AttentionInputs(query, key, value, 1.0, DistanceBias(bias)))
            return out.astype(jnp.float32).sum()

    heads = jax.ShapeDtypeStruct((1, length, TPU_HEADS, WIDTH), jnp.bfloat16)
    bias = jax.ShapeDtypeStruct((TPU_HEADS, 2 * length - 1), jnp.float32)
    step = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)), in_shardings=replicated(mesh), out_shardings=replicated(mesh))
    program, used, _ = compile_or_measure(step.lower(heads, heads, heads, bias))
    if program is None:
        return f"{used / 2**20:,.0f}, too many", "", ""
    hlo, chip = read_hlo(program.as_text()), slice_.chip
    return (
        f"{program.memory_analysis().temp_size_in_bytes / 2**20:,.0f}",
        f"{1e3 * matrix_flops(hlo) / (chip.peak_flops / chip.devices):.2f}",
        f"{1e3 * memory_traffic(hlo) / (chip.hbm_bandwidth / chip.devices):.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--skip-cpu", action="store_true")
    parser.add_argument("--skip-tpu", action="store_true")
    parser.add_argument("--worker", choices=(OURS, *TORCH), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        use_cores()
        keep_memory()
        serve(our_task() if arguments.worker == OURS else torch_task(TORCH[arguments.worker]))
        return
    console = wide_console()
    if not arguments.skip_cpu:
        console.print(on_cpu(arguments.rounds))
    if not arguments.skip_tpu:
        console.print(on_tpu())


if __name__ == "__main__":
    main()
