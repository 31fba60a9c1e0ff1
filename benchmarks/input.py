"""How fast raw text becomes what a T5 sees: corruption under jit, and the whole input pipeline.

    python benchmarks/input.py

Rows are T5's: 568 raw ids to 512 input and 114 target ids. The pipeline reads shuffled batches from an ArrayRecord
token store through Grain, puts them on the device and corrupts them there; the corpus is the embedded one. Tokens are
raw ids. Figures are medians of several rounds, with the lowest and highest in brackets.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from t5x_lite.data import Data, PythonDocs, SentencePiece, batches, prefetch
from t5x_lite.objectives import SpanCorruption, corrupt_rows

BATCH_SIZE, ROUNDS, STEPS = 128, 9, 20


def tokens_per_second(work: Callable[[], None], tokens: int) -> list[float]:
    """Tokens a second in each round, after one that does not count."""
    work()
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        rates.append(tokens / (time.perf_counter() - start))
    return sorted(rates)


def main() -> None:
    objective = SpanCorruption(input_length=512)
    tokens = BATCH_SIZE * STEPS * objective.raw_length
    with tempfile.TemporaryDirectory() as cache:
        data = Data(PythonDocs(), SentencePiece(vocab_size=8000), cache_dir=cache)
        list(data.source.documents())  # parsing the documentation is not tokenizing it
        start = time.perf_counter()
        store = data.prepare(objective.row_format)
        prepared = (len(store.train) + len(store.held_out)) * objective.raw_length
        preparing = time.perf_counter() - start
        objective = objective.for_vocabulary(store.tokenizer.vocabulary)
        corrupt = jax.jit(lambda key, raw: corrupt_rows(objective, key, raw))
        raw = jnp.asarray(batches(store.train, batch_size=BATCH_SIZE, seed=0)[0])

        def corruption() -> None:
            jax.block_until_ready([corrupt(jax.random.key(step), raw) for step in range(STEPS)])

        def reading() -> None:
            with closing(prefetch(batches(store.train, batch_size=BATCH_SIZE, seed=0))) as stream:
                for _ in range(STEPS):
                    next(stream)

        def pipeline() -> None:
            with closing(prefetch(batches(store.train, batch_size=BATCH_SIZE, seed=0))) as stream:
                jax.block_until_ready(
                    [corrupt(jax.random.key(step), jax.device_put(next(stream))) for step in range(STEPS)]
                )

        table = Table(title=f"input, batches of {BATCH_SIZE} x {objective.raw_length}, {jax.device_count()} device(s)")
        table.add_column("stage")
        table.add_column("M tokens/s", justify="right")
        table.add_column("lowest to highest", justify="right")
        table.add_row("prepare, tokenizer training included (once)", f"{prepared / preparing / 1e6:.2f}", "")
        stages = {
            "read from the token store": reading,
            "span corruption under jit": corruption,
            "whole pipeline": pipeline,
        }
        for name, work in stages.items():
            rates = tokens_per_second(work, tokens)
            spread = f"{rates[0] / 1e6:.2f} to {rates[-1] / 1e6:.2f}"
            table.add_row(name, f"{statistics.median(rates) / 1e6:.2f}", spread)
    Console().print(table)


if __name__ == "__main__":
    main()
