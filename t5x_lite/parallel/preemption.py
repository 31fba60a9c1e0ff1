"""Stopping by SIGTERM (a preempted machine) or SIGINT (Ctrl-C), here or on any other host; all stop at one step."""

import _thread
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

import jax

from t5x_lite.parallel import hosts

_POLL_SECONDS = 0.2
_POLLS_BETWEEN_OTHERS = 5  # polls of this process between two of the others
_REQUESTS, _BOUNDS = "t5x_lite/stop/requests", "t5x_lite/stop/bounds"


class Stopped(BaseException):
    """Raised where a signal arrives outside the loop: there is nothing to save yet."""


class StopSignals:
    """A context in which the first SIGTERM or SIGINT requests a stop, and a second SIGINT ends the process at once.

    Before `start_loop` a signal raises `Stopped` where it arrives, and in all other processes of the run. From then on
    the loop calls `should_stop` at each step, and all processes stop before the same one.
    """

    def __init__(self) -> None:
        self._requested = False
        self._in_loop = False
        self._sync: PreemptionSync | None = None

    def start_loop(self) -> None:
        """From now on signals wait for `should_stop`; returns once all processes have called it."""
        self._in_loop = True
        if self._sync is not None:
            self._sync.start_loop()

    def should_stop(self, step: int) -> bool:
        """Whether to stop before this step."""
        return self._requested if self._sync is None else self._sync.should_stop(step)

    def __enter__(self) -> "StopSignals":
        self._handlers = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        if jax.process_count() > 1:
            self._sync = PreemptionSync(lambda: self._requested, lambda: _thread.interrupt_main(signal.SIGTERM))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._sync is not None:
            if isinstance(error, Stopped):
                self._sync.request_stop()
            self._sync.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._requested and number == signal.SIGINT:
            sys.stderr.write("stopped at once; the last complete checkpoint stands\n")
            sys.stderr.flush()
            os._exit(130)
        self._requested = True
        if not self._in_loop:
            raise Stopped


class PreemptionSync:
    """A thread that watches whether any process is to stop, and agrees with all others on the step to stop before.

    Each process publishes the first step that it has not begun and begins none from there on until all have published
    theirs; they stop before the largest. The thread publishes it, since the loop may be waiting for a step that other
    processes still have to begin. JAX's `reached_preemption_sync_point` handles SIGTERM alone, by a handler that ours
    would replace, and neither SIGINT nor a stop before the first step.

    Args:
      is_requested: whether this process is to stop.
      on_request: called in the thread when another process is.
    """

    def __init__(self, is_requested: Callable[[], bool], on_request: Callable[[], None]):
        self._is_requested, self._on_request = is_requested, on_request
        self._process, self._num_processes = jax.process_index(), jax.process_count()
        self._change = threading.Condition()
        self._in_loop = False
        self._next_step = 0
        self._bound: int | None = None
        self._stop: int | None = None
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="preemption sync")
        self._thread.start()

    def start_loop(self) -> None:
        """From now on every process calls `should_stop` before each step; returns once all do."""
        self._in_loop = True
        hosts.exchange("")

    def should_stop(self, step: int) -> bool:
        """Whether all processes stop before this step; otherwise it counts as begun."""
        with self._change:
            while self._bound is not None and step >= self._bound and self._stop is None and self._error is None:
                self._change.wait(_POLL_SECONDS)
            if self._error is not None:
                raise self._error
            if self._stop is not None and step >= self._stop:
                return True
            self._next_step = step + 1
            return False

    def request_stop(self) -> None:
        """Stops the other processes too."""
        hosts.set_value(f"{_REQUESTS}/{self._process}", "")

    def close(self) -> None:
        self._closed.set()
        self._thread.join(5)

    def _watch(self) -> None:
        try:
            polls = 0
            while not self._closed.wait(_POLL_SECONDS):
                polls += 1
                if self._is_requested():
                    if self._in_loop:
                        self.request_stop()
                elif polls % _POLLS_BETWEEN_OTHERS == 0 and hosts.get_values(_REQUESTS):
                    self._on_request()
                else:
                    continue
                if not self._in_loop:
                    return
                with self._change:
                    self._bound = self._next_step
                hosts.set_value(f"{_BOUNDS}/{self._process}", json.dumps(self._bound))
                while len(bounds := hosts.get_values(_BOUNDS)) < self._num_processes:
                    if self._closed.wait(_POLL_SECONDS):
                        return
                with self._change:
                    self._stop = max(map(json.loads, bounds))
                    self._change.notify_all()
                return
        except Exception as error:
            with self._change:
                self._error = error
                self._change.notify_all()
