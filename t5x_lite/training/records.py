"""What a run writes down as it goes: metrics.jsonl, TensorBoard events, and lines or a bar on the screen."""

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from t5x_lite.training.text_metrics import Scores

Figures = dict[str, float]

_SHOWN_APART = ("loss", "accuracy", "perplexity", "tokens", "tokens_per_second")
_OF_THE_UPDATE = ("objective", "gradient_norm", "learning_rate")


def spell(name: str, value: float) -> str:
    """A figure for people: losses, perplexities and what sacrebleu gives as they are, all others as shares.

    >>> spell("pair_loss", 0.693), spell("detection_accuracy", 0.9), spell("bleu", 31.25)
    ('pair loss 0.693', 'detection accuracy 90.0%', 'BLEU 31.2')
    """
    shown = _name(name)
    if name in ("bleu", "chrf") or name.endswith("perplexity"):
        return f"{shown} {value:,.1f}" if value < 1e6 else f"{shown} {value:.1e}"
    return f"{shown} {value:.3f}" if name.endswith("loss") else f"{shown} {value:.1%}"


def spell_signatures(signatures: dict[str, str]) -> str:
    """sacrebleu's signatures by the name of the figure, a line each."""
    return "\n".join(f"{_name(figure)}: {signature}" for figure, signature in signatures.items())


def _name(figure: str) -> str:
    own = {"bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
    return own.get(figure, figure.replace("_", " "))


def _others(figures: Figures) -> str:
    """What only some objectives have."""
    names = [name for name in figures if name not in (*_SHOWN_APART, *_OF_THE_UPDATE)]
    return "".join(f"  {spell(name, figures[name])}" for name in names)


class Records:
    """The records of a run from `first_step` on; those of a later step, left by a run that was killed, are dropped.

    Args:
      workdir: where `metrics.jsonl` and `tensorboard/` are.
      first_step: updates already done.
      steps: updates of the whole run.
      tokens_per_step: raw ids in a batch, for the tokens per second.
    """

    def __init__(self, workdir: Path, console: Console, *, first_step: int, steps: int, tokens_per_step: int):
        # Imported here: TensorBoard's writer costs half a second that only training needs to pay.
        from tensorboardX import SummaryWriter

        self._path = workdir / "metrics.jsonl"
        kept = [record for record in read_records(self._path) if record["step"] <= first_step]
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(record) + "\n" for record in kept))
        temporary.replace(self._path)
        self._file = self._path.open("a", buffering=1)
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=first_step + 1)
        self._console, self._steps, self._tokens_per_step = console, steps, tokens_per_step
        self._since = (first_step, time.perf_counter())
        self._signatures_told = False
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("train", total=steps, completed=first_step, figures="compiling")

    def __enter__(self) -> "Records":
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()
        self._file.close()
        self._board.close()

    def advance(self, step: int) -> None:
        """Moves the bar on."""
        self._bar.update(self._task, completed=step)

    def train(self, step: int, metrics: Figures) -> None:
        """Figures of a train step."""
        (last_step, last_time), now = self._since, time.perf_counter()
        self._since = (step, now)
        metrics = metrics | {
            "tokens_per_second": (step - last_step) * self._tokens_per_step / max(now - last_time, 1e-9)
        }
        self._write(step, "train", metrics)
        speed = metrics["tokens_per_second"]
        figures = f"loss {metrics['loss']:.3f}  accuracy {metrics['accuracy']:.1%}"
        figures += f"{_others(metrics)}  {speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=step, figures=figures)
        self._line(step, figures)

    def held_out(self, step: int, scores: Scores) -> None:
        """Figures of an evaluation; its time does not count as training's."""
        metrics = scores.figures
        self._write(step, "held_out", metrics)
        self._console.print(
            f"step {step}/{self._steps}  held-out loss {metrics['loss']:.3f}  accuracy {metrics['accuracy']:.1%}  "
            f"perplexity {metrics['perplexity']:.1f}{_others(metrics)}",
            highlight=False,
            soft_wrap=True,
        )
        if scores.signatures and not self._signatures_told:
            self._console.print(spell_signatures(scores.signatures), highlight=False, soft_wrap=True)
            self._signatures_told = True
        self._since = (step, time.perf_counter())

    def _line(self, step: int, figures: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"step {step}/{self._steps}  {figures}", highlight=False, soft_wrap=True)

    def _write(self, step: int, kind: str, metrics: Figures) -> None:
        # JSON has no NaN; a loss that is none is written as null.
        figures = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, "kind": kind} | figures) + "\n")
        for name, value in metrics.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a `metrics.jsonl`; a last line that a killed run left unfinished is skipped."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
