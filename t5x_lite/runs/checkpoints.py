"""Checkpoints: the one file that knows Orbax.

A checkpoint is a folder that stands by itself: the experiment, the tokenizer, the parameters, and what only training
needs (step, optimizer state). Writing is asynchronous and atomic: a folder has its final name when it is complete. All
processes of a run write their own parts; folders are on a disk or in a bucket.
"""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint.experimental.v1 as ocp
from etils import epath
from jax.sharding import Sharding

from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket
from t5x_lite.training.experiment import Checkpointing, Experiment
from t5x_lite.training.step import TrainState

Folder = Path | epath.Path
"""On a disk or, if it is one of etils's, in a bucket."""

Files = dict[str, bytes]
"""A small folder in memory: names and contents."""


@dataclass(frozen=True)
class Checkpoint:
    """What a step's folder holds for using the model; training's own part is read by `Checkpoints.restore`."""

    step: int
    experiment: Experiment
    tokenizer_files: Files
    params: Any
    """The average of the parameters where the run keeps one."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is complete."""

    step: int
    blocked_seconds: float
    """For which training stood still: the wait for the write before, and the copy of the state."""
    written_seconds: float
    """From the beginning until it was complete; training went on."""
    written_at: float
    """In seconds since 1970."""


class Checkpoints:
    """The checkpoints of a run, in `folder/<step>`; a context manager that waits for the last write."""

    def __init__(self, folder: Folder, options: Checkpointing):
        policies = ocp.training.preservation_policies
        keep = [policies.LatestN(options.keep_last)]
        if options.keep_best:
            # reverse: the best is the one with the lowest loss.
            keep.append(
                policies.BestN(
                    get_metric_fn=lambda metrics: metrics["loss"],
                    reverse=True,
                    n=options.keep_best,
                    keep_checkpoints_without_metrics=False,
                )
            )
        folder = _absolute(folder)
        self._orbax = ocp.training.Checkpointer(
            folder,
            preservation_policy=policies.AnyPreservationPolicy(keep),
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            cleanup_tmp_directories=True,
        )
        self.folder = folder
        self._started = self.latest
        self._finished: deque[Saved] = deque()
        self._writing: Any = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: Any) -> None:
        self._orbax.close()

    @property
    def latest(self) -> int | None:
        """The step of the latest complete checkpoint."""
        return self._orbax.latest.step if self._orbax.latest else None

    def save(
        self, state: TrainState, experiment: Experiment, tokenizer_files: Files, held_out_loss: float | None = None
    ) -> int:
        """Starts to write the state unless it is there already, waiting only for the write before; returns its step."""
        step = int(jax.device_get(state.step))
        if step == self._started:
            return step
        training = {"training": {"step": state.step, "opt_state": state.opt_state}}
        average = {} if state.average is None else {"average": state.average}
        began = time.monotonic()
        writing = self._orbax.save_checkpointables_async(
            step,
            checkpointables(experiment, tokenizer_files, state.params) | training | average,
            metrics=None if held_out_loss is None else {"loss": held_out_loss},
        )
        blocked = time.monotonic() - began
        # Called in a thread of Orbax's when all is written.
        writing.on_complete(
            lambda _: self._finished.append(Saved(step, blocked, time.monotonic() - began, time.time()))
        )
        self._started, self._writing = step, writing
        return step

    def finished(self) -> list[Saved]:
        """What was completed since the last call."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def wait(self) -> None:
        """Returns when everything is written."""
        self._orbax.wait()
        if self._writing is not None:
            self._writing.result()  # `finished` knows of it then

    def restore(self, step: int, abstract: TrainState) -> TrainState:
        """The state as saved at `step`, on the devices that the abstract state's shardings name."""
        return read_state(self.folder / str(step), abstract)


def checkpointables(experiment: Experiment, tokenizer_files: Files, params: Any) -> dict[str, Any]:
    """What every checkpoint holds, by the names of its sub-folders."""

    def as_arrays(files: Files) -> dict[str, np.ndarray]:
        return {name: np.frombuffer(content, np.uint8) for name, content in files.items()}

    found = {"experiment": as_arrays({"experiment.json": experiment.to_json().encode()}), "params": params}
    return found | ({"tokenizer": as_arrays(tokenizer_files)} if tokenizer_files else {})


def write_checkpoint(folder: Folder, step: int, experiment: Experiment, tokenizer_files: Files, params: Any) -> None:
    """Writes one checkpoint without training's part, to `folder/<step>`."""
    write_model(folder / str(step), experiment, tokenizer_files, params)


