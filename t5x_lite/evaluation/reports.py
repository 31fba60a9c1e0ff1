"""What `evaluate` reports: figures with their intervals, and predictions as files."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_lite.data import Record, TagTemplate, TextToText, Tokenizer
from t5x_lite.data.records.base import field_of
from t5x_lite.data.tasks.tagging import TaggedSentence
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.evaluation.figures import held_out_figures
from t5x_lite.evaluation.generation import BatchGenerator, EvalPrompt
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
from t5x_lite.metrics.scores import Scores, metrics_of, score, score_intervals
from t5x_lite.parallel import hosts

Report = tuple[dict[str, Any], Mapping[str, Metric]]
"""All figures, with the baseline, signatures and intervals, and the metrics that some are of."""


def text_report(
    held_out: Evaluator | MixtureEvaluator, params: Any, *, folder: str = "", submission: Submission | None = None
) -> Report:
    """All held-out figures.

    Into a folder, where one is given, go what was written (`predictions.jsonl`; of a mixture a file for each part, by
    its name; of a task the files of another submission that is asked for) and `scores.json`, with the bootstrap's 95 %
    intervals. Raises `InputError` where a folder is given and nothing is written.
    """
    parts = held_out.parts if isinstance(held_out, MixtureEvaluator) else {"": held_out}
    if folder and not any(part.metrics for part in parts.values()):
        raise InputError(f"--out={folder} is for answers, and nothing is asked for that has some; give --metrics")
    source = held_out.program.experiment.data.held_out_source
    if submission not in (None, "jsonl") and not isinstance(source, TextToText):
        raise InputError(
            f"submission={submission!r} is for the examples of one task, which are held out as a whole; give "
            "--examples or --split"
        )
    of_parts = {name: part.evaluate(params) for name, part in parts.items()}
    scores = held_out.mean(of_parts) if isinstance(held_out, MixtureEvaluator) else of_parts[""]
    figures = held_out_figures(held_out, scores)
    if not folder:
        return figures, scores.metrics
    intervals = {
        f"{name}/{figure}" if name else figure: ends
        for name, part in parts.items()
        if part.metrics
        for figure, ends in score_intervals(of_parts[name].predictions, part.metrics).items()
    }
    figures |= {"intervals": intervals} if intervals else {}
    if hosts.is_first():
        if submission in (None, "jsonl"):
            files = {
                f"{name or 'predictions'}.jsonl": _lines(part.tokenizer, part.questions, _texts(of_parts[name]))
                for name, part in parts.items()
                if part.metrics
            }
        else:
            texts = _texts(scores)
            examples = [example for example, _ in itertools.islice(source.eval_records(), len(texts))]
            files = _submitted(submission, source, examples, texts)
        _write(folder, files | {"scores.json": json.dumps(figures, indent=2) + "\n"})
    return figures, scores.metrics


def task_report(held_out: Evaluator, params: Any, *, folder: str = "", submission: Submission | None = None) -> Report:
    """All figures of the held-out examples, and under `intervals` the bootstrap's 95 % interval of each score; none at
    all where the labels are not known.

    Into a folder, where one is given, go the predictions in the format of a benchmark, and `scores.json`.
    """
    objective, source = held_out.program.objective, held_out.program.experiment.data.source
    predictions, scores, figures = held_out.predictions(params), Scores({}), {}
    if source.has_answers:
        metrics = held_out.metrics or metrics_of(objective.default_metrics(predictions))
        scores = score(predictions, metrics)
        figures = held_out_figures(held_out, Scores(held_out.loss_figures(params) | scores.figures, scores.metrics))
        figures |= {"intervals": score_intervals(predictions, metrics)}
    if folder and hosts.is_first():
        form, task = submission_of(objective, source, submission), task_of(getattr(source, "examples", None))
        files = submission_files(form, predictions, held_out.documents(), source.classes, task)
        _write(folder, files | ({"scores.json": json.dumps(figures, indent=2) + "\n"} if figures else {}))
    return figures, scores.metrics


def write_predictions(
    generator: BatchGenerator, params: Any, source: TextToText, folder: str, submission: Submission
) -> str:
    """Writes what the model answers to unlabeled examples; gives a remark on answers that are none, or an empty text.

    Args:
      generator: has the questions that the source asks, all of them.
      params: those of the model.
      source: the examples in words.
      folder: where the files go.
      submission: their format.
    """
    texts = generator.answers(params)
    if not hosts.is_first():
        return ""
    if submission == "jsonl":
        _write(folder, {"predictions.jsonl": _lines(generator.tokenizer, generator.questions, texts)})
        return ""
    examples = [example for example, _ in source.eval_records(unlabeled=True)]
    _write(folder, _submitted(submission, source, examples, texts, labeled=False))
    unread = count_unread(read_texts(source.prompt, examples, texts, labeled=False))
    return f"{unread:,} of {len(texts):,} answers are no class's word and stand as the first class" if unread else ""


def _submitted(
    submission: Submission,
    source: TextToText,
    examples: Sequence[Record],
    texts: Sequence[str],
    *,
    labeled: bool = True,
) -> dict[str, str]:
    """The files of a benchmark for the first examples of a source, to which the texts were written."""
    prompt, documents = source.prompt, examples
    if isinstance(prompt, TagTemplate):
        tokens = [tuple(field_of(one, prompt.tokens, "tokens")) for one in examples]
        documents = [TaggedSentence(one.location, words, ()) for one, words in zip(examples, tokens, strict=True)]
    labels = getattr(prompt, "labels", prompt.answers)
    predictions = read_texts(prompt, examples, texts, labeled=labeled)
    return submission_files(submission, predictions, documents, labels, task_of(source.examples))


def _texts(scores: Scores) -> Sequence[str]:
    return scores.predictions.predicted


def _write(folder: str, files: dict[str, str]) -> None:
    target = local_or_bucket(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(target / name, content)


def _lines(tokenizer: Tokenizer, questions: Sequence[EvalPrompt], texts: Sequence[str]) -> str:
    """An object a line: the input, what was written, and every text that is right, where that is known."""
    records = (
        {"input": tokenizer.decode(list(question.ids)), "prediction": text}
        | ({"references": list(question.right)} if question.right else {})
        for question, text in zip(questions, texts, strict=True)
    )
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
