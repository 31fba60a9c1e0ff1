"""What `evaluate` reports: figures with their intervals, and predictions as files."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from etils import epath

from t5x_lite.data import Record, TagTemplate, TextToText, Tokenizer
from t5x_lite.data.records.base import field_of
from t5x_lite.data.tasks.tagging import TaggedSentence
from t5x_lite.errors import InputError
from t5x_lite.evaluation.answer_metrics import Written
from t5x_lite.evaluation.answers import count_unread, read_texts
from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.evaluation.figures import figures_of
from t5x_lite.evaluation.generation import BatchGenerator, EvalPrompt
from t5x_lite.evaluation.scores import default_metrics, score_answers, score_intervals
from t5x_lite.evaluation.submissions import Submission, submission_files, submission_of, task_of
from t5x_lite.evaluation.text_intervals import text_intervals
from t5x_lite.evaluation.text_metrics import Scores
from t5x_lite.files import local_or_bucket, write_atomically
from t5x_lite.parallel import hosts
from t5x_lite.tasks.task import Task


def text_figures(
    held_out: Evaluator | MixtureEvaluator, params: Any, *, folder: str = "", submission: Submission | None = None
) -> dict[str, Any]:
    """All held-out figures.

    Into a folder, where one is given, go what was written (`predictions.jsonl`; of a mixture a file for each part, by
    its name; of a task the files of another submission that is asked for) and `scores.json`, with the bootstrap's 95 %
    intervals. Raises `InputError` where a folder is given and nothing is written.
    """
    parts = held_out.parts if isinstance(held_out, MixtureEvaluator) else {"": held_out}
    if folder and not any(part.settings.text_metrics for part in parts.values()):
        raise InputError(f"--out={folder} is for answers, and nothing is asked for that has some; give --metrics")
    source = held_out.program.experiment.data.held_out_source
    if submission not in (None, "jsonl") and not isinstance(source, TextToText):
        raise InputError(
            f"submission={submission!r} is for the examples of one task, which are held out as a whole; give "
            "--examples or --split"
        )
    found = {name: part.evaluate(params) for name, part in parts.items()}
    scores = held_out.mean(found) if isinstance(held_out, MixtureEvaluator) else found[""]
    figures = figures_of(held_out, scores)
    if not folder:
        return figures
    of_figures = {
        f"{name}/{figure}" if name else figure: ends
        for name, part in parts.items()
        for figure, ends in _intervals(part, found[name]).items()
    }
    figures |= {"intervals": of_figures} if of_figures else {}
    if hosts.is_first():
        if submission in (None, "jsonl"):
            files = {
                f"{name or 'predictions'}.jsonl": _lines(part.tokenizer, part.questions, found[name].texts)
                for name, part in parts.items()
                if found[name].texts
            }
        else:
            files = _submitted(submission, source, scores.texts)
        _write(folder, files | {"scores.json": json.dumps(figures, indent=2) + "\n"})
    return figures


def write_predictions(
    sheet: BatchGenerator, params: Any, source: TextToText, folder: str, submission: Submission
) -> str:
    """Writes what the model answers to unlabeled examples; gives a remark on answers that are none, or an empty text.

    Args:
      sheet: the questions that the source asks, all of them.
      params: those of the model.
      source: the examples in words.
      folder: where the files go.
      submission: their format.
    """
    texts = sheet.answers(params)
    if not hosts.is_first():
        return ""
    if submission == "jsonl":
        _write(folder, {"predictions.jsonl": _lines(sheet.tokenizer, sheet.questions, texts)})
        return ""
    examples = [example for example, _ in source.eval_records(unlabeled=True)]
    answers = read_texts(source.prompt, examples, texts, labeled=False)
    _write(folder, submission_files(submission, answers, *_described(source, examples)))
    unread = count_unread(answers)
    return f"{unread:,} of {len(texts):,} answers are no class's word and stand as the first class" if unread else ""


def _submitted(submission: Submission, source: TextToText, texts: Sequence[str]) -> dict[str, str]:
    """The files of a benchmark for the first examples of a source, which were asked about."""
    examples = [example for example, _ in itertools.islice(source.eval_records(), len(texts))]
    answers = read_texts(source.prompt, examples, texts, labeled=True)
    return submission_files(submission, answers, *_described(source, examples))


def _described(source: TextToText, examples: Sequence[Record]) -> tuple[Sequence[Any], Sequence[str], Task | None]:
    """(the examples with their words, the names of the classes, the task of a benchmark)."""
    prompt = source.prompt
    documents: Sequence[Any] = examples
    if isinstance(prompt, TagTemplate):
        documents = [
            TaggedSentence(one.location, tuple(field_of(one, prompt.tokens, "tokens")), ()) for one in examples
        ]
    return documents, getattr(prompt, "labels", prompt.answers), task_of(source.examples)


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


def _intervals(part: Evaluator, scores: Scores) -> dict[str, tuple[float, float]]:
    right, groups = ([getattr(question, name) for question in part.questions] for name in ("right", "group"))
    return text_intervals(Written(scores.texts, right, part.words_of_classes, groups), part.settings.text_metrics)


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