def write_model(folder: Folder, experiment: Experiment, tokenizer_files: Files, params: Any) -> None:
    """Writes `folder` as a checkpoint without training's part; it is there when it is complete."""
    ocp.save_checkpointables(_absolute(folder), checkpointables(experiment, tokenizer_files, params))


def read_checkpoint(folder: Folder, sharding: Sharding) -> Checkpoint:
    """Opens the checkpoint in `folder` without its optimizer state, every parameter with the given sharding.

    Raises `InputError` if the folder is none of ours, or is truncated.
    """
    experiment, tokenizer_files = read_description(folder)
    metadata = _metadata(folder)
    name = "average" if "average" in metadata else "params"
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), metadata[name]
    )
    params = _load(folder, {name: abstract})[name]
    step = int(folder.name) if folder.name.isdigit() else 0
    return Checkpoint(step, experiment, tokenizer_files, params)


def read_description(folder: Folder) -> tuple[Experiment, Files]:
    """The experiment and the tokenizer's files of the checkpoint in `folder`, whose parameters are not read.

    Raises `InputError` if the folder is none of ours, or is truncated.
    """
    metadata = _metadata(folder)
    found = _load(folder, {name: None for name in ("experiment", "tokenizer") if name in metadata})
    if "experiment.json" not in found["experiment"]:
        raise InputError(
            f"{folder} holds no experiment that this version of t5x_lite can read; use the one that wrote it"
        )
    files = {
        part: {name: np.asarray(content).tobytes() for name, content in contents.items()}
        for part, contents in found.items()
    }
    return Experiment.from_json(files["experiment"]["experiment.json"].decode()), files.get("tokenizer", {})


def read_state(folder: Folder, abstract: TrainState) -> TrainState:
    """The whole state in a checkpoint's folder, on the devices that the abstract state's shardings name.

    An average that the checkpoint lacks begins as its parameters.
    """
    abstract_items = {"params": abstract.params, "training": {"step": abstract.step, "opt_state": abstract.opt_state}}
    metadata = _metadata(folder)
    if "training" not in metadata:
        raise InputError(
            f"{folder} holds parameters alone (they were converted or averaged); train into another workdir"
        )
    if abstract.average is not None and "average" in metadata:
        abstract_items["average"] = abstract.average
    found = _load(folder, abstract_items)
    average = None
    if abstract.average is not None:
        average = found.get("average") or jax.tree.map(jnp.copy, found["params"])
    return TrainState(
        found["training"]["step"],
        found["params"],
        found["training"]["opt_state"],
        jax.device_put(np.bool_(True), abstract.finite.sharding),
        average,
    )


def is_checkpoint(folder: Folder) -> bool:
    """Whether `folder` looks like one of ours."""
    return (folder / "_CHECKPOINT_METADATA").exists() and (folder / "params").is_dir()


def latest_step(folder: Folder) -> Folder | None:
    """The folder of the latest complete checkpoint in `folder`, without opening any."""
    steps = _steps(folder)
    return steps[-1] if steps else None


def steps_of_run(run: Folder) -> list[Folder]:
    """The folders of a run's complete checkpoints in the order of their steps, without opening any."""
    return _steps(run / "checkpoints")


def _steps(folder: Folder) -> list[Folder]:
    steps = [child for child in folder.iterdir() if child.name.isdigit()] if folder.is_dir() else []
    return sorted(steps, key=lambda child: int(child.name))


def _absolute(folder: Folder) -> Folder:
    # Orbax takes no other.
    return folder if is_in_bucket(folder) else Path(folder).absolute()


def _metadata(folder: Folder) -> dict[str, Any]:
    try:
        metadata = ocp.checkpointables_metadata(_absolute(folder)).metadata
    except Exception as error:
        raise _unreadable(folder) from error
    if missing := {"experiment", "params"} - set(metadata):
        raise InputError(
            f"{folder} is not a checkpoint of t5x_lite (it lacks {', '.join(sorted(missing))}); name a run's folder"
        )
    return metadata


def _load(folder: Folder, abstract_items: dict[str, Any]) -> dict[str, Any]:
    try:
        return ocp.load_checkpointables(_absolute(folder), abstract_items)
    except Exception as error:
        raise _unreadable(folder) from error


def _unreadable(folder: Folder) -> InputError:
    # Orbax and TensorStore have no one exception for this; theirs is kept as the cause.
    return InputError(
        f"{folder} cannot be read as a checkpoint: files of it are missing, cut short or not ours; "
        "use another checkpoint of the run, or a copy"
    )
