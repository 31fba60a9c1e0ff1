"""What a run writes down as it goes: metrics.jsonl, what its writers take, and lines or a bar on the screen."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from etils import epath
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from t5x_lite.evaluation.figures import Figures, Metrics, format_figure, format_signatures, format_spans
from t5x_lite.files import GrowingFile
from t5x_lite.metrics.scores import Scores
from t5x_lite.parallel.chips import GIB
from t5x_lite.runs.checkpoints import Saved
from t5x_lite.runs.goodput import RunTimes, format_duration
from t5x_lite.runs.status import TIME_FORMAT, read_records
from t5x_lite.training.writers import OpenWriter

_HEADLINE = ("loss", "accuracy", "perplexity")
_NOT_PRINTED = (
    *(*_HEADLINE, "tokens", "words", "examples", "windows"),
    *("tokens_per_second", "rows_per_second", "images_per_second"),
    *("objective", "gradient_norm", "learning_rate", "index_version", "seconds_per_step", "host_seconds_per_step"),
    *("data_seconds_per_step", "memory_bytes", "peak_memory_bytes"),
)


def _format(figures: Figures, metrics: Metrics) -> str:
    """What most objectives have, then what only this one has.

    >>> _format({"boundary_loss": 3.0, "accuracy": 0.25, "loss": 0.5, "tokens": 9.0}, {})
    'loss 0.500  accuracy 25.0%  boundary loss 3.000'
    """
    others = [name for name in figures if name not in _NOT_PRINTED and "/" not in name]
    headline = [format_figure(name, figures[name]) for name in _HEADLINE if name in figures]
    return "  ".join([*headline, *(format_figure(name, figures[name], metrics.get(name)) for name in others)])


def _format_speed(figures: Figures, unit: str) -> str:
    """The time of a step and how much of it the devices waited for their host, the speed, and the memory.

    >>> figures = {"seconds_per_step": 0.5, "host_seconds_per_step": 0.01, "tokens_per_second": 2048.0}
    >>> _format_speed(figures | {"memory_bytes": 2**31, "peak_memory_bytes": 3 * 2**30}, "tokens")
    '0.500 s/step (host 2%)  2,048 tokens/s  2.0 GiB (peak 3.0)'
    """
    seconds = figures["seconds_per_step"]
    host = f" (host {figures['host_seconds_per_step'] / seconds:.0%})" if "host_seconds_per_step" in figures else ""
    parts = [f"{seconds:.3f} s/step{host}", f"{figures[f'{unit}_per_second']:,.0f} {unit}/s"]
    if "memory_bytes" in figures:
        memory, peak = (figures[name] / GIB for name in ("memory_bytes", "peak_memory_bytes"))
        parts.append(f"{memory:.1f} GiB (peak {peak:.1f})")
    return "  ".join(parts)


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
      times: of this process. Time in which it compiles, evaluates or saves is not that of a step.
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
        times: RunTimes | None = None,
    ):
        self._file, self._writers, self._usage = None, writers, usage
        self._times = times or RunTimes()
        if times is None:
            self._times.switch("steps")
        if workdir is not None:
            path = workdir / "metrics.jsonl"
            kept = [record for record in read_records(path) if record["step"] <= first]
            self._file = GrowingFile(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self._console, self._steps, self._throughput = console, last, throughput
        self._callbacks = callbacks
        self._began = time.perf_counter()
        self._since = (first, self._seconds_of_steps())
        self._first_record: tuple[int, float] | None = None
        self._blocked_seconds = 0.0
        self._shows_signatures = True
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
        (last_step, last_seconds), spent = self._since, self._seconds_of_steps()
        self._since = (step, spent)
        unit, count = self._throughput
        seconds = max(spent - last_seconds, 1e-9) / max(step - last_step, 1)
        metrics = metrics | {f"{unit}_per_second": count / seconds, "seconds_per_step": seconds} | self._usage(seconds)
        self._write(step, "train", metrics)
        figures = f"{_format(metrics, {})}  {_format_speed(metrics, unit)}"
        self._bar.update(self._task, completed=step, figures=figures)
        now = time.perf_counter()
        first_step, first_time = self._first_record = self._first_record or (step, now)
        if not self._console.is_terminal:
            left = ""
            if first_step < step < self._steps:  # evaluations and saves are yet to come too
                left = f"  {format_duration((now - first_time) / (step - first_step) * (self._steps - step))} left"
            print_line(self._console, f"step {step}/{self._steps}  {figures}{left}")

    def _seconds_of_steps(self) -> float:
        return self._times.total("steps", "data")

    def held_out(self, step: int, scores: Scores) -> None:
        """Figures of an evaluation."""
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

    def saved(self, checkpoints: Iterable[Saved]) -> None:
        """Times of checkpoints that are complete: when, and for how long training stood still for them."""
        for saved in checkpoints:
            self._blocked_seconds += saved.blocked_seconds
            times = {
                "blocked_seconds": saved.blocked_seconds,
                "written_seconds": saved.written_seconds,
                "blocked_share": self._blocked_seconds / max(time.perf_counter() - self._began, 1e-9),
            }
            self._write(saved.step, "checkpoint", times, at=saved.written_at)
            seconds = f"{saved.written_seconds:.1f} s; training stood still for {saved.blocked_seconds:.1f} s of them"
            share = f"{times['blocked_share']:.1%} of its time so far"
            print_line(self._console, f"step {saved.step}/{self._steps}  saved in {seconds}, {share}")
            for callback in self._callbacks:
                callback.on_save(saved.step)

    def _write(self, step: int, kind: str, metrics: Figures, at: float | None = None) -> None:
        if self._file is None:
            return
        # JSON has no NaN: it is written as null.
        figures = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        written = {"at": time.strftime(TIME_FORMAT, time.gmtime(at))}
        self._file.write((json.dumps({"step": step, "kind": kind} | written | figures) + "\n").encode())
        for writer in self._writers:
            writer.write(step, kind, metrics)
