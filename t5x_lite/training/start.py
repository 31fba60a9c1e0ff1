"""What a run begins with: random parameters, another model's, or the state in which another run ended."""

from abc import ABC
from dataclasses import dataclass
from typing import Any

import numpy as np
from flax import traverse_util

from t5x_lite.errors import InputError


@dataclass(frozen=True)
class Start(ABC):  # noqa: B024 (what a start does needs the program: see `training.preparation`)
    """Where the first parameters come from."""


@dataclass(frozen=True)
class FromScratch(Start):
    """Random parameters, drawn from the experiment's seed."""


@dataclass(frozen=True)
class FromModel(Start):
    """The parameters of another model, so far as it has them: the tokenizer is its own too, the rest is random."""

    folder: str
    """A run's folder, one of its checkpoints, a Hugging Face folder or hub name."""
    layers: tuple[int, ...] = ()
    """Which of its layers become this model's, counted from 0, such as every second (Sanh et al. 2019, section 3);
    empty means all."""

    def __post_init__(self) -> None:
        _check_folder(self.folder)


@dataclass(frozen=True)
class FromRun(Start):
    """The state in which another run stands: parameters, optimizer and step, which goes on counting from there.

    For pretraining in phases, such as BERT's first nine tenths on rows of 128 tokens and the rest on 512.
    """

    folder: str
    """A run's folder, or one of its checkpoints."""

    def __post_init__(self) -> None:
        _check_folder(self.folder)


def overlay(params: Any, source: Any, layers: tuple[int, ...] = ()) -> tuple[Any, list[str]]:
    """(`params` with the values of `source` where both have a parameter, the paths that only `params` has).

    Args:
      params: a tree of arrays or shapes.
      source: another model's parameters.
      layers: of the source's stacks, in the order in which they become the layers of this model; empty means all.

    Raises:
      InputError: every parameter with another shape is listed; or no parameter is common to both.
    """
    ours, theirs = (traverse_util.flatten_dict(tree, sep="/") for tree in (params, source))
    result, problems, fresh = dict(ours), [], []
    for path, leaf in ours.items():
        if path not in theirs:
            fresh.append(path)
            continue
        value = theirs[path]
        if layers and "/layers/" in f"/{path}":
            if max(layers) >= len(value) or min(layers) < 0:
                raise InputError(f"start.layers={layers} names layers that it lacks; choose from 0..{len(value) - 1}")
            value = np.asarray(value)[list(layers)]
        if value.shape != leaf.shape:
            problems.append(f"{path} has shape {value.shape} there, {leaf.shape} here")
        result[path] = value
    if problems:
        raise InputError(f"start.folder holds a model of another shape: {'; '.join(problems)}; choose another one")
    if len(fresh) == len(ours):
        raise InputError("start.folder holds a model that shares no parameter with this one; choose its family")
    return traverse_util.unflatten_dict(result, sep="/"), fresh


def _check_folder(folder: str) -> None:
    if not folder:
        raise InputError("start.folder='' names no folder; give the folder of a run or a Hugging Face folder")
