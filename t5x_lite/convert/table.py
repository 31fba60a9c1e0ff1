"""A family's names of parameters, read in either direction.

Their tensors are flat, one for each layer; ours are a tree, all layers of a stack in one array. The tree says which
parameters there are, the family's names where each of them is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig

Tensors = Mapping[str, np.ndarray]
_MOST_PROBLEMS = 8


@dataclass(frozen=True)
class TensorName:
    """The tensor that one of our parameters comes from."""

    name: str
    """With `{layer}` where ours has all layers of a stack in one array."""
    transpose: bool = False
    """Theirs is [out, in] (torch's linear layers), ours [in, out]."""
    part: tuple[int, int] = (0, 1)
    """(which, of how many): theirs holds several of ours side by side along its last axis."""
    heads: int = 0
    """Theirs is [D, H, K] with so many heads, before it is transposed, ours [D, H K]; 0: it has the shape of ours."""

    @property
    def is_stacked(self) -> bool:
        return "{layer}" in self.name


Names = Mapping[str, str | TensorName]
"""Theirs, by our path with slashes: of a layer (its kernel, scale or embedding is `weight`), or of one parameter."""


def tensor_name(names: Names, path: str) -> TensorName:
    """Where the parameter with this path is among their tensors.

    >>> tensor_name({"encoder/wi": "encoder.{layer}.fc1"}, "encoder/wi/kernel")
    TensorName(name='encoder.{layer}.fc1.weight', transpose=True, part=(0, 1), heads=0)
    """
    layer, _, leaf = path.rpartition("/")
    if path not in names and layer not in names:
        raise ValueError(f"the parameter {path} has no name in the family's table")
    name = names.get(path) or f"{names[layer]}.{'bias' if leaf == 'bias' else 'weight'}"
    return name if isinstance(name, TensorName) else TensorName(name, transpose=leaf == "kernel")


Put = Callable[[str, np.ndarray], Any]
"""What becomes of a parameter, by its path, as soon as it is read: it may go to devices before the next one is read."""
PutFor = Callable[[ModelConfig], Put]


def keep(config: ModelConfig) -> Put:
    """Parameters stay arrays of NumPy."""
    return lambda path, value: value


def to_ours(
    names: Names,
    tensors: Tensors,
    abstract: Any,
    put: Put = lambda path, value: value,
    *,
    described: str = "its config.json",
) -> Any:
    """Our parameter tree (float32) with the shapes of `abstract`, from their tensors.

    Args:
      put: gives what stands in the tree for each parameter.
      described: what says which tensors there should be, in messages.

    Raises `InputError` with the names that are missing, left over, or of another shape, of many the first.
    """
    params, problems, used = {}, [], set()
    flat = traverse_util.flatten_dict(abstract, sep="/")
    deepest = max((leaf.shape[0] for path, leaf in flat.items() if tensor_name(names, path).is_stacked), default=0)
    if deepest > len(tensors):
        raise InputError(f"config.json has {deepest:,} layers, the weights {len(tensors):,} tensors; fetch both again")
    for path, leaf in flat.items():
        tensor = tensor_name(names, path)
        layers, expected = (range(leaf.shape[0]), leaf.shape[1:]) if tensor.is_stacked else (range(1), leaf.shape)
        theirs = [tensor.name.format(layer=layer) for layer in layers]
        used.update(theirs)
        values = []
        for name in theirs:
            if name not in tensors:
                problems.append(f"{name} is missing (ours: {path})")
                continue
            value = np.asarray(tensors[name], np.float32)
            which, parts = tensor.part
            if value.ndim and value.shape[-1] % parts == 0:
                value = np.split(value, parts, axis=-1)[which]
            if tensor.heads and value.ndim == 3:
                value = value.reshape(len(value), -1)
            value = value.T if tensor.transpose else value
            if value.shape != expected:
                problems.append(f"{name} has shape {value.shape}, not {expected}, after transposition (ours: {path})")
            values.append(value)
        if not problems:
            params[path] = put(path, np.stack(values) if tensor.is_stacked else values[0])
    unknown = sorted(set(tensors) - used)
    problems += [f"{name} is not of this architecture" for name in unknown]
    if problems:
        remedy = "save it without what is not of it, such as a task's head" if unknown else "fetch it again"
        more = f"; and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        listed = "; ".join(problems[:_MOST_PROBLEMS])
        raise InputError(f"the checkpoint does not fit {described}: {listed}{more}; {remedy}")
    return traverse_util.unflatten_dict(params, sep="/")


def to_theirs(names: Names, params: Any, abstract: Any) -> dict[str, np.ndarray]:
    """Their tensors from our parameter tree: the inverse of `to_ours`.

    Raises `InputError` with every parameter that is missing, left over, or of another shape than in `abstract`.
    """
    parts: dict[str, list[np.ndarray]] = {}
    values, expected = (traverse_util.flatten_dict(tree, sep="/") for tree in (jax.device_get(params), abstract))
    problems = [f"{path} is missing" for path in expected if path not in values]
    problems += [f"{path} is not of this architecture" for path in values if path not in expected]
    common = [(path, values[path].shape, leaf.shape) for path, leaf in expected.items() if path in values]
    problems += [f"{path} has shape {shape}, not {wanted}" for path, shape, wanted in common if shape != wanted]
    if problems:
        raise InputError(f"the parameters do not fit their config: {'; '.join(problems)}; export those of this config")
    for path in expected:
        tensor = tensor_name(names, path)
        which, of = tensor.part
        value = np.asarray(values[path], np.float32)
        for layer, array in enumerate(value if tensor.is_stacked else value[None]):
            pieces = parts.setdefault(tensor.name.format(layer=layer), [np.empty(0)] * of)
            array = array.T if tensor.transpose else array
            pieces[which] = array.reshape(len(array), tensor.heads, -1) if tensor.heads else array
    return {
        name: np.asarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1), order="C")
        for name, pieces in parts.items()
    }


def has(tensors: Tensors, start: str) -> bool:
    """Whether there are tensors whose names begin so."""
    return any(name.startswith(start) for name in tensors)


def drop_copy(tensors: dict[str, np.ndarray], copy: str, source: str) -> None:
    """Removes the tensor `copy` where it equals the tensor `source`."""
    if copy in tensors and source in tensors and np.array_equal(tensors[copy], tensors[source]):
        del tensors[copy]
