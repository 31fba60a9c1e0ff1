"""A model's answers as files: in a benchmark's format, or as lines of JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from t5x_lite.errors import InputError
from t5x_lite.objectives import Objective, QuestionAnswering, Tagging
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.tasks.answers import Answers

Submission = Literal["jsonl", "glue", "superglue", "squad", "conll"]
"""jsonl: an object a line with `example`, `prediction` and `reference`. glue: a table of `index` and `prediction` (Wang
et al. 2019). superglue: an object a line with `idx` and `label`. squad: one object of texts by question, and one of
how much better no answer fits. conll: a word a line with its tag and the predicted one, a blank line behind each
sentence."""


def submission_of(objective: Objective, asked: Submission | None = None) -> Submission:
    """The format that is asked for, or the task's own; `InputError` where it has no room for such answers."""
    if asked is not None and not isinstance(objective, TaskObjective):
        raise InputError(f"submission={asked!r} is for answers to tasks, and {type(objective).__name__} is none")
    of_task = {Tagging: ("conll", "jsonl"), QuestionAnswering: ("squad", "jsonl")}
    possible = of_task.get(type(objective), ("jsonl", "glue", "superglue"))
    if asked is not None and asked not in possible:
        known = "" if asked in get_args(Submission) else "which is not known, "
        raise InputError(
            f"submission={asked!r}, {known}has no room for the answers of {type(objective).__name__}; choose "
            f"{' or '.join(possible)}"
        )
    return asked or possible[0]


def submission_files(
    submission: Submission, answers: Answers, documents: Iterable[Any], labels: Sequence[str] | None
) -> dict[str, str]:
    """The content of each file, by its name.

    Args:
      submission: the format.
      answers: of a task.
      documents: the examples in their order, for the words that tags belong to.
      labels: the names of classes, by number; none where answers are numbers, texts, tags or choices.

    >>> files = submission_files("glue", Answers([1.0, 0.0], [0.0, 0.0], ["0", "1"]), [], ("no", "yes"))
    >>> print(files["predictions.tsv"], end="")
    index	prediction
    0	yes
    1	no
    """
    match submission:
        case "glue":
            rows = [f"{name}\t{_named(said, labels)}" for name, said in _pairs(answers)]
            return {"predictions.tsv": _lines(["index\tprediction", *rows])}
        case "superglue":
            rows = [json.dumps({"idx": int(name), "label": _named(said, labels)}) for name, said in _pairs(answers)]
            return {"predictions.jsonl": _lines(rows)}
        case "squad":
            texts = dict(_pairs(answers))
            doubts = dict(zip(answers.names, answers.no_answer or [], strict=False))
            return {"predictions.json": _json(texts), "no_answer.json": _json(doubts)}
        case "conll":
            sentences = zip(documents, answers.references, answers.predictions, strict=False)
            blocks = ("\n".join(map(_word, document.words, *tags)) + "\n" for document, *tags in sentences)
            return {"predictions.txt": _lines(blocks)}
    rows = (
        json.dumps(
            {"example": name, "prediction": _named(said, labels), "reference": _named(right, labels)},
            ensure_ascii=False,
        )
        for (name, said), right in zip(_pairs(answers), answers.references, strict=True)
    )
    return {"predictions.jsonl": _lines(rows)}


def _pairs(answers: Answers) -> list[tuple[str, Any]]:
    return list(zip(answers.names, answers.predictions, strict=True))


def _word(word: str, tag: str, said: str) -> str:
    return f"{word} {tag} {said}"


def _named(value: Any, labels: Sequence[str] | None) -> Any:
    if labels and isinstance(value, int | float):
        return labels[int(value)]
    return round(value, 6) if isinstance(value, float) else value


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
