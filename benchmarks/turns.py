"""How benchmarks compare: each party in a process of its own, asked in turns, and what the rounds say together.

A worker is the script itself with other options. It calls `serve`; whoever compares holds it as a `Worker`.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

CORES = 2
"""What every worker may use."""


class WorkerDied(SystemExit):
    """A worker ended before it answered, and so does the script that does not catch this."""

    def __init__(self) -> None:
        super().__init__("a worker died; what it said stands above")


class Worker:
    """A process that is asked for one piece of work at a time, and idles between.

    Args:
      command: a script and its options.
      environment: variables to set beside those of this process; None takes one away.
    """

    def __init__(self, *command: str, environment: Mapping[str, str | None] | None = None):
        variables = os.environ | (environment or {})
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in variables.items() if value is not None},
        )
        self.facts: dict[str, Any] = self._answer()
        """What it said of itself when it was ready."""

    def seconds(self, *request: Any, times: int = 1) -> float:
        """How long one piece of work took it; short ones are measured better by the mean of several `times`."""
        return statistics.fmean(self._ask(request) for _ in range(times))

    def cpu_seconds(self) -> float:
        """What all its threads have worked so far, on Linux."""
        behind_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(behind_name[11]) + int(behind_name[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: Sequence[Any]) -> Any:
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise WorkerDied from None
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise WorkerDied
        return json.loads(line)


def use_cores() -> None:
    """Keeps the process to `CORES` cores; to be called before it starts threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def serve(work: Callable[..., None], **facts: Any) -> None:
    """Says `facts`, then answers each request with the seconds that `work(*request)` took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        work(*request)
        print(time.perf_counter() - start, file=answers, flush=True)


def in_turns(asked: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each gave in every round. Every other round asks them the other way about: A B B A.

    >>> order = []
    >>> in_turns({"a": lambda: order.append("a") or 1.0, "b": lambda: order.append("b") or 2.0}, rounds=2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    >>> "".join(order)
    'abba'
    """
    found: dict[str, list[float]] = {name: [] for name in asked}
    for turn in range(rounds):
        for name in list(asked)[:: -1 if turn % 2 else 1]:
            found[name].append(asked[name]())
    return found


class Others:
    """How busy the machine is with other processes than these workers; begins to count when it is made."""

    def __init__(self, workers: Collection[Worker]):
        self._workers = workers
        self._start, self._before = time.perf_counter(), self._seconds()

    def share(self) -> float:
        """The part of all cores' time that went to others since."""
        return (self._seconds() - self._before) / (time.perf_counter() - self._start) / os.cpu_count()

    def _seconds(self) -> float:
        # user, nice, system, idle, iowait, irq, softirq, steal; what runs as a guest counts as user too.
        first, *_ = Path("/proc/stat").read_text().splitlines()
        spent = [int(value) for value in first.split()[1:9]]
        everyone = (sum(spent) - spent[3] - spent[4]) / os.sysconf("SC_CLK_TCK")
        return everyone - sum(worker.cpu_seconds() for worker in self._workers)


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Those of each round: what slows down a whole round leaves them as they are.

    >>> ratios([2.0, 4.0], [1.0, 2.0])
    [2.0, 2.0]
    """
    return [value / other for value, other in zip(values, others, strict=True)]


def middle(values: Sequence[float], form: str) -> str:
    """The median.

    >>> middle([3.0, 1.0, 2.5], ".1f")
    '2.5'
    """
    return format(statistics.median(values), form)


def spread(values: Sequence[float], form: str) -> str:
    """The lowest and the highest.

    >>> spread([3.0, 1.0, 2.5], ".1f")
    '1.0 to 3.0'
    """
    return f"{min(values):{form}} to {max(values):{form}}"


def mean_and_deviation(values: Sequence[float], form: str) -> str:
    """The mean, and the standard deviation of several.

    >>> mean_and_deviation([1.0, 2.0, 3.0], ".1f")
    '2.0 ± 1.0'
    >>> mean_and_deviation([2.0], ".1f")
    '2.0'
    """
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{form}}{deviation}"


def wide_console() -> Console:
    """Where tables of many columns stay whole: a file has 80 for rich."""
    return Console(width=max(Console().width, 120))
