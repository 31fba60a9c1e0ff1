"""Asked to stop: by SIGTERM (a preempted machine) or SIGINT (Ctrl-C), here or on any other host of the run."""

import _thread
import os
import signal
import sys
from types import FrameType, TracebackType

import jax

from t5x_lite.parallel.processes import PreemptionSync


class Stopped(BaseException):
    """Raised where a stop is asked for outside the loop: there is nothing to save yet."""


class StopSignals:
    """Within it, the first SIGTERM or SIGINT asks to stop, a second SIGINT ends the process at once.

    Before `hold` is called a stop raises `Stopped` where it arrives, and in all other processes of the run; afterwards
    it is for the loop to ask `before` each step, and all processes stop before the same one.
    """

    def __init__(self) -> None:
        self._asked = False
        self._held = False
        self._common: PreemptionSync | None = None

    def hold(self) -> None:
        """From now on the loop asks by itself."""
        self._held = True
        if self._common is not None:
            self._common.hold()

    def before(self, step: int) -> bool:
        """Whether to stop before this step."""
        return self._asked if self._common is None else self._common.before(step)

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        if jax.process_count() > 1:
            self._common = PreemptionSync(lambda: self._asked, lambda: _thread.interrupt_main(signal.SIGTERM))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._common is not None:
            if isinstance(error, Stopped):
                self._common.tell_others()
            self._common.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            sys.stderr.write("stopped at once; the last complete checkpoint stands\n")
            sys.stderr.flush()
            os._exit(130)
        self._asked = True
        if not self._held:
            raise Stopped
