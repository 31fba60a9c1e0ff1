"""Checkpoints: the one file that knows Orbax.

A checkpoint is a self-contained folder: the experiment, the tokenizer, the parameters, and what only training needs
(step, optimizer state). Writing is asynchronous and atomic: a folder has its final name when it is complete. Each
process of a run writes its shards and their checksums; folders are on a disk or in a bucket.
"""

import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint.experimental.v1 as ocp
from etils import epath
from jax.sharding import Sharding

from t5x_lite.checksums import file_names, find_damage, is_checked, write_checksums
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket
from t5x_lite.models import ModelConfig
from t5x_lite.parallel import hosts
from t5x_lite.retrieval.index import Index
from t5x_lite.training.experiment import Checkpointing, Experiment
from t5x_lite.training.step import TrainState

Folder = Path | epath.Path
Files = dict[str, bytes]
"""A small folder in memory: names and contents."""


@dataclass(frozen=True)
class Checkpoint:
    """What a step's folder holds for using the model; `read_state` reads what training needs too."""

    experiment: Experiment
    tokenizer_files: Files
    params: Any
    """The average of the parameters where the run keeps one."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is complete."""

    step: int
    blocked_seconds: float
    """In which training waited: for the write before, and for the copy of the state."""
    written_seconds: float
    """From the beginning until it was complete, checksums included."""
    written_at: float
    """In seconds since 1970."""


class Checkpoints:
    """The checkpoints of a run, in `folder/<step>`; a context manager that waits for the last write."""

    def __init__(self, folder: Folder, options: Checkpointing):
        policies = ocp.training.preservation_policies
        # reverse: the best is the one with the lowest loss.
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics["loss"],
            reverse=True,
            n=options.keep_best,
            keep_checkpoints_without_metrics=False,
        )
        keep = [policies.LatestN(options.keep_last), *([best] if options.keep_best else [])]
        self.folder = _absolute(folder)
        self._policy = policies.AnyPreservationPolicy(keep)
        self._orbax = ocp.training.Checkpointer(
            self.folder,
            preservation_policy=self._policy,
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            cleanup_tmp_directories=True,
        )
        self._started = self.latest
        self._finished: deque[Saved] = deque()
        self._writing: Any = None
        self._checked = threading.Event()  # whether the checksums of the last write are there, or failed
        self._failure: Exception | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._orbax.close()
        finally:
            with suppress(Exception):  # which was raised before
                self._end_write()

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
            self._remove_old()
            return step
        training = {"training": _training_items(state)}
        average = {} if state.average is None else {"average": state.average}
        began = time.monotonic()
        self._end_write()
        writing = self._orbax.save_checkpointables_async(
            step,
            _model_items(experiment, tokenizer_files, state.params) | training | average,
            metrics=None if held_out_loss is None else {"loss": held_out_loss},
        )
        blocked = time.monotonic() - began

        def complete(_: Any) -> None:
            """Called in a thread of Orbax's when all is written; what it raised there would be logged and forgotten."""
            try:
                _write_checksums(self.folder / str(step))
                self._finished.append(Saved(step, blocked, time.monotonic() - began, time.time()))
            except Exception as error:
                self._failure = error
            finally:
                self._checked.set()

        self._checked.clear()
        writing.on_complete(complete)
        self._started, self._writing = step, writing
        return step

    def _remove_old(self) -> None:
        """Removes what a write removes at its end, unless its process was killed before."""
        if self._writing is not None:
            return
        context, checkpoints = ocp.training.preservation_policies.PreservationContext(), self._orbax.checkpoints
        kept = self._policy.should_preserve(checkpoints, context=context)
        for checkpoint in [one for one, keeps in zip(checkpoints, kept, strict=True) if not keeps]:
            self._orbax.delete(checkpoint.step)

    def finished(self) -> list[Saved]:
        """What was completed since the last call."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def wait(self) -> None:
        self._orbax.wait()
        self._end_write()  # `finished` knows of it then

    def _end_write(self) -> None:
        """Waits for the last write, and has Orbax end its thread: it lives, with three open files, until it is asked
        for its result."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
            self._checked.wait()  # waiters may be woken before what is called at the end has run
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure


def _training_items(state: TrainState) -> dict[str, Any]:
    """What only training needs, of a state or of its shapes."""
    items = {"step": state.step, "opt_state": state.opt_state, "memory": state.memory, "index": _fields(state.index)}
    return {name: item for name, item in items.items() if item is not None}


def _fields(index: Index | None) -> dict[str, Any] | None:
    """An index as a dictionary, without what it has not."""
    if index is None:
        return None
    return {name: value for name, value in vars(index).items() if value is not None}


