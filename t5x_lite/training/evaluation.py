"""Figures on held-out text."""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from t5x_lite.data import Vocabulary, evaluation_batches
from t5x_lite.objectives import Objective, corrupt_rows
from t5x_lite.parallel import batch_sharding, replicated
from t5x_lite.parallel.batch_rows import BatchRows, place_copies
from t5x_lite.training.step import Program

Rows = Any
"""A random-access sequence of rows of raw ids."""


def evaluate(program: Program, params: Any, rows: Rows, *, max_rows: int) -> dict[str, float]:
    """Loss (nats), token accuracy and perplexity over the first `max_rows` rows, each corrupted in one fixed way."""
    batch_size = program.experiment.batch_size // program.experiment.accumulation
    here = BatchRows(batch_sharding(program.mesh), batch_size)
    sums: dict[str, np.ndarray] = {}
    for index, (raw, valid) in enumerate(evaluation_batches(rows, batch_size, max_rows, local=here.numbers.tolist())):
        first_row = place_copies(np.int32(index * batch_size), replicated(program.mesh))
        metrics = program.eval_step(params, here.place(raw), here.place(valid), first_row)
        for name, mean in jax.device_get(metrics).items():
            sums[name] = sums.get(name, 0.0) + np.array(mean, np.float64)
    means = {name: float(value / max(weight, 1e-9)) for name, (value, weight) in sums.items()}
    return means | {"perplexity": math.exp(min(means["loss"], 700.0)), "tokens": float(sums["loss"][1])}


def held_out_features(objective: Objective, rows: Rows, max_rows: int) -> dict[str, np.ndarray]:
    """The features that `evaluate` asks about, row by row."""
    raw = np.stack([rows[index] for index in range(min(max_rows, len(rows)))])
    features = jax.jit(lambda raw: corrupt_rows(objective, jax.random.key(0), raw))(raw)
    return jax.device_get(features)


def unigram_loss(targets: Int[np.ndarray, "B L"], vocabulary: Vocabulary) -> float:
    """Nats a token of the best model of these targets that ignores context: the entropy of their frequencies.

    >>> unigram_loss(np.array([[7, 7, 8, 8, 0]]), Vocabulary(size=10)) == math.log(2)
    True
    """
    _, counts = np.unique(targets[targets != vocabulary.pad_id], return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
