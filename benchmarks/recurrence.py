"""What an LSTM costs on two CPU cores, against torch's.

    python benchmarks/recurrence.py [--rounds 9]

Forward and backward in float32, gradients of all parameters and of the input, two layers of 512 units in one direction.
Ours and torch's each run in a process of their own, ours with glibc's allocator set to keep what is freed, and take
turns (A B B A); inputs are drawn before. Ratios are the median of the rounds', time over time. The first call, which
compiles, is timed by itself: it does not depend on the length. Needs torch (`pip install -e '.[oracle]'`).
"""

import argparse
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from rich.table import Table
from turns import CORES, Others, Worker, in_turns, middle, ratios, serve, spread, use_cores, wide_console

from t5x_lite.cli.processes import keep_memory

LAYERS, UNITS = 2, 512
SIZES = {"32 x 64": (32, 64), "32 x 16": (32, 16), "8 x 256": (8, 256)}
"""(rows, length) by name."""
OURS, TORCH = "ours", "torch"


def our_task() -> Callable[[int, int], None]:
    """`do(rows, length)` by t5x_lite."""
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    from t5x_lite.layers.recurrence import Cell, RecurrentStack

    module = RecurrentStack((Cell("lstm", UNITS),) * LAYERS, (False,) * LAYERS)
    params = nn.unbox(module.init(jax.random.key(0), jnp.zeros((1, 2, UNITS)))["params"])
    step = jax.jit(jax.grad(lambda params, x: (module.apply({"params": params}, x)[0] ** 2).sum(), argnums=(0, 1)))

    inputs = cache(lambda rows, length: jax.random.normal(jax.random.key(1), (rows, length, UNITS)))

    def do(rows: int, length: int) -> None:
        jax.block_until_ready(step(params, inputs(rows, length)))

    return do


def torch_task() -> Callable[[int, int], None]:
    """`do(rows, length)` by torch."""
    import torch

    torch.set_num_threads(CORES)
    module = torch.nn.LSTM(UNITS, UNITS, LAYERS, batch_first=True)

    inputs = cache(lambda rows, length: torch.randn(rows, length, UNITS, requires_grad=True))

    def do(rows: int, length: int) -> None:
        x = inputs(rows, length)
        x.grad = None
        module.zero_grad()
        module(x)[0].square().sum().backward()

    return do


def compare(rounds: int) -> Table:
    workers = {name: Worker(__file__, "--worker", name) for name in (OURS, TORCH)}
    title = f"LSTM, {LAYERS} layers of {UNITS} units, forward and backward, {CORES} cores"
    columns = ("rows x length", "by", "first call, s", "ms", "lowest to highest", "over torch", "lowest to highest")
    table, others = Table(*columns, title=title), Others(workers.values())
    for size, (rows, length) in SIZES.items():
        asked: dict[str, Any] = {name: partial(worker.seconds, rows, length) for name, worker in workers.items()}
        first = {name: ask() for name, ask in asked.items()}
        asked = {name: partial(worker.seconds, rows, length, times=3) for name, worker in workers.items()}
        found = in_turns(asked, rounds)
        for name, seconds in found.items():
            milliseconds, over = [1e3 * value for value in seconds], ratios(seconds, found[TORCH])
            row = (middle(milliseconds, ".0f"), spread(milliseconds, ".0f"), middle(over, ".2f"), spread(over, ".2f"))
            table.add_row(size, name, f"{first[name]:.1f}", *row)
    table.caption = f"other processes took {others.share():.0%} of the machine's time meanwhile"
    for worker in workers.values():
        worker.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", choices=(OURS, TORCH), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        use_cores()
        if options.worker == OURS:
            keep_memory()
        serve(our_task() if options.worker == OURS else torch_task())
        return
    wide_console().print(compare(options.rounds))


if __name__ == "__main__":
    main()