def _model_items(experiment: Experiment, tokenizer_files: Files, params: Any) -> dict[str, Any]:
    """What every checkpoint holds, by the names of its sub-folders."""
    files = {"experiment": {"experiment.json": experiment.to_json().encode()}, "tokenizer": tokenizer_files}
    arrays = {
        folder: {name: np.frombuffer(content, np.uint8) for name, content in contents.items()}
        for folder, contents in files.items()
        if contents
    }
    return arrays | {"params": params}


def write_checkpoint(folder: Folder, step: int, experiment: Experiment, tokenizer_files: Files, params: Any) -> None:
    """Writes a checkpoint without step and optimizer state to `folder/<step>`."""
    write_model(folder / str(step), experiment, tokenizer_files, params)


def write_model(folder: Folder, experiment: Experiment, tokenizer_files: Files, params: Any) -> None:
    """Writes `folder` as a checkpoint without step and optimizer state; it exists when it is complete."""
    ocp.save_checkpointables(_absolute(folder), _model_items(experiment, tokenizer_files, params))
    _write_checksums(folder)


_SHARD = re.compile(r".*/ocdbt\.process_(\d+)/.*")


def _write_checksums(folder: Folder) -> None:
    """Of the shards that this process wrote to a complete checkpoint, and in process 0 of all other files."""
    process, shards = jax.process_index(), {name: _SHARD.fullmatch(name) for name in file_names(folder)}
    names = [name for name, shard in shards.items() if (int(shard[1]) if shard else 0) == process]
    write_checksums(folder, names, process)


def read_checkpoint(folder: Folder, sharding_of: Callable[[ModelConfig, Any], Any], dtype: Any = None) -> Checkpoint:
    """Opens the checkpoint in `folder` without its optimizer state.

    Args:
      sharding_of: gives, for the model and its abstract parameters, one sharding for all of them or a tree.
      dtype: of the parameters; None: as they were written.

    Raises `InputError` if the folder is not a checkpoint of ours, or is truncated.
    """
    with _checked(folder, lambda name: not name.startswith("training/")):
        metadata = _metadata(folder)
        experiment, tokenizer_files = _description(folder, metadata)
        name = "average" if "average" in metadata else "params"
        sharding = sharding_of(experiment.model, metadata[name])
        if isinstance(sharding, Sharding):
            sharding = jax.tree.map(lambda leaf: sharding, metadata[name])
        abstract = jax.tree.map(
            lambda leaf, one: jax.ShapeDtypeStruct(leaf.shape, dtype or leaf.dtype, sharding=one),
            metadata[name],
            sharding,
        )
        return Checkpoint(experiment, tokenizer_files, _load(folder, {name: abstract})[name])


def read_description(folder: Folder) -> tuple[Experiment, Files]:
    """The experiment and the tokenizer's files of the checkpoint in `folder`; raises as `read_checkpoint` does."""
    with _checked(folder, lambda name: not name.startswith(("training/", "params/", "average/"))):
        return _description(folder, _metadata(folder))


def _description(folder: Folder, metadata: dict[str, Any]) -> tuple[Experiment, Files]:
    items = _load(folder, {name: None for name in ("experiment", "tokenizer") if name in metadata})
    if "experiment.json" not in items["experiment"]:
        raise InputError(
            f"{folder} holds no experiment that this version of t5x_lite can read; use the one that wrote it"
        )
    files = {
        part: {name: np.asarray(content).tobytes() for name, content in contents.items()}
        for part, contents in items.items()
    }
    return Experiment.from_json(files["experiment"]["experiment.json"]), files.get("tokenizer", {})


def read_state(folder: Folder, abstract: TrainState) -> TrainState:
    """The whole state in a checkpoint's folder, on the devices that the abstract state's shardings name.

    An average that the checkpoint lacks begins as its parameters, and a memory of other rows than its own anew. Raises
    `InputError` where its index is of another corpus.
    """
    metadata = _metadata(folder)
    if "training" not in metadata:
        raise InputError(
            f"{folder} holds parameters alone (they were converted or averaged); train into another workdir"
        )
    abstract_items = {"params": abstract.params, "training": _training_items(abstract)}
    if abstract.average is not None and "average" in metadata:
        abstract_items["average"] = abstract.average
    saved = metadata["training"].get("memory")
    goes_on = _shapes_of(saved) == _shapes_of(abstract.memory)
    if not goes_on:
        abstract_items["training"]["memory"] = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=abstract.step.sharding), saved
        )
    index = _fields(abstract.index)
    if _shapes_of(metadata["training"].get("index")) != _shapes_of(index):
        raise InputError(
            f"{folder} holds no index of this corpus, or one that is refreshed at another pace; begin with FromModel, "
            "which makes a new one"
        )
    items = _load(folder, abstract_items)
    average = None
    if abstract.average is not None:
        average = items.get("average") or jax.tree.map(jnp.copy, items["params"])
    finite = jax.device_put(np.bool_(True), abstract.finite.sharding)
    training = items["training"]
    if not goes_on:
        training = {**training, "memory": jax.tree.map(_zeros, abstract.memory)}
    if index is not None:
        training = {**training, "index": Index(**dict.fromkeys(("following", "encoder")) | training["index"])}
    return TrainState(params=items["params"], finite=finite, average=average, **training)


