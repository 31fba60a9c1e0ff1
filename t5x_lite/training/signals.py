"""Asked to stop: by SIGTERM (a preempted machine) or SIGINT (Ctrl-C)."""

import os
import signal
import sys
from types import FrameType, TracebackType


class Stopped(BaseException):
    """Raised where a stop is asked for outside the loop: there is nothing to save yet."""


class StopSignals:
    """Within it, the first SIGTERM or SIGINT asks to stop, a second SIGINT ends the process at once.

    Before `hold` is called a stop raises `Stopped` where it arrives; afterwards it only sets `asked`, for the loop to
    see between two steps.
    """

    def __init__(self) -> None:
        self.asked = False
        self._held = False

    def hold(self) -> None:
        """From now on the loop looks at `asked` by itself."""
        self._held = True

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            sys.stderr.write("stopped at once; the last complete checkpoint stands\n")
            sys.stderr.flush()
            os._exit(130)
        self.asked = True
        if not self._held:
            raise Stopped
