"""The reports of `evaluate`: figures with their intervals, and predictions as files."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from t5x_lite.data import Record, TagTemplate, TextToText, Tokenizer
from t5x_lite.data.records.base import field_of
from t5x_lite.data.tasks.tagging import TaggedSentence
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.evaluation.figures import held_out_figures, held_out_intervals
from t5x_lite.evaluation.predictions import BatchGenerator, EvalPrompt
from t5x_lite.evaluation.submissions import (
    Submission,
    count_unread,
    read_texts,
    submission_files,
    submission_of,
    task_of,
)
from t5x_lite.files import local_or_bucket, write_atomically
from t5x_lite.metrics import Metric
from t5x_lite.metrics.scores import Scores, metrics_of, score
from t5x_lite.objectives import Predictions
from t5x_lite.parallel import hosts

Report = tuple[dict[str, Any], Mapping[str, Metric]]
"""All figures, with the baseline, signatures and intervals, and the metrics by figure."""


def text_report(
    held_out: Evaluator | MixtureEvaluator, params: Any, *, folder: str = "", submission: Submission | None = None
) -> Report:
    """All held-out figures.

    Writes the answers into a folder, where one is given (`predictions.jsonl`, of a mixture a file for each part by its
    name, of a task the files of another submission if that is given), and `scores.json` with the bootstrap's 95 %
    intervals. Raises `InputError` for a folder without answers.
    """
    parts = {name: part for name, part in held_out.parts.items() if part.metrics}
    if folder and not parts:
        raise InputError(f"--out={folder} is for answers, and no metric needs answers; give --metrics")
    source = held_out.program.experiment.data.held_out_source
    if submission not in (None, "jsonl") and not isinstance(source, TextToText):
        raise InputError(
            f"submission={submission!r} is for the examples of one task, which are held out as a whole; give "
            "--examples or --split"
        )
    of_parts = {name: part.evaluate(params) for name, part in held_out.parts.items()}
    scores = held_out.mean(of_parts)
    figures = held_out_figures(held_out, scores)
    if not folder:
        return figures, scores.metrics
    texts = {name: of_parts[name].predictions.predicted for name in parts}
    intervals = held_out_intervals({name: of_parts[name] for name in parts})
    figures |= {"intervals": intervals} if intervals else {}
    if submission in (None, "jsonl"):
        files = {
            f"{name or 'predictions'}.jsonl": _json_lines(part.tokenizer, part.questions, texts[name])
            for name, part in parts.items()
        }
    else:
        examples = [example for example, _ in itertools.islice(source.eval_records(), len(texts[""]))]
        files = _submitted(submission, source, examples, read_texts(source.prompt, examples, texts[""], labeled=True))
    _write(folder, files, figures)
    return figures, scores.metrics


def task_report(
    held_out: Evaluator | MixtureEvaluator, params: Any, *, folder: str = "", submission: Submission | None = None
) -> Report:
    """All figures of the held-out examples, and under `intervals` the bootstrap's 95 % interval of each score; none
    where the labels are unknown.

    Writes the predictions in the format of a benchmark into a folder, where one is given, of a mixture a file for each
    part by its name, and `scores.json`.
    """
    objective, source = held_out.program.objective, held_out.program.experiment.data.source
    predictions = {name: part.predictions(params) for name, part in held_out.parts.items()}
    scores, figures = Scores({}), {}
    if source.has_answers:
        of_parts = {}
        for name, part in held_out.parts.items():
            metrics = part.metrics or metrics_of(objective.default_metrics(predictions[name]))
            scored = score(predictions[name], metrics)
            of_parts[name] = replace(scored, figures=part.loss_figures(params) | scored.figures)
        scores = held_out.mean(of_parts)
        figures = held_out_figures(held_out, scores) | {"intervals": held_out_intervals(of_parts)}
    if folder:
        form, task = submission_of(objective, source, submission), task_of(getattr(source, "examples", None))
        files = {}
        for name, part in held_out.parts.items():
            of_part = submission_files(form, predictions[name], part.documents(), part.words_of_classes, task)
            files |= {f"{name}.jsonl": content for content in of_part.values()} if name else of_part
        _write(folder, files, figures)
    return figures, scores.metrics


def write_predictions(
    generator: BatchGenerator, params: Any, source: TextToText, folder: str, submission: Submission
) -> str:
    """Writes the answers to the questions of an unlabeled source; returns a remark on those without a class, or ""."""
    texts = generator.answers(params)
    if submission == "jsonl":
        _write(folder, {"predictions.jsonl": _json_lines(generator.tokenizer, generator.questions, texts)})
        return ""
    examples = [example for example, _ in source.eval_records(unlabeled=True)]
    predictions = read_texts(source.prompt, examples, texts, labeled=False)
    _write(folder, _submitted(submission, source, examples, predictions))
    unread = count_unread(predictions)
    return f"{unread:,} of {len(texts):,} answers are no class's word and stand as the first class" if unread else ""


def _submitted(
    submission: Submission, source: TextToText, examples: Sequence[Record], predictions: Predictions
) -> dict[str, str]:
    """The files of a benchmark for the first examples of a source."""
    prompt, documents = source.prompt, examples
    if isinstance(prompt, TagTemplate):
        documents = [TaggedSentence(tuple(field_of(one, prompt.tokens, "tokens")), ()) for one in examples]
    labels = getattr(prompt, "labels", prompt.answers)
    return submission_files(submission, predictions, documents, labels, task_of(source.examples))


def _write(folder: str, files: dict[str, str], figures: Mapping[str, Any] | None = None) -> None:
    """Writes the files, and figures as `scores.json`; only the first process does."""
    if not hosts.is_first():
        return
    target = local_or_bucket(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in (files | ({"scores.json": json.dumps(figures, indent=2) + "\n"} if figures else {})).items():
        write_atomically(target / name, content)


def _json_lines(tokenizer: Tokenizer, questions: Sequence[EvalPrompt], texts: Sequence[str]) -> str:
    """An object a line: the input, the answer, and every correct text, where they are known."""
    records = (
        {"input": tokenizer.decode(list(question.ids)), "prediction": text}
        | ({"references": list(question.right)} if question.right else {})
        for question, text in zip(questions, texts, strict=True)
    )
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
