"""The loss, the predictions and samples of a model over held-out rows, its parameters on the devices of the run."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from t5x_lite.data import Tokenizer, TokenStore, evaluation_batches
from t5x_lite.data.stored_rows import stack
from t5x_lite.objectives import Objective, Predictions, Row, corrupt_rows
from t5x_lite.parallel import batch_sharding, num_parts, replicated, use_mesh
from t5x_lite.parallel.mesh import BatchRows, to_devices
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
        first_row = to_devices(np.int32(index * batch_size), replicated(program.mesh))
        metrics = program.eval_step(params, here.to_devices(batch), here.to_devices(valid), first_row)
        for name, mean in jax.device_get(metrics).items():
            sums[name] = sums.get(name, 0.0) + np.array(mean, np.float64)
    means = {name: float(value / max(weight, 1e-9)) for name, (value, weight) in sums.items()}
    counts = {f"{program.objective.unit}s": float(sums["loss"][1])}
    if program.objective.unit == "token":
        counts = {"perplexity": math.exp(min(means["loss"], 700.0))} | counts
    return means | counts


def held_out_features(objective: Objective, rows: Rows, max_rows: int) -> dict[str, np.ndarray]:
    """The features that `evaluate` asks about, row by row."""
    batch = stack([rows[index] for index in range(min(max_rows, len(rows)))])
    features = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(0), batch))(batch)
    return jax.device_get(features)


class BatchPredictor:
    """Predictions for the held-out rows of one run, in batches of one shape.

    Args:
      program: the experiment on its mesh.
      tokenizer: that of the rows.
      rows: of the store; the first `experiment.evaluation.rows` of them are read.
      documents: reads the examples that the rows were made of, in their order.
    """

    def __init__(self, program: Program, tokenizer: Tokenizer, rows: Rows, documents: Callable[[], Iterator[Any]]):
        self._program, self._tokenizer, self._rows, self._documents = program, tokenizer, rows, documents
        experiment, mesh = program.experiment, program.mesh
        self._batch_size = experiment.batch_size // experiment.accumulation
        objective = program.objective

        def predict(params: Any, batch: Row) -> Any:
            with use_mesh(mesh):
                features = corrupt_rows(objective, jax.random.key(0), batch)
                return objective.prediction_outputs(program.module, params, features), features

        in_shardings = (program.state_shardings.params, batch_sharding(mesh))
        self._predict = jax.jit(predict, in_shardings=in_shardings, out_shardings=replicated(mesh))

    def predictions(self, params: Any) -> Predictions:
        """What the model with these parameters predicts."""
        limit, size = self._program.experiment.evaluation.rows, self._batch_size
        here = BatchRows(batch_sharding(self._program.mesh), size)
        parts = []
        for batch, _ in evaluation_batches(self._rows, size, limit, local=here.numbers.tolist()):
            parts.append(jax.device_get(self._predict(params, here.to_devices(batch))))
        # The last batch is filled up.
        count = min(limit, len(self._rows))
        outputs, features = jax.tree.map(lambda *some: np.concatenate(some)[:count], *parts)
        if count < len(self._rows) and "example" in features:
            # Of the last example more rows may follow, which were not read.
            complete = features["example"] != features["example"][-1]
            outputs, features = jax.tree.map(lambda part: part[complete], (outputs, features))
        objective, labels = self._program.objective, self._program.experiment.data.source.classes
        return objective.predictions(outputs, features, self._documents(), self._tokenizer, labels)


def fill_ins(program: Program, params: Any, store: TokenStore, num_rows: int = 5) -> str:
    """Held-out rows as the model sees them, what was there, and what it answers: see `Objective.format_sample`."""
    objective, tokenizer = program.objective, store.tokenizer
    features = held_out_features(objective, store.held_out, num_rows)
    samples = {name: value[:num_rows] for name, value in _samples(program, params, features).items()}
    name = "row" if tokenizer and objective.unit == "token" else "example"
    labels = getattr(program.experiment.data.source, "classes", None)
    blocks = []
    for number in range(len(next(iter(samples.values())))):
        row = {column: np.asarray(value[number]) for column, value in samples.items()}
        text = objective.format_sample(row, tokenizer, labels) if tokenizer else _ranges(row)
        blocks.append(f"--- held-out {name} {number}\n{text}")
    return "\n".join(blocks)


def _ranges(row: dict[str, np.ndarray]) -> str:
    """Arrays by shape and range, single numbers as they are."""

    def one(value: np.ndarray) -> str:
        return (
            f"{value.dtype}{list(value.shape)} from {value.min():g} to {value.max():g}" if value.ndim else f"{value:g}"
        )

    return "".join(f"{name + ':':<8} {one(value)}\n" for name, value in row.items())


def _samples(program: Program, params: Any, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the model says to features, and some rows more: on the run's own devices, one of which could not hold it."""
    batch = batch_sharding(program.mesh)
    share = num_parts("activation_batch", program.mesh.shape)
    count = len(next(iter(features.values())))
    rows = BatchRows(batch, -(-count // share) * share)

    def samples(params: Any, features: Any) -> Any:
        with use_mesh(program.mesh):
            return program.objective.samples(program.module, params, features)

    run = jax.jit(samples, in_shardings=(program.state_shardings.params, batch), out_shardings=replicated(program.mesh))
    # Filled up with the last row.
    batch_rows = rows.to_devices({name: value[np.minimum(rows.numbers, count - 1)] for name, value in features.items()})
    return jax.device_get(run(params, batch_rows))
