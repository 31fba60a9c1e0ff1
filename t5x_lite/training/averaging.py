"""The mean of several checkpoints' parameters, as a checkpoint of its own (Vaswani et al. 2017, section 6.1)."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.training.checkpoints import Files, read_description, steps_of_run, write_model
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.open_model import open_checkpoint, tokenizer_from_files


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
      progress: is told what is read.

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
