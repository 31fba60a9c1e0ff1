"""Where the time of a run goes, over all its restarts: `times.jsonl` in its folder, written and read without JAX."""

import contextlib
import datetime
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from t5x_lite.files import GrowingFile, read_bytes

FILE = "times.jsonl"
"""A line is how far process 0 of the run is: when it started, from and to which step it came, seconds by phase."""

LABELS = {
    "steps": "training steps",
    "data": "waiting for data",
    "start": "start: imports, data, parameters",
    "compile": "compiling the train step",
    "evaluation": "evaluation",
    "saves": "saving",
    "profile": "writing a profile",
    "repeated": "steps that were done again",
    "down": "between two starts",
}
"""What each moment of a run counts as. `steps` alone is productive."""

_LEAST_SECONDS, _MOST_SECONDS, _SHARE = 1.0, 600.0, 0.01
"""Between two lines: a share of the run so far within these bounds, so that a long run does not fill its disk."""


def format_duration(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> format_duration(75.0), format_duration(7384.0), format_duration(400_000.0)
    ('1:15', '2:03:04', '4 days 15:06:40')
    """
    text = str(datetime.timedelta(seconds=round(seconds))).replace(", ", " ")
    return text.removeprefix("0:").removeprefix("0")


class RunTimes:
    """A stopwatch of this process, at each moment of which one phase runs; see `LABELS` for their names.

    The first phase is `start`. Until `open` nothing is written.

    Args:
      started: when the process began, in seconds since 1970; now by default.
    """

    def __init__(self, started: float | None = None):
        now = time.time()
        self._started = now if started is None else min(started, now)
        # From here on no change of the system's clock counts.
        self._since = time.perf_counter() - (now - self._started)
        self._seconds: Counter[str] = Counter()
        self._phase = "start"
        self._file: GrowingFile | None = None
        self._first = self._step = 0
        self._written_at = 0.0

    def __enter__(self) -> "RunTimes":
        return self

    def __exit__(self, kind: type | None, *error: Any) -> None:
        if self._file is not None:
            # An error that ends the run is not hidden by that of a full disk.
            with contextlib.suppress(*([] if kind is None else [OSError])):
                self.write(self._step)
                self._file.close()

    def switch(self, phase: str) -> str:
        """Ends the phase that runs and begins another one; returns the one that ended."""
        now, before = time.perf_counter(), self._phase
        self._seconds[before] += now - self._since
        self._since, self._phase = now, phase
        return before

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A context that interrupts the phase that runs."""
        before = self.switch(name)
        try:
            yield
        finally:
            self.switch(before)

    def move(self, seconds: float, source: str, target: str) -> None:
        """Counts seconds of one phase as another one's."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def total(self, *phases: str) -> float:
        """Seconds of some phases until now; of all without an argument."""
        self.switch(self._phase)
        return sum(self._seconds[phase] for phase in phases or list(self._seconds))

    def open(self, workdir: epath.Path, first: int) -> None:
        """Writes to the run's folder from now on, after the lines of the processes before.

        Args:
          workdir: the run's folder, on a disk or in a bucket.
          first: updates that were done before this process.
        """
        lines = [json.dumps(line) + "\n" for line in read_times(workdir)]
        self._file, self._first = GrowingFile(workdir / FILE, "".join(lines).encode()), first
        self.write(first)

    def write(self, step: int, now: bool = True) -> None:
        """Writes a line, after `step` updates; where a bucket's files are uploaded now and then, `now` uploads it."""
        self._step = step
        if self._file is None:
            return
        total = self.total()
        seconds = {phase: round(value, 3) for phase, value in self._seconds.items()}
        line = {"started": round(self._started, 3), "first": self._first, "step": step}
        self._file.write((json.dumps(line | {"seconds": seconds}) + "\n").encode(), now)
        self._written_at = total

    def write_sometimes(self, step: int) -> None:
        """Writes a line unless the last one is not long ago."""
        self._step = step
        total = self.total()
        if total - self._written_at >= min(max(_LEAST_SECONDS, _SHARE * total), _MOST_SECONDS):
            self.write(step, now=False)


def read_times(workdir: epath.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's `times.jsonl`; what is not one is skipped, such as a last one that is cut short."""
    lines, path = [], epath.Path(workdir) / FILE
    for text in read_bytes(path).decode(errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, RecursionError, AttributeError, KeyError, TypeError):
            line = json.loads(text)
            numbers = [line["started"], line["first"], line["step"], *line["seconds"].values()]
            if all(isinstance(number, int | float) and abs(number) < 1e12 for number in numbers):
                lines.append(line)
    return lines


@dataclass(frozen=True)
class Goodput:
    """The time of a run since its first start, each second of which counts once."""

    seconds: dict[str, float]
    """By `LABELS`; they add up to `wall`."""
    started: float
    """When it started first, in seconds since 1970."""
    restarts: int

    @property
    def wall(self) -> float:
        """Seconds since the first start."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Of the wall time, in training steps that count."""
        return self.seconds.get("steps", 0.0) / max(self.wall, 1e-9)

    @property
    def share_while_up(self) -> float:
        """Of the time in which there was a process."""
        return self.seconds.get("steps", 0.0) / max(self.wall - self.seconds.get("down", 0.0), 1e-9)

    def describe(self) -> str:
        """A sentence, and a line for each phase."""
        restarts = f"{self.restarts} restart{'s' * (self.restarts != 1)}" if self.restarts else "no restart"
        up = f" ({self.share_while_up:.1%} of the time in which it ran)" if self.seconds.get("down") else ""
        lines = [f"goodput: {self.share:.1%} of {format_duration(self.wall)}{up}, {restarts}"]
        for phase, label in LABELS.items():
            if seconds := self.seconds.get(phase, 0.0):
                duration = format_duration(seconds) if seconds >= 600 else f"{seconds:,.1f} s"
                lines.append(f"  {label:<33}{duration:>16}{seconds / max(self.wall, 1e-9):>8.1%}")
        return "\n".join(lines)


def count_goodput(
    lines: Sequence[dict[str, Any]], until: float | None = None, saved: float = math.inf
) -> Goodput | None:
    """Adds up the lines of `read_times`; None where there are none.

    A process that goes on from a step repeats what earlier ones did after it: the time of those steps is lost, and so
    is the time between the last line of a process and the start of the next one.

    Args:
      until: the end of the wall time, in seconds since 1970, where no process runs; by default the last line.
      saved: the step that the next process goes on from, where none runs.

    >>> one = {"started": 100.0, "first": 0, "step": 4, "seconds": {"start": 5.0, "steps": 8.0}}
    >>> two = {"started": 120.0, "first": 3, "step": 5, "seconds": {"start": 6.0, "steps": 4.0}}
    >>> sorted(count_goodput([one, two]).seconds.items())
    [('down', 7.0), ('repeated', 2.0), ('start', 11.0), ('steps', 10.0)]
    """
    processes: list[list[dict[str, Any]]] = []
    for line in lines:
        if processes and processes[-1][-1]["started"] == line["started"]:
            processes[-1].append(line)
        else:
            processes.append([line])
    if not processes:
        return None
    seconds: Counter[str] = Counter()
    ends = [own[-1]["started"] + sum(own[-1]["seconds"].values()) for own in processes]
    starts = [own[0]["started"] for own in processes]
    for end, start in zip(ends, [*starts[1:], until or ends[-1]], strict=True):
        seconds["down"] += max(start - end, 0.0)
    limit = saved
    for own in reversed(processes):
        for phase, value in own[-1]["seconds"].items():
            seconds[phase] += value
        repeated = own[-1]["seconds"].get("steps", 0.0) - _seconds_of_steps(own, limit)
        seconds["repeated"] += repeated
        seconds["steps"] -= repeated
        limit = min(limit, own[0]["first"])
    return Goodput({phase: value for phase, value in seconds.items() if value}, starts[0], len(processes) - 1)


def _seconds_of_steps(lines: list[dict[str, Any]], step: float) -> float:
    """Seconds that a process trained until it had done `step` updates; linear between two lines."""
    points = [(lines[0]["first"], 0.0), *((line["step"], line["seconds"].get("steps", 0.0)) for line in lines)]
    if step <= points[0][0]:
        return 0.0
    for (step_before, before), (step_after, after) in itertools.pairwise(points):
        if step_before < step <= step_after:
            return before + (after - before) * (step - step_before) / (step_after - step_before)
    return points[-1][1]
