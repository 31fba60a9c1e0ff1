"""Opening a model from wherever it lies: a run's folder, one of its checkpoints, a Hugging Face folder or hub name, a
checkpoint of T5X."""

import dataclasses
import importlib.resources
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jax.sharding import Sharding, SingleDeviceSharding

from t5x_lite.convert import (
    find_elmo,
    find_t5x_checkpoint,
    import_elmo,
    import_folder,
    import_t5x,
    is_huggingface_folder,
)
from t5x_lite.convert.huggingface import Imported
from t5x_lite.convert.table import Put
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, local_or_bucket
from t5x_lite.images.augmentation import STATISTICS, PixelStatistics
from t5x_lite.images.preparation import read_processor
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.runs.checkpoints import (
    Checkpoint,
    Folder,
    is_checkpoint,
    read_checkpoint,
    read_description,
    steps_of_run,
    write_model,
)
from t5x_lite.runs.workdir import classes_from_files, tokenizer_from_files
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.training.experiment import Experiment

ShardingOf = Callable[[ModelConfig], Any]
"""One sharding for all parameters of a model, or a tree of them."""


def on_cpu(config: ModelConfig) -> Sharding:
    """All parameters on the first CPU device."""
    return SingleDeviceSharding(jax.local_devices(backend="cpu")[0])


@dataclass(frozen=True)
class OpenedModel(Imported):
    """A model with its parameters, and what came with them; `vocabulary` may be None in a run."""

    experiment: Experiment | None = None
    """The run that made it; None for other people's checkpoints."""
    classes: tuple[str, ...] = ()
    """The names of its data's classes, where they are known from the data alone."""

    @property
    def pixel_statistics(self) -> PixelStatistics | None:
        """What normalizes its pictures; None of models that read none, and where its folder does not have them. Raises
        `InputError` for a preprocessor_config.json that is damaged."""
        augmentation = getattr(self.experiment.objective, "augmentation", None) if self.experiment else None
        if augmentation is not None:
            return STATISTICS[augmentation.normalization]
        described = self.origin.processor if self.origin else {}
        if not described:
            return None
        mean, std = read_processor(described, self.config.num_channels).statistics
        return tuple(mean.tolist()), tuple(std.tolist())


def open_model(path: str | Path, sharding_of: ShardingOf = on_cpu, dtype: Any = None) -> OpenedModel:
    """The model at `path`, or with `demo/` one that comes with the package. No code from the folder is run, nothing is
    unpickled.

    Each parameter goes to its devices as soon as it is read.

    Args:
      path: of the folder, or of T5X's file.
      sharding_of: where the parameters go, whatever mesh wrote them.
      dtype: of the parameters; by default as they were written in a run, float32 elsewhere.

    Raises `InputError` for a folder of another format, or one that is truncated or inconsistent.
    """

    def put_for(config: ModelConfig) -> Put:
        sharding = sharding_of(config)
        by_path = {} if isinstance(sharding, Sharding) else traverse_util.flatten_dict(sharding, sep="/")
        return lambda path, value: jax.device_put(np.asarray(value, dtype), by_path.get(path, sharding))

    folder = find_demo(str(path)) or local_or_bucket(path)
    if not is_in_bucket(folder):
        folder = folder if folder.exists() else _download(str(path))
        if is_huggingface_folder(folder):
            return OpenedModel(**vars(import_folder(folder, put_for)))
        if elmo := find_elmo(folder):
            return OpenedModel(**vars(import_elmo(*elmo, put_for)))
    if not is_checkpoint(folder) and (theirs := find_t5x_checkpoint(folder)):
        return OpenedModel(**vars(import_t5x(theirs, put_for)))
    checkpoint = open_checkpoint(folder, sharding_of, dtype)
    experiment, config = checkpoint.experiment, checkpoint.experiment.model
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    if tokenizer:
        check_tokenizer(f"in {folder}", config, tokenizer)
        vocabulary = tokenizer.vocabulary
    else:
        vocabulary = experiment.generation.vocabulary(config.vocab_size) if config.vocab_size else None
    classes = classes_from_files(checkpoint.tokenizer_files)
    made = (experiment.generation, experiment.origin, experiment, classes)
    return OpenedModel(config, checkpoint.params, tokenizer, vocabulary, *made)


def check_tokenizer(location: str, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raises `InputError` where a tokenizer has ids that the model lacks."""
    if config.vocab_size is not None and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer {location} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "it is not the one that the model was trained with"
        )


def open_checkpoint(folder: Folder, sharding_of: ShardingOf = on_cpu, dtype: Any = None) -> Checkpoint:
    """The checkpoint in a run's folder (the latest) or in a step's; the arguments are those of `open_model`."""
    step = checkpoint_folder(folder)

    def sharding_of_fitting(config: ModelConfig, params: Any) -> Any:
        needed, present = shapes(nn.unbox(abstract_params(config))), shapes(params)
        if different := sorted(path for path in needed | present if needed.get(path) != present.get(path)):
            path = different[0]
            raise InputError(
                f"{step} does not fit its model: {len(different)} parameters differ, the first is {path} with shape "
                f"{present.get(path)} where the model has {needed.get(path)}; use another checkpoint"
            )
        return sharding_of(config)

    return read_checkpoint(step, sharding_of_fitting, dtype)


def checkpoint_folder(folder: Folder) -> Folder:
    """The folder of a run's latest step, or `folder` itself if it is a step's."""
    steps = [folder] if is_checkpoint(folder) else steps_of_run(folder)
    if not steps:
        raise InputError(
            f"{folder} holds no checkpoint; name a run's folder, one of its checkpoints, a Hugging Face folder, or a "
            "checkpoint of T5X"
        )
    return steps[-1]


def shapes(params: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by its path with slashes."""
    return {path: leaf.shape for path, leaf in traverse_util.flatten_dict(params, sep="/").items()}


def find_demo(name: str) -> Path | None:
    """The folder of a model that comes with the package, for `demo/NAME`; None for other names."""
    name = name.rstrip("/")
    if not name.startswith("demo/") or Path(name).exists():
        return None
    demos = Path(str(importlib.resources.files("t5x_lite"))) / "demos"
    known = {f"demo/{path.parent.name}": path.parent for path in sorted(demos.glob("*/config.json"))}
    if name not in known:
        raise InputError(f"{name} is not one of the models that come with t5x_lite: {', '.join(known)}; choose one")
    return known[name]


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
