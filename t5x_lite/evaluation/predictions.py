"""The loss and the predictions of a model over held-out rows, its parameters on the devices of the run."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from t5x_lite.data import Tokenizer, evaluation_batches
from t5x_lite.data.stored_rows import stack
from t5x_lite.evaluation.answers import Answers, read_answers
from t5x_lite.objectives import Objective, Row, corrupt_rows
from t5x_lite.parallel import batch_sharding, replicated, use_mesh
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
    asked = {f"{program.objective.unit}s": float(sums["loss"][1])}
    if program.objective.unit == "token":
        asked = {"perplexity": math.exp(min(means["loss"], 700.0))} | asked
    return means | asked


def held_out_features(objective: Objective, rows: Rows, max_rows: int) -> dict[str, np.ndarray]:
    """The features that `evaluate` asks about, row by row."""
    batch = stack([rows[index] for index in range(min(max_rows, len(rows)))])
    features = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(0), batch))(batch)
    return jax.device_get(features)


class BatchPredictor:
    """Held-out rows of one run, answered in batches of one shape.

    Args:
      program: the experiment on its mesh.
      tokenizer: that of the rows.
      rows: of the store; the first `experiment.evaluation.rows` of them are asked about.
      documents: reads the examples that the rows were made of, in their order.
    """

    def __init__(self, program: Program, tokenizer: Tokenizer, rows: Rows, documents: Callable[[], Iterator[Any]]):
        self._program, self._tokenizer, self._rows, self._documents = program, tokenizer, rows, documents
        experiment, mesh = program.experiment, program.mesh
        self._batch_size = experiment.batch_size // experiment.accumulation
        objective = program.objective

        def ask(params: Any, batch: Row) -> Any:
            with use_mesh(mesh):
                features = corrupt_rows(objective, jax.random.key(0), batch)
                return objective.prediction_outputs(program.module, params, features), features

        in_shardings = (program.state_shardings.params, batch_sharding(mesh))
        self._ask = jax.jit(ask, in_shardings=in_shardings, out_shardings=replicated(mesh))

    def answers(self, params: Any) -> Answers:
        """What the model with these parameters answers."""
        limit, size = self._program.experiment.evaluation.rows, self._batch_size
        here = BatchRows(batch_sharding(self._program.mesh), size)
        said = []
        for batch, _ in evaluation_batches(self._rows, size, limit, local=here.numbers.tolist()):
            said.append(jax.device_get(self._ask(params, here.to_devices(batch))))
        # The last batch is filled up.
        count = min(limit, len(self._rows))
        prediction_outputs, features = jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *said)
        if count < len(self._rows) and "example" in features:
            # Of the last example more rows may follow, which were not asked about.
            whole = features["example"] != features["example"][-1]
            prediction_outputs, features = jax.tree.map(lambda part: part[whole], (prediction_outputs, features))
        labels = self._program.experiment.data.source.classes
        return read_answers(
            self._program.objective, prediction_outputs, features, self._documents(), self._tokenizer, labels
        )
