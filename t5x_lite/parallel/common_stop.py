"""All processes of a run stop before one and the same step, whichever of them was asked to."""

import json
import threading
from collections.abc import Callable

import jax

from t5x_lite.parallel import hosts

_LOOK_SECONDS = 0.2
_ASK_EVERY = 5  # looks at one's own between two looks at the others
_ASKED, _BOUNDS = "t5x_lite/stop/asked", "t5x_lite/stop/bounds"


class CommonStop:
    """Watches, in a thread of its own, whether any process is asked to stop, and settles the step before which all do.

    Each process says which step it has not begun yet, and begins no further one until all have said so; the largest of
    these numbers it is. The thread says it, not the loop: the loop may be waiting for a step that others still have to
    begin.

    Args:
      asked: whether this process was asked to stop.
      tell: is called in the thread when another one was.
    """

    def __init__(self, asked: Callable[[], bool], tell: Callable[[], None]):
        self._asked, self._tell = asked, tell
        self._process, self._processes = jax.process_index(), jax.process_count()
        self._change = threading.Condition()
        self._held = False
        self._not_begun = 0
        self._bound: int | None = None
        self._stop: int | None = None
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="common stop")
        self._thread.start()

    def hold(self) -> None:
        """From now on every process asks `before` each step; returns when all do."""
        self._held = True
        hosts.exchange("")

    def before(self, step: int) -> bool:
        """Whether all stop before this step; else it is begun."""
        with self._change:
            while self._bound is not None and step >= self._bound and self._stop is None and self._error is None:
                self._change.wait(_LOOK_SECONDS)
            if self._error is not None:
                raise self._error
            if self._stop is not None and step >= self._stop:
                return True
            self._not_begun = step + 1
            return False

    def tell_others(self) -> None:
        """Has the others stop where this process has already gone."""
        hosts.tell(_ASKED, "")

    def close(self) -> None:
        """Ends the watching."""
        self._closed.set()
        self._thread.join(5)

    def _watch(self) -> None:
        try:
            looks = 0
            while not self._closed.wait(_LOOK_SECONDS):
                looks += 1
                if self._asked():
                    if self._held:
                        self.tell_others()
                        self._settle()
                    return
                if looks % _ASK_EVERY == 0 and hosts.find(_ASKED) is not None:
                    self._tell()
                    if self._held:
                        self._settle()
                    return
        except Exception as error:
            with self._change:
                self._error = error
                self._change.notify_all()

    def _settle(self) -> None:
        with self._change:
            self._bound = self._not_begun
        hosts.tell(f"{_BOUNDS}/{self._process}", json.dumps(self._bound))
        while len(said := hosts.find_all(_BOUNDS)) < self._processes:
            if self._closed.wait(_LOOK_SECONDS):
                return
        with self._change:
            self._stop = max(map(json.loads, said))
            self._change.notify_all()
