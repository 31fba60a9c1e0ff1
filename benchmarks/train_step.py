"""How fast a train step is on two CPU cores, against Transformers on torch: forward, backward and AdamW in float32.

    python benchmarks/train_step.py [--works t5 bert electra gpt2 bart vit] [--allocator kept] [--rounds 7] [--steps 1]

Both sides have the same shapes, random weights, no dropout, and train all parameters, which are checked to be as many.
Ours is the step of an experiment as users get it: raw ids go to the device, the objective corrupts them under jit, the
state is donated; of pictures the bytes, which are cropped, mirrored and normalized there. Torch is given ready inputs
and labels. It runs in three ways, each in a process of its own: with attention by sdpa, with eager attention, and under
`torch.compile`; AdamW is the fused one, and the way that is fastest in a round is what ours is compared with.

All are asked in turns (A B B A). Figures are medians over the rounds, with the lowest and highest; a ratio is the
median of the rounds' ratios, time over time: below 1, ours is faster. The first call, which compiles, stands apart;
no cache of compiled programs is used. A machine that is busy otherwise slows torch down more, whose two threads wait
for each other more often: what others took of it stands below each table, and is to be next to nothing.

Operations are those of the matrix products that the work needs, counted by formula (`t5x_lite.training.flops`), and so
the same for all. BERT's and ELECTRA's losses need the scores of masked positions alone, which ours gathers;
Transformers scores every position. The last line of a table is the time that these operations would take as products
of 2,048 x 2,048 matrices, measured in the same rounds in both libraries, of which the faster counts.

`--allocator kept`: glibc keeps the memory that is freed on both sides, as `t5x_lite train` has it do; `installed`: ours
as `t5x_lite train`, torch with the allocator as it is; `both` measures one after the other.

Needs torch and transformers (`pip install -e '.[oracle]'`), for `torch.compile` a C++ compiler, and 20 GiB of memory
for the four processes of BART; one work is measured after the other.
"""

import argparse
import datetime
import importlib.metadata
import math
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from turns import CORES, Others, Worker, WorkerDied, in_turns, middle, ratios, serve, spread, use_cores, wide_console

from t5x_lite.cli.processes import keep_memory

WORKS = {
    "t5": "T5-small, 8 x (512 + 114)",
    "bert": "BERT-small, masked LM, 8 x 128",
    "electra": "ELECTRA-small, generator and discriminator, 16 x 128",
    "gpt2": "GPT-2 of 124M, 2 x 256",
    "bart": "BART-base, 4 x (256 + 256)",
    "vit": "ViT-S/16, 8 x 224 x 224",
}
OURS = "ours"
TORCH = {"torch sdpa": ("sdpa", False), "torch eager": ("eager", False), "torch compiled": ("sdpa", True)}
"""(attention, whether it is compiled) by name."""
MATRIX, PRODUCTS, WARM_UP = 2048, 4, 2
RATE, WEIGHT_DECAY = 1e-4, 0.01
"""Of AdamW."""

Task = Callable[[str], None]


def our_experiment(work: str) -> tuple[Any, Any]:
    """(experiment, vocabulary) of a work."""
    from dataclasses import replace

    from t5x_lite import Experiment
    from t5x_lite.data import Data, Vocabulary
    from t5x_lite.images.augmentation import Augmentation
    from t5x_lite.models import PRESETS
    from t5x_lite.objectives import (
        BartDenoising,
        CausalLanguageModel,
        ImageClassification,
        MaskedLanguageModel,
        ReplacedTokenDetection,
        SpanCorruption,
    )
    from t5x_lite.optim.optimizers import AdamW
    from t5x_lite.optim.schedules import Constant

    off = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    words = Vocabulary(30_522, unk_id=100, eos_id=102, cls_id=101, sep_id=102, mask_id=103)
    match work:
        case "t5":
            model, objective, rows = replace(PRESETS["t5-small"], dropout_rate=0.0), SpanCorruption(512), 8
            vocabulary = Vocabulary(32_100, first_sentinel_id=32_099, num_sentinels=100)
        case "bert":
            model = replace(PRESETS["bert-small"], **off, pooler=False, heads=("masked_lm",))
            objective, rows, vocabulary = MaskedLanguageModel(128), 8, words
        case "electra":
            pair = PRESETS["electra-small"]
            model = replace(
                pair, generator=replace(pair.generator, **off), discriminator=replace(pair.discriminator, **off)
            )
            objective, rows, vocabulary = ReplacedTokenDetection(128), 16, words
        case "gpt2":
            model = replace(PRESETS["gpt2"], **off, embedding_dropout_rate=0.0)
            objective, rows, vocabulary = CausalLanguageModel(256), 2, Vocabulary(50_257, 50_256, 50_256, 50_256)
        case "bart":
            model, objective, rows = replace(PRESETS["bart-base"], **off), BartDenoising(256), 4
            vocabulary = Vocabulary(50_265, pad_id=1, eos_id=2, unk_id=3, cls_id=0, sep_id=2, mask_id=50_264)
        case "vit":
            model, objective, rows, vocabulary = PRESETS["vit-s-16"], ImageClassification(Augmentation()), 8, None
    optimizer = AdamW(Constant(RATE), eps=1e-8, weight_decay=WEIGHT_DECAY)
    return Experiment(model, objective, Data(), optimizer, steps=1, batch_size=rows), vocabulary


