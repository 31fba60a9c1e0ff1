"""What a run writes down as it goes: metrics.jsonl, what its writers take, and lines or a bar on the screen."""

import contextlib
import datetime
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from etils import epath
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from t5x_lite.evaluation.figures import Figures, Metrics, format_figure, format_signatures, format_spans
from t5x_lite.files import GrowingFile, read_bytes
from t5x_lite.metrics.scores import Scores
from t5x_lite.runs.checkpoints import Saved
from t5x_lite.training.writers import OpenWriter

_HEADLINE = ("loss", "accuracy", "perplexity")
_NOT_PRINTED = (
    *(*_HEADLINE, "tokens", "words", "examples", "windows", "tokens_per_second", "rows_per_second"),
    *("objective", "gradient_norm", "learning_rate", "seconds_per_step", "memory_bytes", "peak_memory_bytes"),
)


def _format(figures: Figures, metrics: Metrics) -> str:
    """What most objectives have, then what only this one has.

    >>> _format({"boundary_loss": 3.0, "accuracy": 0.25, "loss": 0.5, "tokens": 9.0}, {})
    'loss 0.500  accuracy 25.0%  boundary loss 3.000'
    """
    others = [name for name in figures if name not in _NOT_PRINTED and "/" not in name]
    headline = [format_figure(name, figures[name]) for name in _HEADLINE if name in figures]
    return "  ".join([*headline, *(format_figure(name, figures[name], metrics.get(name)) for name in others)])


def _format_left(seconds: float) -> str:
    """How long a run still takes.

    >>> _format_left(75.0), _format_left(7384.0), _format_left(400_000.0)
    ('1:15 left', '2:03:04 left', '4 days 15:06:40 left')
    """
    text = str(datetime.timedelta(seconds=round(seconds))).replace(", ", " ")
    return f"{text.removeprefix('0:').removeprefix('0')} left"


def standard_output() -> Console:
    """A console on standard output, in a notebook too: rich would make an output of every line there, and draw bars."""
    console = Console()
    return Console(force_jupyter=False, force_terminal=False) if console.is_jupyter else console


def print_line(console: Console, message: str) -> None:
    """Prints a message as it is, on a line that the reader's terminal breaks."""
    console.print(message, highlight=False, markup=False, soft_wrap=True)


class Callback:
    """What else happens while a run trains: derive from it and override what you need.

    Every process of a run calls it, with the same figures; an exception ends the run like one of its own.
    """

    def on_step(self, step: int, figures: Figures) -> None:
        """After each update, the first being 1, with its loss and other figures (see `Objective.loss`)."""

    def on_evaluation(self, step: int, figures: Figures) -> None:
        """After each evaluation, with the held-out figures."""

    def on_save(self, step: int) -> None:
        """When the checkpoint of a step is complete: its folder is `workdir/checkpoints/<step>`."""


