"""Opening a model from wherever it lies: a run's folder, one of its checkpoints, a Hugging Face folder or hub name."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jax.sharding import SingleDeviceSharding

from t5x_lite.convert import import_folder, is_huggingface_folder
from t5x_lite.convert.huggingface import Imported
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, local_or_bucket
from t5x_lite.models import abstract_params
from t5x_lite.runs.checkpoints import (
    Checkpoint,
    Folder,
    is_checkpoint,
    read_checkpoint,
    read_description,
    steps_of_run,
    write_model,
)
from t5x_lite.runs.workdir import tokenizer_from_files
from t5x_lite.training.experiment import Experiment


@dataclass(frozen=True)
class OpenedModel(Imported):
    """A model with its parameters on one CPU device, and what came with them; `vocabulary` may be None in a run."""

    experiment: Experiment | None = None
    """The run that made it; None for a Hugging Face folder."""


def open_model(path: str | Path) -> OpenedModel:
    """The model at `path`. No code from the folder is run, nothing is unpickled.

    Raises `InputError` for a folder of another format, or one that is truncated or inconsistent.
    """
    folder = local_or_bucket(path)
    if not is_in_bucket(folder):
        folder = folder if folder.exists() else _download(str(path))
        if is_huggingface_folder(folder):
            imported = import_folder(folder)
            params = jax.device_put(imported.params, jax.local_devices(backend="cpu")[0])
            return OpenedModel(**vars(imported) | {"params": params})
    checkpoint = open_checkpoint(folder)
    experiment, config = checkpoint.experiment, checkpoint.experiment.model
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    if tokenizer and config.vocab_size is not None and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "it is not the one that the model was trained with"
        )
    if tokenizer:
        vocabulary = tokenizer.vocabulary
    else:
        vocabulary = experiment.generation.vocabulary(config.vocab_size) if config.vocab_size else None
    return OpenedModel(
        config, checkpoint.params, tokenizer, vocabulary, experiment.generation, experiment.origin, experiment
    )


def open_checkpoint(folder: Folder) -> Checkpoint:
    """The checkpoint in a run's folder (the latest) or in a step's."""
    step = checkpoint_folder(folder)
    checkpoint = read_checkpoint(step, SingleDeviceSharding(jax.local_devices(backend="cpu")[0]))
    needed, present = shapes(nn.unbox(abstract_params(checkpoint.experiment.model))), shapes(checkpoint.params)
    if different := sorted(path for path in needed | present if needed.get(path) != present.get(path)):
        path = different[0]
        raise InputError(
            f"{step} does not fit its model: {len(different)} parameters differ, the first is {path} with shape "
            f"{present.get(path)} where the model has {needed.get(path)}; use another checkpoint"
        )
    return checkpoint


def checkpoint_folder(folder: Folder) -> Folder:
    """The folder of a run's latest step, or `folder` itself if it is a step's."""
    steps = [folder] if is_checkpoint(folder) else steps_of_run(folder)
    if not steps:
        raise InputError(
            f"{folder} holds no checkpoint; name a run's folder, one of its checkpoints, or a Hugging Face folder"
        )
    return steps[-1]


def shapes(params: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by its path with slashes."""
    return {path: leaf.shape for path, leaf in traverse_util.flatten_dict(params, sep="/").items()}


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.model", "*.spm", "vocab.txt", "merges.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name} is neither a folder here nor a model on the Hugging Face hub ({reason}); check the name"
        ) from None


def last_checkpoints(run: Path, count: int) -> list[Path]:
    """The folders of a run's last `count` checkpoints, the earliest first; `InputError` where there are fewer."""
    steps = steps_of_run(run)
    if not steps:
        raise InputError(f"{run} holds no checkpoints to average; name a run's folder, or folders of checkpoints")
    if len(steps) < count:
        raise InputError(
            f"last={count} exceeds the {len(steps)} checkpoints that {run} holds ({', '.join(s.name for s in steps)}); "
            f"choose {len(steps)} or fewer, and let the next run keep more with checkpoints.keep_last"
        )
    return steps[-count:]


def average_checkpoints(
    folders: Sequence[Path], output: Path, progress: Callable[[Path], None] = lambda folder: None
) -> None:
    """Writes the mean of the parameters that `load` opens in each folder, as a checkpoint without an optimizer's state.

    Experiment and tokenizer are the last folder's. One checkpoint is in memory at a time, beside the sum in float64.
    Raises `InputError`, before anything is written, where the checkpoints differ in model or tokenizer, one cannot be
    read, or `output` exists.

    Args:
      folders: checkpoints, one or more.
      output: the new folder.
      progress: called with each folder before it is read.
    """
    if output.exists():
        raise InputError(f"output={output} is there already; remove it or choose another --output")
    descriptions = [read_description(folder) for folder in folders]
    prints = [getattr(tokenizer_from_files(files), "fingerprint", None) for _, files in descriptions]
    experiment, tokenizer_files = descriptions[-1]
    last = experiment.model
    for folder, (other, _), fingerprint in zip(folders, descriptions, prints, strict=True):
        if type(other.model) is not type(last):
            what = f"{type(other.model).__name__} there, {type(last).__name__} here"
        elif other.model != last:
            names = [field.name for field in dataclasses.fields(last)]
            values = [(name, getattr(other.model, name), getattr(last, name)) for name in names]
            what = ", ".join(f"model.{name} {one!r} there, {two!r} here" for name, one, two in values if one != two)
        elif fingerprint != prints[-1]:
            what = "another tokenizer there"
        else:
            continue
        raise InputError(f"{folder} is unlike {folders[-1]} ({what}); average checkpoints of one model and tokenizer")
    total: Any = None
    for folder in folders:
        progress(folder)
        # The shapes are those of the model, which is the same in all.
        params = open_checkpoint(folder).params
        if total is None:
            total = jax.tree.map(lambda leaf: np.array(leaf, np.float64), params)
        else:
            jax.tree.map(lambda sum, leaf: np.add(sum, leaf, out=sum), total, params)
    mean = jax.tree.map(lambda sum: (sum / len(folders)).astype(np.float32), total)
    write_model(output, experiment, tokenizer_files, mean)