def random_batch(experiment: Any, vocabulary: Any) -> Any:
    """Random ids, or pixels and labels, in the columns of the objective's rows."""
    import numpy as np

    random = np.random.default_rng(0)
    if vocabulary is None:
        rows, (height, width, channels) = experiment.batch_size, experiment.objective.layout.spec["image"].shape
        return {
            "image": random.integers(0, 256, (rows, height, width, channels)).astype(np.uint8),
            "size": np.full((rows, 2), (height, width), np.int32),
            "label": random.integers(0, experiment.model.num_classes, rows).astype(np.int32),
        }
    batch = {
        name: random.integers(1000, 30_000, (experiment.batch_size, *column.shape)).astype(np.int32)
        for name, column in experiment.objective.layout.spec.items()
    }
    if vocabulary.cls_id is not None:
        batch["ids"][:, 0], batch["ids"][:, -1] = vocabulary.cls_id, vocabulary.sep_id
    if "sentences" in batch:  # 32 ids each
        batch["sentences"][:] = np.pad(1 + np.arange(batch["ids"].shape[1] - 2) // 32, 1)
    return batch


def our_task(work: str) -> tuple[Task, dict[str, float]]:
    """`do("step")` and `do("product")` by t5x_lite, and facts of the work."""
    import jax
    import jax.numpy as jnp

    from t5x_lite.models import num_params
    from t5x_lite.parallel import batch_sharding, make_mesh
    from t5x_lite.parallel.mesh import BatchRows
    from t5x_lite.training.flops import step_flops
    from t5x_lite.training.step import Program

    experiment, vocabulary = our_experiment(work)
    objective = experiment.objective.for_vocabulary(vocabulary) if vocabulary else experiment.objective
    program = Program(experiment, objective, make_mesh(experiment.mesh))
    rows, batch = BatchRows(batch_sharding(program.mesh), experiment.batch_size), random_batch(experiment, vocabulary)
    state = jax.block_until_ready(program.init())
    matrix, multiply = jax.random.normal(jax.random.key(0), (MATRIX, MATRIX)), jax.jit(jnp.matmul)

    def do(what: str) -> None:
        nonlocal state
        if what == "product":
            for _ in range(PRODUCTS):
                multiply(matrix, matrix).block_until_ready()
            return
        state, metrics = jax.block_until_ready(program.train_step(state, rows.to_devices(batch)))
        assert jax.device_get(metrics["finite"])

    flops = step_flops(experiment.model, objective, experiment.batch_size)
    return do, {"parameters": num_params(experiment.model), "flops": flops}


def torch_task(work: str, attention: str, compiled: bool) -> tuple[Task, dict[str, float]]:
    """`do("step")` and `do("product")` by Transformers on torch, and facts of the work."""
    import torch
    import transformers
    from torch_models import models_and_loss

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    models, loss = models_and_loss(work, attention)
    for model in models:
        model.train()
    params = list({id(param): param for model in models for param in model.parameters()}.values())
    optimizer = torch.optim.AdamW(params, lr=RATE, weight_decay=WEIGHT_DECAY, fused=True)
    forward, matrix = torch.compile(loss) if compiled else loss, torch.randn(MATRIX, MATRIX)

    def do(what: str) -> None:
        if what == "product":
            for _ in range(PRODUCTS):
                matrix @ matrix
            return
        value = forward()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert math.isfinite(value.item())

    return do, {"parameters": sum(param.numel() for param in params)}


def run_worker(work: str, by: str, allocator: str) -> None:
    use_cores()
    if by == OURS or allocator == "kept":
        keep_memory()
    do, facts = our_task(work) if by == OURS else torch_task(work, *TORCH[by])
    serve(do, **facts)


def start_worker(work: str, by: str, allocator: str, cache: str) -> tuple[Worker, float]:
    """(the worker, seconds of its first step); some more follow, which do not count."""
    settings = {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": cache}
    # Whoever set these chose another allocator than is measured, or has the first step find what another run compiled.
    others = (
        "GLIBC_TUNABLES",
        "JAX_COMPILATION_CACHE_DIR",
        *(name for name in os.environ if name.startswith("MALLOC_")),
    )
    options = ("--worker", by, "--works", work, "--allocator", allocator)
    worker = Worker(__file__, *options, environment=settings | dict.fromkeys(others))
    first, *_ = [worker.seconds("step") for _ in range(1 + WARM_UP)]
    return worker, first


def measure(work: str, allocator: str, rounds: int, steps: int, console: Console) -> tuple[str, str]:
    """Prints the table of a work; returns (the ratio that counts, what it would be of the products alone)."""
    workers: dict[str, Worker] = {}
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        for by in (OURS, *TORCH):
            try:
                workers[by], first[by] = start_worker(work, by, allocator, cache)
            except WorkerDied:
                console.print(f"{WORKS[work]}: {by!r} died and is left out; what it said stands above", highlight=False)
        if OURS not in workers or len(workers) == 1:
            raise SystemExit("there is nothing to compare")
        sizes = {by: worker.facts["parameters"] for by, worker in workers.items()}
        if len(set(sizes.values())) > 1:
            raise SystemExit(f"{WORKS[work]}: not the same models, of {sizes} parameters")
        others = Others(workers.values())
        times, products = rounds_of(workers, rounds, steps)
        busy = f"other processes took {others.share():.0%} of the machine's time meanwhile"
        for worker in workers.values():
            worker.close()

    flops = workers[OURS].facts["flops"]
    best = [min(times[by][turn] for by in times if by != OURS) for turn in range(rounds)]
    library = min(products, key=lambda name: statistics.median(products[name]))
    bound = [flops / (2 * MATRIX**3 * PRODUCTS) * seconds for seconds in products[library]]
    title = f"{WORKS[work]}: {flops / 1e9:.1f} GFLOP, {sizes[OURS] / 1e6:.1f} M parameters; allocator {allocator}"
    columns = ("by", "ms a step", "lowest to highest", "over best torch", "lowest to highest")
    table = Table(*columns, "GFLOP/s", "of products", "first call (s)", title=title, caption=busy)
    for by, seconds in (times | {"products alone": bound}).items():
        milliseconds, over = [1e3 * value for value in seconds], ratios(seconds, best)
        row = (middle(milliseconds, ".0f"), spread(milliseconds, ".0f"), middle(over, ".2f"), spread(over, ".2f"))
        rate, share = f"{flops / statistics.median(seconds) / 1e9:.0f}", middle(ratios(bound, seconds), ".0%")
        table.add_row(by, *row, rate, share, f"{first[by]:.1f}" if by in first else f"({library})")
    console.print(table)
    over = ratios(times[OURS], best)
    return f"{middle(over, '.2f')} ({spread(over, '.2f')})", middle(ratios(bound, best), ".2f")


def rounds_of(
    workers: dict[str, Worker], rounds: int, steps: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds by round: of a step by each worker, the median of its `steps`; of the products by ours and by torch."""

    def step(worker: Worker) -> float:
        return statistics.median(worker.seconds("step") for _ in range(steps))

    multiplying = dict(zip(("by jax", "by torch"), workers.values(), strict=False))
    asked = {by: partial(step, worker) for by, worker in workers.items()}
    asked |= {name: partial(worker.seconds, "product") for name, worker in multiplying.items()}
    for worker in multiplying.values():
        worker.seconds("product")
    found = in_turns(asked, rounds)
    return {by: found[by] for by in workers}, {name: found[name] for name in multiplying}


def surroundings() -> str:
    """What the figures depend on beside the code."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "flax", "torch", "transformers")]
    described = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in described if line.startswith("model name")]
    machine = f"{CORES} cores of {names[0] if names else platform.processor() or platform.machine()}"
    return ", ".join([machine, f"Python {platform.python_version()}", *versions, str(datetime.date.today())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--allocator", choices=("kept", "installed", "both"), default="kept")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1, help="of one turn, whose median counts")
    parser.add_argument("--worker", choices=(OURS, *TORCH), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        run_worker(arguments.works[0], arguments.worker, arguments.allocator)
        return
    console = wide_console()
    console.print(surroundings(), highlight=False, soft_wrap=True)
    allocators = ("kept", "installed") if arguments.allocator == "both" else (arguments.allocator,)
    columns = [column for name in allocators for column in (f"allocator {name}", "products alone")]
    table = Table("work", *columns, title="our time over the best torch's")
    for work in arguments.works:
        found = [measure(work, name, arguments.rounds, arguments.steps, console) for name in allocators]
        table.add_row(WORKS[work], *(cell for cells in found for cell in cells))
    console.print(table)


if __name__ == "__main__":
    main()
