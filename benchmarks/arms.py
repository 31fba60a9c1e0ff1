"""What studies share that train the same task in several ways with several seeds: their runs and their figures."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from t5x_lite.cli.arguments import with_examples
from t5x_lite.evaluation.evaluator import Evaluator
from t5x_lite.metrics import bootstrap
from t5x_lite.metrics.scores import METRICS
from t5x_lite.objectives import Predictions
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.loop import train
from t5x_lite.runs.open_model import open_checkpoint, tokenizer_from_files
from t5x_lite.training import Experiment
from t5x_lite.training.step import Program


def finished(experiment: Experiment, workdir: Path) -> Path:
    """The folder of a run that came to its end, now or before."""
    if not (workdir / "held_out.json").exists():
        with open(os.devnull, "w") as nowhere:
            train(experiment, workdir, Console(file=nowhere))
    if not (workdir / "held_out.json").exists():
        sys.exit(f"{workdir} was stopped; the same command goes on with it")
    return workdir


def predictions_of(workdir: Path, test_files: tuple[str, ...] = ()) -> Predictions:
    """What a run predicts for its held-out examples, or for those of other files."""
    checkpoint = open_checkpoint(workdir)
    experiment = replace(checkpoint.experiment, mesh=MeshShape())
    if test_files:
        experiment = with_examples(experiment, test_files)
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    store = experiment.data.prepare(experiment.objective.layout, tokenizer=tokenizer)
    objective = experiment.objective.for_vocabulary(tokenizer.vocabulary) if tokenizer else experiment.objective
    program = Program(experiment, objective, make_mesh(MeshShape(), jax.local_devices()[:1]))
    params = jax.device_put(checkpoint.params, program.state_shardings.params)
    return Evaluator(program, tokenizer, store.held_out, documents=store.held_out_documents).predictions(params)


class SeedScores:
    """A figure of the runs of one arm, by seed, in hundredths, over all test examples or some of them."""

    def __init__(self, metric: str, figure: str, predictions: list[Predictions]):
        ratios = [METRICS[metric].ratios(one)[figure] for one in predictions]
        self._parts = [np.stack(np.broadcast_arrays(*pair)).astype(float) for pair in ratios]
        self._scale = 1.0 if METRICS[metric].scale == "percent" else 100.0
        self.count = self._parts[0].shape[1]

    def of(self, seed: int, some: np.ndarray | slice = slice(None)) -> float:
        top, below = self._parts[seed][:, some].sum(axis=1)
        return self._scale * float(top / max(below, 1e-9))

    @property
    def all(self) -> list[float]:
        return [self.of(seed) for seed in range(len(self._parts))]


def mean_and_interval(scores: SeedScores, base: SeedScores | None = None) -> tuple[float, tuple[float, float]]:
    """The mean over the seeds, or that of the differences from another arm with the same seeds, and its 95 % interval:
    the bootstrap's, over seeds and over examples."""
    seeds, random = len(scores.all), np.random.default_rng(0)

    def mean(drawn: np.ndarray, some: np.ndarray | slice) -> float:
        return float(np.mean([scores.of(seed, some) - (base.of(seed, some) if base else 0.0) for seed in drawn]))

    interval = bootstrap(lambda some: {"mean": mean(random.integers(0, seeds, seeds), some)}, scores.count)["mean"]
    return mean(np.arange(seeds), slice(None)), interval
