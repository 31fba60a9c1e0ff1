"""Opening a model from wherever it lies: a run's folder, one of its checkpoints, a Hugging Face folder or hub name."""

import dataclasses
import tempfile
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
from t5x_lite.data import Tokenizer, Vocabulary, load_tokenizer
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, local_or_bucket
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.runs.checkpoints import (
    Checkpoint,
    Files,
    Folder,
    is_checkpoint,
    latest_step,
    read_checkpoint,
    read_description,
    steps_of_run,
    write_model,
)
from t5x_lite.training.experiment import Experiment


@dataclass(frozen=True)
class OpenedModel:
    """An architecture, its parameters on one CPU device, and what came with them."""

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None
    experiment: Experiment | None
    """The run that made it; None for a Hugging Face folder."""
    vocabulary: Vocabulary | None
    """The tokenizer's; without one, what else is known of the special ids; None of a model that reads no ids."""
    generation: GenerationDefaults
    """What a Hugging Face folder, or the run that began as one, says of how its model writes."""


def open_model(path: str | Path) -> OpenedModel:
    """The model at `path`. No code from the folder is run, nothing is unpickled.

    Raises `InputError` for what is none of the folders named above, is truncated, or does not fit together.
    """
    folder = local_or_bucket(path)
    cpu = jax.local_devices(backend="cpu")[0]
    if not is_in_bucket(folder):
        folder = folder if folder.exists() else _download(str(path))
    if not is_in_bucket(folder) and is_huggingface_folder(folder):
        imported = import_folder(folder)
        params = jax.device_put(imported.params, cpu)
        return OpenedModel(imported.config, params, imported.tokenizer, None, imported.vocabulary, imported.generation)
    checkpoint = open_checkpoint(folder)
    config = checkpoint.experiment.model
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    if tokenizer and config.vocab_size is not None and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "it is not the one that the model was trained with"
        )
    experiment, generation = checkpoint.experiment, checkpoint.experiment.generation
    if tokenizer:
        vocabulary = tokenizer.vocabulary
    else:
        vocabulary = generation.vocabulary(config.vocab_size) if config.vocab_size else None
    return OpenedModel(config, checkpoint.params, tokenizer, experiment, vocabulary, generation)


def open_checkpoint(folder: Folder) -> Checkpoint:
    """The checkpoint in a run's folder (the latest) or in a step's."""
    step = checkpoint_folder(folder)
    checkpoint = read_checkpoint(step, SingleDeviceSharding(jax.local_devices(backend="cpu")[0]))
    needed, found = shapes(nn.unbox(abstract_params(checkpoint.experiment.model))), shapes(checkpoint.params)
    if different := sorted(path for path in needed | found if needed.get(path) != found.get(path)):
        path = different[0]
        raise InputError(
            f"{step} does not fit its model: {len(different)} parameters differ, the first is {path} with shape "
            f"{found.get(path)} where the model has {needed.get(path)}; use another checkpoint"
        )
    return checkpoint


def checkpoint_folder(folder: Folder) -> Folder:
    """The folder of a run's latest step, or `folder` itself if it is a step's."""
    step = folder if is_checkpoint(folder) else latest_step(folder / "checkpoints")
    if step is None:
        raise InputError(
            f"{folder} holds no checkpoint; name a run's folder, one of its checkpoints, or a Hugging Face folder"
        )
    return step


def tokenizer_from_files(files: Files) -> Tokenizer | None:
    """The tokenizer that a checkpoint carries; None if it carries none."""
    if not files:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return load_tokenizer(Path(folder))


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
    """The folders of a run's last `count` checkpoints, the earliest first.

    Raises `InputError` where there are fewer.
    """
    found = steps_of_run(run)
    if not found:
        raise InputError(f"{run} holds no checkpoints to average; name a run's folder, or folders of checkpoints")
    if len(found) < count:
        raise InputError(
            f"last={count} exceeds the {len(found)} checkpoints that {run} holds ({', '.join(f.name for f in found)}); "
            f"choose {len(found)} or fewer, and let the next run keep more with checkpoints.keep_last"
        )
    return found[-count:]


def average_checkpoints(
    folders: Sequence[Path], output: Path, progress: Callable[[Path], None] = lambda folder: None
) -> None:
    """Writes the mean of what `load` opens in each folder to `output`, which must not exist.

    All else in `output` is the last folder's: experiment and tokenizer. One checkpoint is in memory at a time, beside
    the sum in float64.

    Args:
      folders: checkpoints, one or more.
      output: becomes the folder of a checkpoint without an optimizer's state.
      progress: called with what is read.

    Raises:
      InputError: the checkpoints differ in model or tokenizer, one cannot be read, or `output` exists. Nothing is
        written then.
    """
    if output.exists():
        raise InputError(f"output={output} is there already; remove it or choose another --output")
    experiment, tokenizer_files = _check_alike(folders)
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


def _check_alike(folders: Sequence[Path]) -> tuple[Experiment, Files]:
    """What the last one says of itself; `InputError` where the model or tokenizer of another differs from its own."""
    descriptions = [read_description(folder) for folder in folders]
    tokenizers = [tokenizer_from_files(files) for _, files in descriptions]
    prints = [None if tokenizer is None else tokenizer.fingerprint for tokenizer in tokenizers]
    last = descriptions[-1][0].model
    for folder, (experiment, _), fingerprint in zip(folders, descriptions, prints, strict=True):
        if type(experiment.model) is not type(last):
            what = f"{type(experiment.model).__name__} there, {type(last).__name__} here"
        elif experiment.model != last:
            both = [
                (f.name, getattr(experiment.model, f.name), getattr(last, f.name)) for f in dataclasses.fields(last)
            ]
            what = ", ".join(f"model.{name} {one!r} there, {other!r} here" for name, one, other in both if one != other)
        elif fingerprint != prints[-1]:
            what = "another tokenizer there"
        else:
            continue
        raise InputError(f"{folder} is unlike {folders[-1]} ({what}); average checkpoints of one model and tokenizer")
    return descriptions[-1]
