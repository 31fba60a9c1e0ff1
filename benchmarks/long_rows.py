"""What attention to a part of the tokens costs as rows grow: BigBird's and Linformer's beside attention to all.

    python benchmarks/long_rows.py [--rounds 5] [--skip-cpu] [--skip-tpu]

CPU: forward and backward of an encoder of two layers, 256 wide, 4 heads, in float32 on two cores; 8,192 tokens at a
time, as 8 rows of 1,024 or as one of 8,192. All take turns in one process; figures are medians of the rounds, and the
ratio of a token's times that of the rounds' ratios.

TPU: one row of 12 heads of 64 in bfloat16, forward and backward, compiled for a chip that is not there: the time that
the compiler's cycles make, and what lives during the step beside inputs and outputs. Needs libtpu (`pip install -e
'.[tpu]'`).
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.table import Table
from turns import middle, spread, use_cores, wide_console

from t5x_lite.cli.processes import keep_memory

TOKENS, LENGTHS = 8192, (1024, 8192)
TOPOLOGY, TPU_LENGTHS = "v5e:1x1", (4096, 8192, 16_384, 32_768)


def on_cpu(rounds: int) -> Table:
    import jax
    import jax.numpy as jnp

    from t5x_lite.models import BertConfig, BigBird, Linformer
    from t5x_lite.models.base import init_params

    base = BertConfig(
        vocab_size=1000,
        embed_dim=256,
        num_heads=4,
        mlp_dim=1024,
        num_layers=2,
        max_length=max(LENGTHS),
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        pooler=False,
    )
    kinds = {"BigBird": BigBird(), "Linformer, k 256": Linformer(256), "all tokens": None}
    calls: dict[tuple[str, int], Callable[[], Any]] = {}
    for name, attention in kinds.items():
        config = replace(base, attention=attention)
        module, params = config.build(), init_params(config, jax.random.key(0))

        def loss(params: Any, ids: Any, module: Any = module) -> Any:
            return module.apply({"params": params}, ids, method="hidden_states").astype(jnp.float32).sum()

        step = jax.jit(jax.grad(loss))
        for length in LENGTHS:
            ids = jnp.ones((TOKENS // length, length), jnp.int32)
            calls[name, length] = lambda step=step, params=params, ids=ids: jax.block_until_ready(step(params, ids))
            calls[name, length]()
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for number in range(rounds):
        for key in list(calls) if number % 2 else reversed(calls):
            began = time.perf_counter()
            calls[key]()
            seconds[key].append(time.perf_counter() - began)
    title = f"{TOKENS:,} tokens, forward and backward, {rounds} rounds in turns"
    columns = [f"{length:,} (µs a token)" for length in LENGTHS]
    table = Table("attention", *columns, "ratio", "range", title=title)
    for name in kinds:
        short, long = (seconds[name, length] for length in LENGTHS)
        ratios = [b / a for a, b in zip(short, long, strict=True)]
        per_token = (f"{1e6 * statistics.median(values) / TOKENS:.1f}" for values in (short, long))
        table.add_row(name, *per_token, middle(ratios, ".2f"), spread(ratios, ".2f"))
    return table


def on_tpu() -> Table:
    from t5x_lite.kernels.block_sparse import block_sparse_attention
    from t5x_lite.kernels.flash_attention import flash_attention
    from t5x_lite.layers.big_bird import BigBird

    title = f"one row, 12 heads of 64, bfloat16, forward and backward, {TOPOLOGY}, by the TPU compiler"
    table = Table("length", "attention", "time (ms)", "temporaries (MiB)", title=title)
    for length in TPU_LENGTHS:
        blocks = BigBird().blocks(BigBird().random_blocks(1, 12, length)[0])
        for name, attend, of in (("BigBird", block_sparse_attention, blocks), ("all tokens", flash_attention, None)):
            table.add_row(f"{length:,}", name, *compiled(length, attend, of))
    return table


def compiled(length: int, attend: Callable[..., Any], blocks: Any) -> tuple[str, str]:
    """(time, temporaries)."""
    import jax
    import jax.numpy as jnp

    from t5x_lite.kernels.masks import AttentionInputs
    from t5x_lite.parallel import MeshShape, make_mesh, replicated, use_mesh
    from t5x_lite.planning.hlo import read_hlo
    from t5x_lite.planning.kernels import kernel_cycles
    from t5x_lite.planning.timing import Schedule
    from t5x_lite.planning.topology import Topology

    chip = Topology.parse(TOPOLOGY)
    mesh = make_mesh(MeshShape(), chip.devices)

    def loss(query: Any, key: Any, value: Any) -> Any:
        return attend(AttentionInputs(query, key, value, 0.125, blocks=blocks)).astype(jnp.float32).sum()

    heads = jax.ShapeDtypeStruct((1, length, 12, 64), jnp.bfloat16, sharding=replicated(mesh))
    with use_mesh(mesh):
        program = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).lower(heads, heads, heads).compile()
    hlo = read_hlo(program.as_text())
    took = Schedule(hlo, chip, [(0, 0, 0)], kernel_cycles(hlo, chip)).expected.seconds
    return f"{1e3 * took:.2f}", f"{program.memory_analysis().temp_size_in_bytes / 2**20:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-cpu", action="store_true")
    parser.add_argument("--skip-tpu", action="store_true")
    arguments = parser.parse_args()
    use_cores()
    keep_memory()
    console = wide_console()
    if not arguments.skip_cpu:
        console.print(on_cpu(arguments.rounds))
    if not arguments.skip_tpu:
        console.print(on_tpu())


if __name__ == "__main__":
    main()
