"""Transformer-XL's perplexity by the length of its memory in evaluation (Dai et al. 2019, table 1 and figure 1).

    python benchmarks/memory.py --train wikitext2/valid.txt --test wikitext2/test.txt [--steps 1500] [--seeds 2]

A small Transformer-XL is trained with segments of 64 tokens and a memory of 64, another with one of 256, and each is
evaluated on other text with more and less of it, each token seeing as many (`same_length`) where there is any. Beside
them a model that never had a memory, and a GPT of its size, whose rows are as long as a segment. Prints perplexities by
token, mean and standard deviation over the seeds. A run that was cut short goes on with the same --out.
"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from turns import mean_and_deviation

import t5x_lite
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import ByteLevelBPE, Data, TextFiles
from t5x_lite.evaluation.evaluator import held_out_of
from t5x_lite.models import GptConfig, TransformerXLConfig
from t5x_lite.objectives import CausalLanguageModel, SegmentLanguageModel
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.loop import train
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.step import Program

SEGMENT, VOCABULARY = 64, 2048
SIZE = {"vocab_size": VOCABULARY, "embed_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2}
MEMORIES = (0, 16, 32, 64, 128, 256, 512)


def experiments(arguments: argparse.Namespace, seed: int) -> dict[str, Experiment]:
    """Runs by name."""
    xl = TransformerXLConfig(**SIZE, cutoffs=(), dropout_rate=0.1, shared_biases=False)
    dropout = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "embedding_dropout_rate"), 0.1)
    base = Experiment(
        model=xl,
        objective=SegmentLanguageModel(SEGMENT),
        data=Data(
            TextFiles((arguments.train,)), ByteLevelBPE(VOCABULARY), held_out_source=TextFiles((arguments.test,))
        ),
        optimizer=Adam(CosineDecay(1e-3, 100, arguments.steps + 1), clip_norm=0.25, b2=0.999, eps=1e-8),
        steps=arguments.steps,
        batch_size=16,
        seed=seed,
        evaluation=Evaluation(every=0, rows=100_000),
        checkpoints=Checkpointing(every=200, keep_last=1),
        logging=Logging(every=100),
    )
    objectives = {n: SegmentLanguageModel(SEGMENT, memory_length=n) for n in (SEGMENT, 4 * SEGMENT, 0)}
    return {
        **{f"Transformer-XL, memory of {n}": replace(base, objective=one) for n, one in objectives.items()},
        "GPT": replace(
            base,
            model=GptConfig(**SIZE, max_length=SEGMENT, norm_first=False, **dropout),
            objective=CausalLanguageModel(SEGMENT),
        ),
    }


def perplexity(experiment: Experiment, params: Any, tokenizer: Any, memory: int | None) -> float:
    """On the test text, with this memory."""
    if memory is not None:
        objective = replace(experiment.objective, evaluation_memory_length=memory, same_length=memory > 0)
        experiment = replace(experiment, objective=objective)
    objective = experiment.objective.for_vocabulary(tokenizer.vocabulary)
    with experiment.data.prepare(objective.layout, tokenizer=tokenizer) as store:
        program = Program(experiment, objective, make_mesh(MeshShape()))
        return held_out_of(program, store).loss_figures(params)["perplexity"]


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2, help="one gives no deviation")
    parser.add_argument("--out", default="runs/memory", help="a folder for the runs and their figures")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        for name, experiment in experiments(arguments, seed).items():
            folder = Path(arguments.out) / f"{name.replace(',', '').replace(' ', '_')}-{seed}"
            file = folder / "perplexity.json"
            if not file.exists():
                with open(os.devnull, "w") as nowhere:
                    if not train(experiment, folder, Console(file=nowhere)):
                        raise SystemExit("stopped before the end of a run; the same command goes on from there")
                model, has_memory = t5x_lite.load(folder), bool(getattr(experiment.objective, "memory_length", 0))
                measured = {
                    memory: perplexity(experiment, model.params, model.tokenizer, memory if has_memory else None)
                    for memory in (MEMORIES if has_memory else (0,))
                }
                file.write_text(json.dumps(measured))
            found.setdefault(name, []).append(json.loads(file.read_text()))
            print(json.dumps({"seed": seed, "model": name} | found[name][-1]), flush=True)

    table = Table("model", *map(str, MEMORIES), title=f"perplexity by memory, {arguments.seeds} seeds")
    for name, rows in found.items():
        columns = [[row[memory] for row in rows] for memory in rows[0]]
        table.add_row(name, *(mean_and_deviation(column, ".1f") for column in columns))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
