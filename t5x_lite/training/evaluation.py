"""Figures on held-out text."""

import math
from typing import Any

import jax
import numpy as np

from t5x_lite.data import evaluation_batches
from t5x_lite.data.stored_rows import stack
from t5x_lite.objectives import Objective, corrupt_rows
from t5x_lite.parallel import batch_sharding, replicated
from t5x_lite.parallel.sharding import BatchRows, place_copies
from t5x_lite.training.step import Program

Rows = Any
"""A random-access sequence of rows."""


def evaluate(program: Program, params: Any, rows: Rows, *, max_rows: int) -> dict[str, float]:
    """Loss and what else the objective measures over the first `max_rows` rows, each corrupted in one fixed way.

    Of tokens, loss and accuracy come with the perplexity and the number of `tokens`; of tasks with that of `examples`.
    """
    batch_size = program.experiment.batch_size // program.experiment.accumulation
    here = BatchRows(batch_sharding(program.mesh), batch_size)
    sums: dict[str, np.ndarray] = {}
    for index, (batch, valid) in enumerate(evaluation_batches(rows, batch_size, max_rows, local=here.numbers.tolist())):
        first_row = place_copies(np.int32(index * batch_size), replicated(program.mesh))
        metrics = program.eval_step(params, here.place(batch), here.place(valid), first_row)
        for name, mean in jax.device_get(metrics).items():
            sums[name] = sums.get(name, 0.0) + np.array(mean, np.float64)
    means = {name: float(value / max(weight, 1e-9)) for name, (value, weight) in sums.items()}
    asked = {f"{program.objective.unit}s": float(sums["loss"][1])}
    if program.objective.unit == "token":
        asked = {"perplexity": math.exp(min(means["loss"], 700.0))} | asked
    return means | asked


def held_out_features(objective: Objective, rows: Rows, max_rows: int) -> dict[str, np.ndarray]:
    """The features that `evaluate` asks about, row by row."""
    batch = stack([rows[index] for index in range(min(max_rows, len(rows)))])
    features = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(0), batch))(batch)
    return jax.device_get(features)