class Records:
    """The records of a run from step `first` on; those of a later step, left by a run that was killed, are dropped.

    Args:
      workdir: where `metrics.jsonl` and `tensorboard/` are; None in all processes but the first, which write none.
      first: updates already done.
      last: updates of the whole run.
      throughput: (unit, number of them in a batch) that the speed is counted in, such as tokens.
      callbacks: called with what is recorded.
      writers: take the records too; none in all processes but the first.
      usage: gives what else a record of training has, of the seconds that a step took.
    """

    def __init__(
        self,
        workdir: epath.Path | None,
        console: Console,
        *,
        first: int,
        last: int,
        throughput: tuple[str, int],
        callbacks: Sequence[Callback] = (),
        writers: Sequence[OpenWriter] = (),
        usage: Callable[[float], Figures] = lambda seconds: {},
    ):
        self._file, self._writers, self._usage = None, writers, usage
        if workdir is not None:
            path = workdir / "metrics.jsonl"
            kept = [record for record in read_records(path) if record["step"] <= first]
            self._file = GrowingFile(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self._console, self._steps, self._throughput = console, last, throughput
        self._callbacks = callbacks
        self._began = time.perf_counter()
        self._since = (first, self._began)
        self._blocked_seconds = 0.0
        self._shows_signatures = self._is_first = True
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal or console.quiet,
        )
        self._task: TaskID = self._bar.add_task("train", total=last, completed=first, figures="compiling")

    def __enter__(self) -> "Records":
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()
        with contextlib.ExitStack() as ends:  # all are closed, whichever of them fails
            for opened in (self._file, *self._writers):
                if opened is not None:
                    ends.callback(opened.close)

    def advance(self, step: int, metrics: Figures) -> None:
        self._bar.update(self._task, completed=step)
        for callback in self._callbacks:
            callback.on_step(step, metrics)

    def train(self, step: int, metrics: Figures) -> None:
        (last_step, last_time), now = self._since, time.perf_counter()
        self._since = (step, now)
        unit, count = self._throughput
        seconds = max(now - last_time, 1e-9) / max(step - last_step, 1)
        speed = count / seconds
        metrics = metrics | {f"{unit}_per_second": speed, "seconds_per_step": seconds} | self._usage(seconds)
        self._write(step, "train", metrics)
        figures = f"{_format(metrics, {})}  {speed:,.0f} {unit}/s"
        self._bar.update(self._task, completed=step, figures=figures)
        if not self._console.is_terminal:
            # The first record's time has the compiler's in it.
            left = "" if self._is_first or step == self._steps else f"  {_format_left(seconds * (self._steps - step))}"
            print_line(self._console, f"step {step}/{self._steps}  {figures}{left}")
        self._is_first = False

    def held_out(self, step: int, scores: Scores) -> None:
        """Figures of an evaluation; its time does not count as training's."""
        figures = scores.figures
        self._write(step, "held_out", figures)
        print_line(self._console, f"step {step}/{self._steps}  held-out {_format(figures, scores.metrics)}")
        if parts := format_spans(figures, scores.metrics):
            print_line(self._console, parts)
        if self._shows_signatures and (signatures := format_signatures(scores.metrics)):
            print_line(self._console, signatures)
            self._shows_signatures = False
        for callback in self._callbacks:
            callback.on_evaluation(step, figures)
        self._since = (step, time.perf_counter())

    def saved(self, checkpoints: Iterable[Saved]) -> None:
        """Times of checkpoints that are complete: when, and for how long training stood still for them."""
        for saved in checkpoints:
            self._blocked_seconds += saved.blocked_seconds
            times = {
                "blocked_seconds": saved.blocked_seconds,
                "written_seconds": saved.written_seconds,
                "blocked_share": self._blocked_seconds / max(time.perf_counter() - self._began, 1e-9),
            }
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(saved.written_at))
            self._write(saved.step, "checkpoint", times, at=at)
            seconds = f"{saved.written_seconds:.1f} s; training stood still for {saved.blocked_seconds:.1f} s of them"
            share = f"{times['blocked_share']:.1%} of its time so far"
            print_line(self._console, f"step {saved.step}/{self._steps}  saved in {seconds}, {share}")
            for callback in self._callbacks:
                callback.on_save(saved.step)

    def _write(self, step: int, kind: str, metrics: Figures, **more: str) -> None:
        if self._file is None:
            return
        # JSON has no NaN: it is written as null.
        figures = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write((json.dumps({"step": step, "kind": kind} | more | figures) + "\n").encode())
        for writer in self._writers:
            writer.write(step, kind, metrics)


def read_records(path: epath.PathLike) -> list[dict[str, Any]]:
    """The records of a `metrics.jsonl`: its steps and kinds, and figures that are finite numbers, or None.

    What is not a record is skipped, such as a last line that a killed run left unfinished.
    """
    records, path = [], epath.Path(path)
    for line in read_bytes(path).decode(errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            step, kind = (record.get(name) if isinstance(record, dict) else None for name in ("step", "kind"))
            if isinstance(kind, str) and type(step) is int and 0 <= step < 1 << 62:
                records.append({name: value for name, value in record.items() if _is_valid(name, value)})
    return records


def _is_valid(name: str, value: Any) -> bool:
    """Whether a record's field has a value of its type: a text in two of them, elsewhere a figure."""
    if name in ("kind", "at"):
        return isinstance(value, str)
    return value is None or (isinstance(value, int | float) and abs(value) < 1e300)
