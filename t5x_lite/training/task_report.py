"""What `evaluate` finds out about a task: figures with their intervals, and the answers as files."""

import json
from typing import Any

from etils import epath

from t5x_lite.parallel import hosts
from t5x_lite.runs.files import local_or_bucket, write_atomically
from t5x_lite.tasks.benchmarks import task_of
from t5x_lite.tasks.scores import default_metrics, score_answers, score_intervals
from t5x_lite.tasks.submissions import Submission, submission_files, submission_of
from t5x_lite.training.held_out import Evaluator


def task_figures(
    held_out: Evaluator, params: Any, *, folder: str = "", submission: Submission | None = None
) -> dict[str, Any]:
    """All figures of the held-out examples, and under `intervals` the bootstrap's 95 % interval of each score; none at
    all where the labels are not known.

    Into a folder, where one is given, go the answers in the format of a benchmark, and `scores.json`.
    """
    program, source = held_out.program, held_out.program.experiment.data.source
    answers = held_out.task_answers(params)
    figures: dict[str, Any] = {}
    if source.has_answers:
        model, objective = program.experiment.model, program.objective
        metrics = held_out.settings.task_metrics or default_metrics(answers, objective, model.num_classes)
        figures = held_out.loss_figures(params) | score_answers(answers, metrics)
        figures |= {"constant_loss": held_out.baseline_loss, "intervals": score_intervals(answers, metrics)}
    if folder and hosts.is_first():
        form = submission_of(program.objective, source, submission)
        documents = held_out.documents()
        files = submission_files(form, answers, documents, source.classes, task_of(getattr(source, "examples", None)))
        if figures:
            files["scores.json"] = json.dumps(figures, indent=2) + "\n"
        target: epath.Path = local_or_bucket(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomically(target / name, content)
    return figures
