"""How fast raw text becomes what a T5 sees: corruption under jit, and the whole input pipeline.

    python benchmarks/input.py

Rows are T5's: 568 raw ids to 512 input and 114 target ids. The pipeline reads shuffled batches from a token store on a
disk, puts them on the device and corrupts them there; the corpus is the embedded one. Tokens are raw ids. Figures are
medians of several rounds, with the lowest and highest.

The second table is the host's part of a train step of T5-small, 8 rows: from asking for the batch, which threads have
read ahead, until it is on its way to the device. In a run it passes while the devices do the step before.

The third is tokenizing on one core, in megabytes of text for a second of the processor: ours, which looks known words
up, beside a call of the library `tokenizers` for every text, in turns.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

import jax
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from turns import middle, spread

from t5x_lite import Experiment
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import (
    ByteLevelBPE,
    Bytes,
    Data,
    PythonDocs,
    SentencePiece,
    TokenStore,
    WordPiece,
    batches,
    make_tokenizer,
    prefetch,
)
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption, corrupt_rows
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.parallel import batch_sharding, make_mesh
from t5x_lite.parallel.mesh import BatchRows
from t5x_lite.tokenizers.subword import SubwordTokenizer
from t5x_lite.training.step import Program

BATCH_SIZE, ROUNDS, STEPS = 128, 9, 20
STEP_ROWS, TRAIN_STEPS = 8, 7


def tokens_per_second(work: Callable[[], None], tokens: int) -> list[float]:
    """Tokens a second in each round, after one that does not count."""
    work()
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        rates.append(tokens / (time.perf_counter() - start))
    return sorted(rates)


def host_part(store: TokenStore, objective: SpanCorruption) -> Table:
    """Trains for some steps, and says how long the host takes to hand over a batch."""
    experiment = Experiment(PRESETS["t5-small"], objective, Data(), AdamW(), steps=TRAIN_STEPS, batch_size=STEP_ROWS)
    program = Program(experiment, objective, make_mesh(experiment.mesh))
    rows, state = BatchRows(batch_sharding(program.mesh), STEP_ROWS), program.init()
    host, whole = [], []
    with closing(prefetch(batches(store.train, batch_size=STEP_ROWS, seed=0))) as stream:
        for _ in range(TRAIN_STEPS):
            start = time.perf_counter()
            batch = rows.to_devices(next(stream))
            host.append(time.perf_counter() - start)
            state = jax.block_until_ready(program.train_step(state, batch)[0])
            whole.append(time.perf_counter() - start)
    host, whole = host[2:], whole[2:]  # the first compiles, and the threads begin to read
    table = Table("of a step", "ms", "lowest to highest", title=f"T5-small, {STEP_ROWS} x {objective.raw_length}")
    for name, seconds in {"the host's part": host, "all": whole}.items():
        milliseconds = [1e3 * value for value in seconds]
        table.add_row(name, middle(milliseconds, ".2f"), spread(milliseconds, ".2f"))
    table.caption = f"the host's part is {sum(host) / sum(whole):.2%}"
    return table


def tokenizing() -> Table:
    """Each kind of tokenizer on the embedded corpus, trained on a part of it."""
    documents = list(PythonDocs().documents())
    megabytes = sum(len(text.encode()) for text in documents) / 1e6
    table = Table("tokenizer", "MB/s", "lowest to highest", "library", "ratio", title="tokenizing on one core")
    configs = {
        "SentencePiece": SentencePiece(vocab_size=8000),
        "WordPiece": WordPiece(vocab_size=8000),
        "byte-level BPE": ByteLevelBPE(vocab_size=8000),
        "bytes": Bytes(),
    }
    for name, config in configs.items():
        tokenizer = make_tokenizer(config, lambda: iter(documents))
        calls = {"ours": lambda tokenizer=tokenizer: tokenizer.encode_batch(documents)}
        if isinstance(tokenizer, SubwordTokenizer):
            library = Tokenizer.from_str(tokenizer.to_json())
            calls["library"] = lambda library=library: library.encode_batch_fast(documents, add_special_tokens=False)
        rates: dict[str, list[float]] = {call: [] for call in calls}
        for _ in range(ROUNDS):
            for call, work in calls.items():
                start = time.process_time()
                work()
                rates[call].append(megabytes / (time.process_time() - start))
        ours, others = sorted(rates["ours"][1:]), sorted(rates.get("library", [])[1:])
        beside = (middle(others, ".1f"), f"{median(ours) / median(others):.1f}") if others else ("", "")
        table.add_row(name, middle(ours, ".1f"), spread(ours, ".1f"), *beside)
    return table


def main() -> None:
    keep_memory()
    os.environ["RAYON_NUM_THREADS"] = "1"  # of `tokenizers`
    Console().print(tokenizing())
    objective = SpanCorruption(input_length=512)
    tokens = BATCH_SIZE * STEPS * objective.raw_length
    with tempfile.TemporaryDirectory() as cache:
        data = Data(PythonDocs(), SentencePiece(vocab_size=8000), cache_dir=cache)
        list(data.source.documents())  # parsing the documentation is not tokenizing it
        start = time.perf_counter()
        store = data.prepare(objective.layout)
        prepared = (len(store.train) + len(store.held_out)) * objective.raw_length
        preparing = time.perf_counter() - start
        objective = objective.for_vocabulary(store.tokenizer.vocabulary)
        corrupt = jax.jit(lambda key, batch: corrupt_rows(objective, key, batch))
        batch = jax.device_put(batches(store.train, batch_size=BATCH_SIZE, seed=0)[0])

        def corruption() -> None:
            jax.block_until_ready([corrupt(jax.random.key(step), batch) for step in range(STEPS)])

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
            rates = [rate / 1e6 for rate in rates]
            table.add_row(name, middle(rates, ".2f"), spread(rates, ".2f"))
        Console().print(table)
        Console().print(host_part(store, objective))


if __name__ == "__main__":
    main()
