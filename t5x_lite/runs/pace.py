"""Whether the devices wait for their hosts: how long in each step, and on which host."""

import json
import queue
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

import jax

from t5x_lite.parallel import hosts
from t5x_lite.runs.goodput import RunTimes

Figures = dict[str, float]

EXCHANGE_SECONDS = 10.0
"""Between two comparisons of the hosts, at least."""
_REPEAT_SECONDS = 600.0
_SHARE = 0.1
_MAX_NAMED = 3
_FOLDER = "t5x_lite/pace"


@dataclass(frozen=True)
class HostPace:
    """What a process measured of its steps; seconds are those of a step in the mean."""

    process: int
    host: str
    step_seconds: float
    host_seconds: float
    """In which its devices had no step to compute, those of the data included."""
    data_seconds: float
    """In which they had none because their batch was not there."""


def find_slow_hosts(paces: Sequence[HostPace]) -> dict[int, str]:
    """What is wrong, by process, where its data is late or it is slower than the others by a tenth of a step.

    The devices of all hosts wait for the slowest one, but only that one's have nothing to do: those of the others are
    in the middle of a step, in an operation that they share.

    >>> find_slow_hosts([HostPace(0, "a", 0.5, 0.01, 0.0), HostPace(1, "b", 0.5, 0.21, 0.2)])
    {1: 'process 1 on b waits 0.200 s for its data in each step of 0.500 s'}
    """
    usual = statistics.median_low(pace.host_seconds for pace in paces)
    slow = {}
    for pace in paces:
        most, name = _SHARE * pace.step_seconds, f"process {pace.process} on {pace.host}"
        step = f"in each step of {pace.step_seconds:.3f} s"
        if pace.data_seconds > most:
            slow[pace.process] = f"{name} waits {pace.data_seconds:.3f} s for its data {step}"
        elif pace.host_seconds - usual > most:
            slow[pace.process] = (
                f"{name} is behind the others: its devices wait {pace.host_seconds:.3f} s for it {step}"
            )
    return slow


class StepClock:
    """Measures how long the devices of this process wait for it; a context manager.

    A thread waits for the end of each step, so that the loop need not. Between the end of a step and the dispatch of
    the next one the devices have nothing to do.

    Args:
      times: what the loop does counts there: `data` is what the devices wait for data, `compile` the first step's call.
      warn: takes a sentence about hosts that are slow; only process 0 calls it.
    """

    def __init__(self, times: RunTimes, warn: Callable[[str], None] = lambda message: None):
        self._times, self._warn = times, warn
        self._number = 0  # of the last step that was dispatched, from 1 in this process
        self._in_flight = False
        self._waited = (0.0, 0.0)
        self._complete = (0, 0.0)
        self._sums: Counter[str] = Counter()
        self._unsent: Counter[str] = Counter()
        self._sent_at = time.monotonic()
        self._warned_at: dict[int, float] = {}
        self._queue: queue.SimpleQueue[tuple[int, jax.Array] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="step clock")

    def __enter__(self) -> "StepClock":
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._queue.put(None)
        self._thread.join(1.0)  # a step that never ends is not waited for

    def _watch(self) -> None:
        for number, metric in iter(self._queue.get, None):
            with suppress(Exception):  # the loop raises it, where it fetches the metrics
                metric.block_until_ready()
            self._complete = (number, time.perf_counter())

    def next_batch(self, batches: Iterator[Any]) -> Any:
        """The next batch of an iterator."""
        before = self._times.total("data")
        with self._times.phase("data"):
            batch = next(batches)
        ended = time.perf_counter()
        self._waited = (ended - (self._times.total("data") - before), ended)
        return batch

    def dispatch(self, train_step: Callable[[Any, Any], tuple[Any, Any]], state: Any, batch: Any) -> tuple[Any, Any]:
        """Calls the train step, whose second result holds arrays."""
        began = time.perf_counter()
        with self._times.phase("steps" if self._number else "compile"):
            state, metrics = train_step(state, batch)
        metric = jax.tree.leaves(metrics)[0]
        # A call that computes the step by itself, as it may on a CPU, begins with it.
        dispatched = began if metric.is_ready() else time.perf_counter()
        last, completed = self._complete
        if last < self._number:  # the devices still compute the step before
            completed = dispatched
        self._number += 1
        self._queue.put((self._number, metric))
        self._sums["steps"] += 1
        if self._in_flight:  # else all of the wait for the batch is lost, but says nothing of the pace
            began_wait, ended_wait = self._waited
            data = max(ended_wait - max(began_wait, completed), 0.0)
            self._times.move(ended_wait - began_wait - data, "data", "steps")
            self._sums.update(host=max(dispatched - completed, data, 0.0), data=data)
        self._in_flight = True
        return state, metrics

    def settled(self) -> None:
        """The devices have nothing to do, because the loop evaluates or saves: that is not a wait for the host."""
        self._in_flight = False

    def figures(self, step_seconds: float) -> Figures:
        """`host_seconds_per_step` and `data_seconds_per_step` since the last call, of steps of so many seconds; also
        compares the hosts now and then."""
        steps = max(self._sums["steps"], 1)
        self._unsent.update(self._sums | Counter(seconds=step_seconds * self._sums["steps"]))
        figures = {f"{name}_seconds_per_step": self._sums[name] / steps for name in ("host", "data")}
        self._sums.clear()
        if time.monotonic() - self._sent_at >= EXCHANGE_SECONDS and self._unsent["steps"]:
            self._compare()
            self._sent_at = time.monotonic()
            self._unsent.clear()
        return figures

    def _compare(self) -> None:
        means = (self._unsent[name] / self._unsent["steps"] for name in ("seconds", "host", "data"))
        paces = [HostPace(jax.process_index(), socket.gethostname(), *means)]
        if jax.process_count() > 1:
            # Nobody waits: process 0 reads what each of the others wrote last.
            with suppress(jax.errors.JaxRuntimeError):  # another process is gone; the heartbeat says so
                hosts.set_value(f"{_FOLDER}/{jax.process_index()}", json.dumps(astuple(paces[0])))
                if hosts.is_first():
                    paces = [HostPace(*json.loads(value)) for value in hosts.get_values(_FOLDER)]
        if not hosts.is_first():
            return
        now = time.monotonic()
        slow = {
            process: message
            for process, message in sorted(find_slow_hosts(paces).items())
            if now - self._warned_at.get(process, -_REPEAT_SECONDS) >= _REPEAT_SECONDS
        }
        self._warned_at |= dict.fromkeys(slow, now)
        if slow:
            more = f"; and so do {len(slow) - _MAX_NAMED} more processes" if len(slow) > _MAX_NAMED else ""
            self._warn("; ".join([*slow.values()][:_MAX_NAMED]) + more)
