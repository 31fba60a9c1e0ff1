"""Opening a model from wherever it lies: a run's folder, one of its checkpoints, a Hugging Face folder or hub name."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn
from flax import traverse_util
from jax.sharding import SingleDeviceSharding

from t5x_lite.convert import import_folder, is_huggingface_folder
from t5x_lite.data import Tokenizer, Vocabulary, load_tokenizer
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.training.checkpoints import Checkpoint, Files, Folder, is_checkpoint, latest_step, read_checkpoint
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.run_files import is_in_bucket, local_or_bucket


@dataclass(frozen=True)
class OpenedModel:
    """An architecture, its parameters on one CPU device, and what came with them."""

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None
    experiment: Experiment | None
    """The run that made it; None for a Hugging Face folder."""
    vocabulary: Vocabulary
    """The tokenizer's; without one, what else is known of the special ids."""
    generation: GenerationDefaults
    """What a Hugging Face folder, or the run that began as one, says of how its model writes."""


def open_model(path: str | Path) -> OpenedModel:
    """The model at `path`. No code from the folder is run, nothing is unpickled.

    Raises `InputError` for what is none of the places named above, is truncated, or does not fit together.
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
    if tokenizer and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "it is not the one that the model was trained with"
        )
    experiment, generation = checkpoint.experiment, checkpoint.experiment.generation
    vocabulary = tokenizer.vocabulary if tokenizer else generation.vocabulary(config.vocab_size)
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
            f"{name} is no folder here and no model on the Hugging Face hub ({reason}); check the name"
        ) from None
