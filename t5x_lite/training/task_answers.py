"""What a model answers to the held-out examples of a task, its parameters lying on the devices of the run."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from t5x_lite.data import Tokenizer, evaluation_batches
from t5x_lite.objectives import Row, corrupt_rows
from t5x_lite.parallel import batch_sharding, replicated, use_mesh
from t5x_lite.parallel.sharding import BatchRows
from t5x_lite.tasks.answers import Answers, read_answers
from t5x_lite.training.evaluation import Rows
from t5x_lite.training.step import Program


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
            said.append(jax.device_get(self._ask(params, here.place(batch))))
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