def _shapes_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (*leaf.shape, np.dtype(leaf.dtype)), tree)


def _zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.jit(lambda: jnp.zeros(leaf.shape, leaf.dtype), out_shardings=leaf.sharding)()


@contextmanager
def _checked(folder: Folder, wanted: Callable[[str], bool]) -> Iterator[None]:
    """A context in which a checkpoint is read while a thread compares its files; see `_check`, whose error goes before
    any that reading them gives."""
    with ThreadPoolExecutor(1) as threads:
        check = threads.submit(_check, folder, wanted)
        try:
            yield
        finally:
            check.result()


def _check(folder: Folder, wanted: Callable[[str], bool]) -> None:
    """Raises `InputError` where files of a checkpoint are damaged; it names the run's last one that is not."""
    if not is_checkpoint(folder):
        return
    if damage := find_damage(folder, wanted):
        others = [step for step in steps_of_run(folder.parent.parent) if step.name != folder.name]
        good = next((step for step in reversed(others) if not find_damage(step)), None)
        remedy = f"use {good}, the last one of the run that is not" if good else "use a copy of it"
        raise InputError(f"{folder} is damaged: {damage}; {remedy}")
    if not is_checked(folder):
        warnings.warn(f"{folder} has files without a checksum, whose damage would not be noticed", stacklevel=3)


def is_checkpoint(folder: Folder) -> bool:
    """Whether `folder` looks like one of ours."""
    return (folder / "_CHECKPOINT_METADATA").exists() and (folder / "params").is_dir()


def steps_of_run(run: Folder) -> list[Folder]:
    """The folders of a run's complete checkpoints in the order of their steps, without opening any."""
    folder = run / "checkpoints"
    steps = [child for child in folder.iterdir() if re.fullmatch("[0-9]+", child.name)] if folder.is_dir() else []
    return sorted(steps, key=lambda child: int(child.name))


def leave_damaged(run: Folder) -> list[str]:
    """Makes the latest checkpoint of a run one whose files are what was written, and its earlier ones whole.

    Damaged ones move to the run's folder `damaged`, and so do earlier ones that lack checksums; what is left of one
    whose removal was cut short goes. A process that is killed at the very end of a write leaves the latest one without
    checksums: it gets them.

    Returns a sentence for each change; every process calls it, and reads a share of the files.
    """

    def set_aside(folder: Folder, why: str) -> None:
        aside = run / "damaged" / f"{folder.name}-{int(time.time())}"
        remarks.append(f"{folder} {why}; it is now {aside}")
        if hosts.is_first():
            aside.parent.mkdir(exist_ok=True)
            folder.rename(aside)

    remarks: list[str] = []
    steps = steps_of_run(run)
    while steps:
        damages = hosts.exchange(find_damage(steps[-1], share=(jax.process_index(), jax.process_count())))
        if not any(damages):
            break
        with hosts.in_turn():
            set_aside(steps.pop(), f"is damaged: {max(damages)}")
    with hosts.in_turn():
        for folder in steps if hosts.is_first() else ():
            if folder != steps[-1] and (
                not is_checkpoint(folder) or find_damage(folder, sizes_alone=True).endswith("is missing")
            ):
                epath.Path(folder).rmtree()
                remarks.append(f"{folder} was removed in part; the rest is removed now")
            elif not is_checked(folder) and folder != steps[-1]:
                set_aside(folder, "has files without a checksum, as if it were removed in part")
            elif not is_checked(folder):
                write_checksums(folder)
                remarks.append(f"{folder} had files without a checksum, whose damage until now would not be noticed")
    return remarks


def _absolute(folder: Folder) -> Folder:
    # Orbax takes no other.
    return folder if is_in_bucket(folder) else Path(folder).absolute()


def _metadata(folder: Folder) -> dict[str, Any]:
    with _input_errors(folder):
        metadata = ocp.checkpointables_metadata(_absolute(folder)).metadata
    if missing := {"experiment", "params"} - set(metadata):
        raise InputError(
            f"{folder} is not a checkpoint of t5x_lite (it lacks {', '.join(sorted(missing))}); name a run's folder"
        )
    return metadata


def _load(folder: Folder, abstract_items: dict[str, Any]) -> dict[str, Any]:
    with _input_errors(folder):
        return ocp.load_checkpointables(_absolute(folder), abstract_items)


@contextmanager
def _input_errors(folder: Folder) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Orbax and TensorStore raise many types for a damaged folder
        raise InputError(
            f"{folder} cannot be read as a checkpoint: files of it are missing, cut short or not ours; "
            "use another checkpoint of the run, or a copy"
        ) from error
