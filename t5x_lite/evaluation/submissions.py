"""A model's answers as files: in a benchmark's format, or as lines of JSON."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

from t5x_lite.data import PromptTemplate, Record, Source, TextToText
from t5x_lite.data.records.base import name_of
from t5x_lite.data.records.tfds import datasets_in
from t5x_lite.data.tasks.templates import NO_CLASS
from t5x_lite.errors import InputError
from t5x_lite.objectives import Objective, Predictions
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.tasks import glue, super_glue
from t5x_lite.tasks.task import Task

Submission = Literal["jsonl", "glue", "superglue", "squad", "conll"]
"""jsonl: an object a line with `example`, `prediction` and `reference`. glue: a table of `index` and `prediction` (Wang
et al. 2019). superglue: an object a line with `idx` and `label`, of MultiRC one for each paragraph. squad: one object
of texts by question, and one of how much better no answer fits. conll: a word a line with its tag and the predicted
one, a blank line behind each sentence."""


def submission_of(objective: Objective, source: Source, wanted: Submission | None = None) -> Submission:
    """The given format, or the default of the task; `InputError` where it has no room for such answers."""
    if isinstance(objective, TaskObjective):
        what, possible = objective, objective.submissions
    elif isinstance(source, TextToText):
        what, possible = source.prompt, source.prompt.submissions
    else:
        what, possible = source, ("jsonl",)
    if wanted is not None and wanted not in possible:
        known = "" if wanted in get_args(Submission) else "which is not known, "
        raise InputError(
            f"submission={wanted!r}, {known}has no room for the answers of {type(what).__name__}; choose "
            f"{' or '.join(possible)}"
        )
    return wanted or possible[0]


def read_texts(
    prompt: PromptTemplate, examples: Sequence[Record], texts: Sequence[str], *, labeled: bool
) -> Predictions:
    """The class, number, tags or text of each answer to examples; one that is not the word of a class is `NO_CLASS`.

    Without `labeled` the examples have no correct answers, and the references are None.
    """
    # The correct text for a candidate whose label is False is unknown.
    are_known = labeled and prompt.references_are_texts
    references = [prompt.parse(prompt.right(one)[0], one) if are_known else None for one in examples]
    names = [number if name_of(one) is None else name_of(one) for number, one in enumerate(examples)]
    return Predictions("texts", [prompt.parse(*pair) for pair in zip(texts, examples, strict=True)], references, names)


def count_unread(predictions: Predictions) -> int:
    """How many texts are not the word of a class."""
    return sum(number == NO_CLASS for number in predictions.predicted if isinstance(number, int))


def submission_files(
    submission: Submission,
    predictions: Predictions,
    documents: Iterable[Any],
    labels: Sequence[str] | None,
    task: Task | None = None,
) -> dict[str, str]:
    """The content of each file, by its name.

    Args:
      submission: the format.
      predictions: for the examples of a task.
      documents: the examples in their order, for the words that tags belong to, the names that a benchmark has for
        examples, and the locations of pictures; of those without a name, the number counts.
      labels: the names of classes, by number; none where answers are numbers, texts, tags or choices.
      task: that of the benchmark, where it is known, which says how its file is called and names the classes.

    >>> files = submission_files("glue", Predictions("classes", [1.0, 0.0], [0.0, 0.0], ["0", "1"]), [], ("no", "yes"))
    >>> files["predictions.tsv"].splitlines()
    ['index\\tprediction', '0\\tyes', '1\\tno']
    """
    if submission in ("glue", "superglue"):
        if task and not task.submission.endswith({"glue": ".tsv", "superglue": ".jsonl"}[submission]):
            task = None  # of the other benchmark
        labels = (task.submitted if task else ()) or labels
        # The formats require a class; a text that is not one counts as the first.
        values = [_named(max(one, 0) if isinstance(one, int) else one, labels) for one in predictions.predicted]
        known = (getattr(document, "name", None) for document in documents)
        pairs = itertools.zip_longest(predictions.names, itertools.islice(known, len(values)))
        names = [number if name is None else name for number, name in pairs]
    located = (getattr(document, "location", number) for number, document in enumerate(documents))
    of_examples = predictions.names or list(itertools.islice(located, len(predictions.predicted)))
    pairs = list(zip(of_examples, predictions.predicted, strict=True))
    match submission:
        case "glue":
            # Ordered by the index; names that are not numbers keep their order.
            rows = sorted(
                zip(names, values, strict=True), key=lambda row: int(row[0]) if str(row[0]).isdecimal() else 0
            )
            table = ["index\tprediction", *(f"{name}\t{value}" for name, value in rows)]
            return {task.submission if task else "predictions.tsv": _lines(table)}
        case "superglue":
            objects = map(json.dumps, _super_glue_objects(names, values))
            return {task.submission if task else "predictions.jsonl": _lines(objects)}
        case "squad":
            files = {"predictions.json": dict(pairs)}
            if predictions.no_answer:
                files["no_answer.json"] = dict(zip(predictions.names, predictions.no_answer, strict=False))
            return {name: json.dumps(value, ensure_ascii=False, indent=1) + "\n" for name, value in files.items()}
        case "conll":
            sentences = zip(documents, predictions.references, predictions.predicted, strict=False)
            words = (zip(document.words, *tags, strict=False) for document, *tags in sentences)
            return {"predictions.txt": _lines(_lines(map(" ".join, of_sentence)) for of_sentence in words)}
    rows = (
        {"example": name, "prediction": _named(value, labels), "reference": _named(right, labels)}
        for (name, value), right in zip(pairs, predictions.references, strict=True)
    )
    return {"predictions.jsonl": _lines(json.dumps(row, ensure_ascii=False) for row in rows)}


def _super_glue_objects(names: Sequence[Any], values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The objects of a file: one for each example, but of MultiRC, whose names have parts, one for each paragraph."""
    if not (names and isinstance(names[0], dict) and "answer" in names[0]):
        for name, value in zip(names, values, strict=True):
            number = name.get("query", name) if isinstance(name, dict) else name
            yield {"idx": int(number) if str(number).isdecimal() else number, "label": value}
        return
    paragraphs: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for name, value in zip(names, values, strict=True):
        answers = paragraphs.setdefault(name["paragraph"], {}).setdefault(name["question"], [])
        answers.append({"idx": name["answer"], "label": value})
    for paragraph, questions in paragraphs.items():
        of_questions = [{"idx": number, "answers": answers} for number, answers in questions.items()]
        yield {"idx": paragraph, "passage": {"questions": of_questions}}


def _named(value: Any, labels: Sequence[str] | None) -> Any:
    if labels and isinstance(value, int | float):
        return labels[int(value)]
    return round(value, 6) if isinstance(value, float) else value


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


_TASKS = (*glue.GLUE, glue.MNLI_MISMATCHED, *super_glue.SUPER_GLUE)


def task_of(examples: Any) -> Task | None:
    """The task of GLUE or SuperGLUE whose dataset of TensorFlow Datasets the examples are; None where they are others.

    >>> from t5x_lite.data import Tfds
    >>> task_of(Tfds("glue/mnli", "test_mismatched")).submission, task_of(Tfds("snli"))
    ('MNLI-mm.tsv', None)
    """
    found = {(one.name.partition(":")[0], one.split) for one in datasets_in(examples)}
    names = {name for name, _ in found}
    tasks = [task for task in _TASKS if names == {one.name for one in datasets_in(task.train)}]
    # Two tasks may share a dataset, and differ by the split that they are evaluated on.
    for task in tasks:
        if found in ({(one.name, one.split) for one in datasets_in(split)} for split in (task.dev, task.test)):
            return task
    return next(iter(tasks), None)
