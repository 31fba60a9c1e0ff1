"""Translation without attention, with two kinds of it, and by a Transformer: equal parameters, equal time.

    python benchmarks/translation.py --pairs train.tsv.gz --dev dev.tsv.gz --test test.tsv.gz [--minutes 10] [--seeds 2]

Sutskever et al. 2014, Bahdanau et al. 2015 and Luong et al. 2015 beside the Transformer of configs/translate_de_en.py,
each with its parameters to about a hundredth. A step of each is timed in turns first, and each is trained for as many
steps as the minutes allow, so that other work on the machine meanwhile changes nothing. Prints BLEU of the test pairs,
greedily and by a beam of 4, and that of pairs by the words of their source (Bahdanau et al., figure 2; Luong et al.,
figure 6), mean and standard deviation over the seeds. A run that was cut short goes on with the same --out.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sacrebleu
from rich.console import Console
from rich.table import Table
from turns import mean_and_deviation

import t5x_lite
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import TableFiles, TextTemplate, TextToText, batches
from t5x_lite.models import RecurrentConfig, TransformerConfig, num_params
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.parallel import make_mesh
from t5x_lite.runs.loop import train
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.step import Program

sys.path.insert(0, str(Path(__file__).parents[1] / "configs"))
from translate_de_en import experiment as base

LENGTH = 32
"""Tokens of a side at most where a row holds one pair."""
PEAKS = {True: 2e-3, False: 6e-3}
"""Learning rates of the Transformer, whose rows are packed, and of the recurrent models."""
BUCKETS = ((2, 4), (5, 6), (7, 9), (10, 99))
"""Words of a source."""


def models() -> dict[str, Any]:
    """Their architectures by name."""
    recurrent = {"vocab_size": 4000, "embed_dim": 192, "dropout_rate": 0.1, "initial_scale": 0.2}
    stacked = {**recurrent, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return {
        "Sutskever": RecurrentConfig(**stacked, units=256, attention="none", reverse_inputs=True),
        "Bahdanau": RecurrentConfig(
            **recurrent,
            cell="gru",
            units=256,
            maxout_units=192,
            num_encoder_layers=1,
            num_decoder_layers=1,
            bidirectional=1,
            attention="additive",
        ),
        "Luong": RecurrentConfig(**stacked, units=256, attention="dot", input_feeding=True, reverse_inputs=True),
        "Transformer": base.model,
    }


def equal_in_size() -> dict[str, Any]:
    """The models, recurrent ones with as many units as make them as large as the Transformer."""
    wanted, found = num_params(base.model), {}
    for name, model in models().items():
        if isinstance(model, RecurrentConfig):
            sizes = [replace(model, units=units) for units in range(96, 512, 8)]
            model = min(sizes, key=lambda one: abs(num_params(one) - wanted))
        found[name] = model
    return found


def experiment(model: Any, pairs: str, dev: str, seed: int, steps: int) -> Experiment:
    """A run of it."""
    read = lambda path: TextToText(TableFiles((path,), columns=()), TextTemplate("{0}", "{1}"))  # noqa: E731
    packed = isinstance(model, TransformerConfig)
    length = base.objective.input_length if packed else LENGTH
    schedule = LinearDecay(peak=PEAKS[packed], warmup_steps=steps // 6, total_steps=steps + 1)
    return replace(
        base,
        model=model,
        objective=replace(base.objective, input_length=length, target_length=length, packed=packed),
        data=replace(base.data, source=read(pairs), held_out_source=read(dev)),
        optimizer=Adam(schedule, clip_norm=1.0),
        batch_size=base.batch_size if packed else 64,
        steps=steps,
        seed=seed,
        evaluation=Evaluation(every=0, rows=1000),
        checkpoints=Checkpointing(every=200, keep_last=5, keep_best=0),
        logging=Logging(every=20),
    )


def step_seconds(experiments: Sequence[Experiment], rounds: int = 7, steps: int = 6) -> list[float]:
    """The median of a step of each, timed in turns."""
    mesh, runs = make_mesh(base.mesh), []
    for one in experiments:
        store = one.data.prepare(one.objective.layout)
        program = Program(one, one.objective.for_vocabulary(store.tokenizer.vocabulary), mesh)
        rows = [dict(batches(store.train, **one.batch_order)[step]) for step in range(steps)]
        state, _ = program.train_step(program.init(), rows[0])
        runs.append([program, state, rows, []])
    for _ in range(rounds):
        for run in runs:
            program, state, rows, seconds = run
            began = time.perf_counter()
            for row in rows:
                state, _ = program.train_step(state, row)
            jax.block_until_ready(state)
            seconds.append((time.perf_counter() - began) / steps)
            run[1] = state
    return [statistics.median(seconds) for *_, seconds in runs]


def read_pairs(path: str) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in file]


def scores(folder: Path, pairs: list[tuple[str, str]]) -> dict[str, float]:
    """BLEU by method, and by length with the beam."""
    model, figures = t5x_lite.load(folder), {}
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    for name, options in (("greedy", {}), ("beam 4", {"num_beams": 4, "alpha": 0.6})):
        written = model.generate(sources, max_length=64, **options)
        figures[name] = sacrebleu.corpus_bleu(written, [targets]).score
    words = np.array([len(source.split()) for source in sources])
    for low, high in BUCKETS:
        kept = np.flatnonzero((low <= words) & (words <= high))
        part = [written[n] for n in kept], [[targets[n] for n in kept]]
        figures[f"{low} to {high}"] = sacrebleu.corpus_bleu(*part).score
    return figures


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--pairs", "--dev", "--test"):
        parser.add_argument(name, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, for each model and seed")
    parser.add_argument("--seeds", type=int, default=2, help="one gives no deviation")
    parser.add_argument("--out", default="runs/translation", help="a folder for the runs and their scores")
    arguments = parser.parse_args()
    out, pairs = Path(arguments.out), read_pairs(arguments.test)
    out.mkdir(parents=True, exist_ok=True)
    sizes = equal_in_size()
    make = lambda name, seed, steps: experiment(sizes[name], arguments.pairs, arguments.dev, seed, steps)  # noqa: E731
    times = out / "step_seconds.json"
    if not times.exists():
        seconds = step_seconds([make(name, 0, 10_000) for name in sizes])
        times.write_text(json.dumps(dict(zip(sizes, seconds, strict=True))))
    seconds = json.loads(times.read_text())
    steps = {name: round(60 * arguments.minutes / seconds[name]) for name in sizes}
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        for name in sizes:
            folder = out / f"{name}-{seed}"
            file = folder / "bleu.json"
            if not file.exists():
                with open(os.devnull, "w") as nowhere:
                    if not train(make(name, seed, steps[name]), folder, Console(file=nowhere)):
                        raise SystemExit("stopped before the end of a run; the same command goes on from there")
                file.write_text(json.dumps(scores(folder, pairs)))
            found.setdefault(name, []).append(json.loads(file.read_text()))
            print(json.dumps({"model": name, "seed": seed, "steps": steps[name]} | found[name][-1]), flush=True)

    words = np.array([len(source.split()) for source, _ in pairs])
    counts = [int(((low <= words) & (words <= high)).sum()) for low, high in BUCKETS]
    of_lengths = [f"{low} to {high} words ({count})" for (low, high), count in zip(BUCKETS, counts, strict=True)]
    title = f"BLEU of {len(pairs)} pairs after {arguments.minutes:g} minutes, {arguments.seeds} seeds"
    table = Table("model", "parameters", "ms a step", "steps", "greedy", "beam 4", *of_lengths, title=title)
    for name, rows in found.items():
        columns = [[row[column] for row in rows] for column in rows[0]]
        facts = (f"{num_params(sizes[name]):,}", f"{1000 * seconds[name]:.0f}", f"{steps[name]:,}")
        table.add_row(name, *facts, *(mean_and_deviation(column, ".1f") for column in columns))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
