"""What `evaluate` finds out about what a model writes: figures with their intervals, and the texts as files."""

import json
from typing import Any

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.parallel import hosts
from t5x_lite.tasks.answers import Answers
from t5x_lite.tasks.bootstrap import intervals
from t5x_lite.tasks.scores import score_intervals
from t5x_lite.training.held_out import HeldOut
from t5x_lite.training.held_out_parts import MixtureHeldOut
from t5x_lite.training.report import figures_of
from t5x_lite.training.run_files import local_or_bucket, write_atomically
from t5x_lite.training.text_metrics import Scores, score

_QUICK = ("exact_match", "f1", "macro_f1", "matthews", "pearson", "spearman", "referent")
"""Metrics that can be found a thousand times over."""


def text_figures(held_out: HeldOut | MixtureHeldOut, params: Any, *, folder: str = "") -> dict[str, Any]:
    """All held-out figures.

    Into a folder, where one is given, go what was written (`predictions.jsonl`; of a mixture a file for each part, by
    its name) and `scores.json`, with the bootstrap's 95 % intervals of those figures that are quick to find. Raises
    `InputError` where a folder is given and nothing is written.
    """
    parts = held_out.parts if isinstance(held_out, MixtureHeldOut) else {"": held_out}
    if folder and not any(part.settings.text_metrics for part in parts.values()):
        raise InputError(f"--out={folder} is for answers, and nothing is asked for that has some; give --metrics")
    found = {name: part.evaluate(params) for name, part in parts.items()}
    scores = held_out.mean(found) if isinstance(held_out, MixtureHeldOut) else found[""]
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
        target = local_or_bucket(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            if found[name].texts:
                write_atomically(target / f"{name or 'predictions'}.jsonl", _lines(part, found[name]))
        write_atomically(target / "scores.json", json.dumps(figures, indent=2) + "\n")
    return figures


def _lines(part: HeldOut, scores: Scores) -> str:
    """An object a line: the input, what was written, and every text that is right."""
    decode = part.tokenizer.decode
    records = (
        {"input": decode(list(question.ids)), "prediction": text, "references": list(question.right)}
        for question, text in zip(part.questions, scores.texts, strict=True)
    )
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _intervals(part: HeldOut, scores: Scores) -> dict[str, tuple[float, float]]:
    right, ends = [question.right for question in part.questions], {}
    if metrics := [metric for metric in part.settings.text_metrics if metric in _QUICK]:

        def figures_over(some: np.ndarray) -> dict[str, float]:
            texts, references = ([column[number] for number in some] for column in (scores.texts, right))
            return score(texts, references, metrics, words=part.words_of_classes).figures

        ends |= intervals(figures_over, len(right))
    if "squad" in part.settings.text_metrics:
        # Each question is scored once and for all.
        ends |= score_intervals(Answers(list(scores.texts), right, list(map(str, range(len(right))))), ("squad",))
    return ends
