"""Training from a notebook: a run, and what became of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import jax
from etils import epath
from rich.console import Console

from t5x_lite.files import local_or_bucket, read_bytes
from t5x_lite.pretrained import Pretrained, load
from t5x_lite.runs import loop
from t5x_lite.runs.profiling import ProfileSteps
from t5x_lite.runs.records import Callback, read_records
from t5x_lite.training.experiment import Experiment


@dataclass(frozen=True, repr=False)
class Run:
    """A run in its folder."""

    experiment: Experiment
    workdir: epath.Path
    finished: bool
    """Whether it came to its end; a signal may have stopped it."""

    def __repr__(self) -> str:
        state = "finished" if self.finished else "stopped before its end"
        return f"Run: {self.workdir}, {state}\n  attributes: experiment, figures, held_out, model"

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`: `step`, `kind` (`train`, `held_out` or `checkpoint`) and the figures."""
        return read_records(self.workdir / "metrics.jsonl")

    @property
    def held_out(self) -> dict[str, Any]:
        """The held-out figures at its end, with those of guessing beside them; empty where it was stopped before."""
        path = self.workdir / "held_out.json"
        return json.loads(read_bytes(path)) if path.exists() else {}

    @cached_property
    def model(self) -> Pretrained:
        """Its last checkpoint, opened by `load`."""
        return load(self.workdir)


def train(
    experiment: Experiment,
    workdir: str | PathLike[str],
    console: Console | None = None,
    devices: Sequence[jax.Device] | None = None,
    callbacks: Sequence[Callback] = (),
    profile: str = "",
) -> Run:
    """Runs the experiment to its end, or to a signal that stops it; resumes the run in the folder, if there is one.

    Args:
      experiment: what to train on which data, and how.
      workdir: for checkpoints, records and pictures, on a disk or in a bucket.
      console: where process 0 prints; standard output unless given, such as `Console(quiet=True)`.
      devices: default to all.
      callbacks: called after each step, evaluation and checkpoint.
      profile: START:STEPS, steps to write a profile of for TensorBoard or XProf; empty: none.

    Raises `InputError` for an experiment that does not fit its data, its devices or the folder, before anything that
    was in the folder is touched; `NonFiniteError` after writing `workdir/nonfinite` to look into.
    """
    steps = ProfileSteps.parse(profile, experiment.steps)
    finished = loop.train(experiment, workdir, console, devices, callbacks, steps)
    return Run(experiment, epath.Path(local_or_bucket(workdir)), finished)
