"""What `evaluate` finds out about what a model writes: figures with their intervals, and the texts as files."""

import json
from typing import Any

from t5x_lite.errors import InputError
from t5x_lite.parallel import hosts
from t5x_lite.training.answer_metrics import Written
from t5x_lite.training.held_out import HeldOut
from t5x_lite.training.held_out_parts import MixtureHeldOut
from t5x_lite.training.report import figures_of
from t5x_lite.training.run_files import local_or_bucket, write_atomically
from t5x_lite.training.text_intervals import text_intervals
from t5x_lite.training.text_metrics import Scores


def text_figures(held_out: HeldOut | MixtureHeldOut, params: Any, *, folder: str = "") -> dict[str, Any]:
    """All held-out figures.

    Into a folder, where one is given, go what was written (`predictions.jsonl`; of a mixture a file for each part, by
    its name) and `scores.json`, with the bootstrap's 95 % intervals. Raises `InputError` where a folder is given and
    nothing is written.
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
    right, groups = ([getattr(question, name) for question in part.questions] for name in ("right", "group"))
    return text_intervals(Written(scores.texts, right, part.words_of_classes, groups), part.settings.text_metrics)
