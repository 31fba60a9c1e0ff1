"""Which task of a benchmark some examples are of, and so how its files of predictions are to be written."""

from typing import Any

from t5x_lite.data.records.tfds import datasets_in
from t5x_lite.tasks import glue, super_glue
from t5x_lite.tasks.task import Task

_TASKS = (*glue.GLUE, glue.MNLI_MISMATCHED, *super_glue.SUPER_GLUE)


def task_of(examples: Any) -> Task | None:
    """The task of GLUE or SuperGLUE whose dataset of TensorFlow Datasets the examples are; None where they are others.

    >>> from t5x_lite.data import TfdsExamples
    >>> task_of(TfdsExamples("glue/mnli", "test_mismatched")).submission, task_of(TfdsExamples("snli"))
    ('MNLI-mm.tsv', None)
    """
    found = {(one.name.partition(":")[0], one.split) for one in datasets_in(examples)}
    names = {name for name, _ in found}
    tasks = [task for task in _TASKS if names == {one.name for one in datasets_in(task.train)}]
    # Two tasks may share a dataset, and differ by the split that they are evaluated on.
    of_split = [
        task for task in tasks if found in ({(s.name, s.split) for s in datasets_in(e)} for e in _held_out(task))
    ]
    return next(iter(of_split or tasks), None)


def _held_out(task: Task) -> tuple[Any, Any]:
    return task.dev, task.test
