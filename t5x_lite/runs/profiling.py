"""A trace of some steps for TensorBoard or XProf."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically
from t5x_lite.parallel import hosts
from t5x_lite.runs.goodput import RunTimes

FOLDER = "tensorboard/plugins/profile"
"""Of a run, in which TensorBoard looks for traces."""


@dataclass(frozen=True)
class ProfileSteps:
    """The steps of a trace, counted as the records count them, from 1."""

    first: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @classmethod
    def parse(cls, text: str, steps: int) -> "ProfileSteps | None":
        """The steps START:STEPS of a run of `steps`; None for an empty text. Raises `InputError` for others.

        >>> ProfileSteps.parse("10:5", 100).last
        14
        """
        if not text:
            return None
        match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", text)
        if not match:
            raise InputError(f"profile={text!r} is not START:STEPS; give the first step and their number, such as 10:5")
        profile = cls(*map(int, match.groups()))
        if profile.first < 1 or profile.count < 1 or profile.last > steps:
            raise InputError(
                f"profile={text} means steps {profile.first} to {profile.last}, and the run has steps 1 to {steps}; "
                "choose some of them"
            )
        return profile


class Profiler:
    """Traces some steps of a run, in process 0; a context manager that drops a trace whose end did not come.

    Args:
      steps: None for no trace.
      first: updates that were done before; a run that goes on from within the steps, or after them, traces none.
      workdir: the run's folder, on a disk or in a bucket.
      times: the time of writing the trace counts there as `profile`.
      report: takes a sentence.
    """

    def __init__(
        self,
        steps: ProfileSteps | None,
        first: int,
        workdir: epath.Path,
        times: RunTimes,
        report: Callable[[str], None],
    ) -> None:
        self._workdir, self._times, self._report = workdir, times, report
        self._steps = steps if hosts.is_first() else None
        self._local: tempfile.TemporaryDirectory[str] | None = None
        if self._steps is not None and first >= self._steps.first:
            self._report(f"no profile: the run goes on from step {first}, and step {self._steps.first} is done")
            self._steps = None

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._local is not None:
            jax.profiler.stop_trace()
            self._local.cleanup()

    def begins_or_ends(self, step: int, metrics: Any) -> bool:
        """Begins or ends the trace where that is due before the update number `step`; returns whether it was.

        `metrics` are those of the last update that was dispatched, for which it waits then.
        """
        if self._steps is None or step not in (self._steps.first, self._steps.last + 1):
            return False
        if step > self._steps.last:
            self.end(metrics)
            return True
        with self._times.phase("profile"):
            jax.block_until_ready(metrics)  # so that it is not in the trace
            self._local = tempfile.TemporaryDirectory(prefix="t5x_lite-profile-")
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # a call of every function would crowd out the devices' operations
            jax.profiler.start_trace(self._local.name, profiler_options=options)
        return True

    def end(self, metrics: Any) -> None:
        """Writes the trace if one has begun."""
        if self._local is None:
            return
        with self._times.phase("profile"):
            jax.block_until_ready(metrics)
            jax.profiler.stop_trace()
            # The profiler itself writes to no bucket.
            target = self._workdir / FOLDER / f"steps_{self._steps.first}_to_{self._steps.last}"
            target.mkdir(parents=True, exist_ok=True)
            for path in Path(self._local.name).glob("plugins/profile/*/*"):
                write_atomically(target / path.name, path.read_bytes())
            self._local.cleanup()
            self._local = None
        self._report(f"profile of steps {self._steps.first} to {self._steps.last}: {target}")
