"""How fast text is written: greedy and beam search against Transformers on torch, and what a longer text costs a token.

    python benchmarks/decode.py [--allocator kept] [--rounds 9] [--skip-lengths]

T5-small's shapes with random weights, inputs of 128 ids, on two cores, float32. Ours and torch's each run in a process
of their own, are asked in turns (A B B A), and both are kept from ending a text. Figures are medians over the rounds,
with the lowest and highest; a ratio is the median of the rounds' ratios. The first call, which compiles, stands apart.
`--allocator` as in `train_step.py`. Needs torch and transformers (`pip install -e '.[oracle]'`).
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table
from turns import CORES, Worker, in_turns, middle, ratios, serve, spread, use_cores, wide_console

from t5x_lite.cli.processes import keep_memory

INPUT_LENGTH, NEW_TOKENS = 128, 64
TASKS = {"greedy, 8 texts": (8, 1), "beam 4, 4 texts": (4, 4)}
"""(texts, beams) by name."""
LENGTHS, LENGTH_ROUNDS, LENGTH_TEXTS = (64, 128, 256, 512, 1024), 5, 8


def input_ids(rows: int) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(5, 32_000, (rows, INPUT_LENGTH)).astype(np.int32)


def torch_task() -> Callable[[int, int, int], None]:
    """`write(texts, beams, tokens)` by Transformers."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    sizes = {"vocab_size": 32_128, "d_model": 512, "d_ff": 2048, "num_heads": 8, "d_kv": 64, "num_layers": 6}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0)).eval()

    def write(texts: int, beams: int, tokens: int) -> None:
        inputs = torch.from_numpy(input_ids(texts)).long()
        lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens}
        with torch.inference_mode():
            ids = model.generate(
                inputs, attention_mask=torch.ones_like(inputs), num_beams=beams, do_sample=False, **lengths
            )
        assert ids.shape == (texts, tokens + 1)

    return write


def our_task() -> Callable[[int, int, int], None]:
    """`write(texts, beams, tokens)` by t5x_lite."""
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    from t5x_lite.decoding import BeamSearch, Greedy, decode
    from t5x_lite.models import PRESETS

    module, ids, eos_id = PRESETS["t5-small"].build(), jnp.ones((1, 2), jnp.int32), 1
    params = nn.unbox(jax.jit(module.init)(jax.random.key(0), ids, ids))["params"]

    def write(texts: int, beams: int, tokens: int) -> None:
        decoded = decode(
            module,
            params,
            jnp.asarray(input_ids(texts)),
            method=Greedy() if beams == 1 else BeamSearch(beams, alpha=1.0),
            start_ids=jnp.zeros(texts, jnp.int32),
            max_length=tokens,
            eos_id=eos_id,
            pad_id=0,
            suppressed_ids=(eos_id,),
        )
        assert decoded.ids.block_until_ready().shape == (texts, 1, tokens)

    return write


WORKERS = {"ours": our_task, "torch": torch_task}


def run_worker(name: str, allocator: str) -> None:
    use_cores()
    if name == "ours" or allocator == "kept":
        keep_memory()
    serve(WORKERS[name]())


def start_worker(name: str, allocator: str) -> Worker:
    return Worker(__file__, "--worker", name, "--allocator", allocator)


def against_torch(rounds: int, allocator: str) -> Table:
    work = f"T5-small, inputs of {INPUT_LENGTH} ids, {NEW_TOKENS} tokens each"
    columns = ("task", "by", "tokens/s", "lowest to highest", "times torch", "lowest to highest", "first call (s)")
    table = Table(*columns, title=f"{work}; {CORES} cores, allocator {allocator}")
    workers = {name: start_worker(name, allocator) for name in WORKERS}
    for task, (texts, beams) in TASKS.items():
        first = {name: worker.seconds(texts, beams, NEW_TOKENS) for name, worker in workers.items()}
        asked = {name: partial(worker.seconds, texts, beams, NEW_TOKENS) for name, worker in workers.items()}
        times = in_turns(asked, rounds)
        for name, seconds in times.items():
            rates, faster = [texts * NEW_TOKENS / value for value in seconds], ratios(times["torch"], seconds)
            figures = (middle(rates, ".0f"), spread(rates, ".0f"), middle(faster, ".2f"), spread(faster, ".2f"))
            table.add_row(task, name, *figures, f"{first[name]:.1f}")
    for worker in workers.values():
        worker.close()
    return table


def by_length() -> Table:
    title = f"greedy, {LENGTH_TEXTS} texts at once: time of one token of each, behind the first"
    table = Table("tokens written", "ms a token", "lowest to highest", "over 64 tokens", "first call (s)", title=title)
    worker = start_worker("ours", "kept")
    first = {length: worker.seconds(LENGTH_TEXTS, 1, length) for length in (1, *LENGTHS)}
    found: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for _ in range(LENGTH_ROUNDS):
        encoder_and_first = worker.seconds(LENGTH_TEXTS, 1, 1)
        for length in LENGTHS:
            rest = worker.seconds(LENGTH_TEXTS, 1, length) - encoder_and_first
            found[length].append(1e3 * rest / (length - 1))
    worker.close()
    base = statistics.median(found[LENGTHS[0]])
    for length, values in found.items():
        over = f"{statistics.median(values) / base - 1:+.0%}"
        table.add_row(str(length), middle(values, ".1f"), spread(values, ".1f"), over, f"{first[length]:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=("kept", "installed"), default="kept")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--skip-lengths", action="store_true", help="only against torch")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        run_worker(arguments.worker, arguments.allocator)
        return
    console = wide_console()
    console.print(against_torch(arguments.rounds, arguments.allocator))
    if not arguments.skip_lengths:
        console.print(by_length())


if __name__ == "__main__":
    main()
