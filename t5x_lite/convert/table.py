"""A family's table of parameter names, read in either direction.

Their tensors are flat, one for each layer; ours are a tree, all layers of a stack in one array. A row says which is
which and how one becomes the other; every transform is its own inverse or has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from t5x_lite.errors import InputError

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One parameter: `theirs` with `{layer}` where it stands in a stack, `ours` as a path with slashes."""

    theirs: str
    ours: str
    transpose: bool = False
    """Theirs is [out, in] (torch's linear layers), ours [in, out]."""
    part: tuple[int, int] = (0, 1)
    """(which, of how many): theirs holds several of ours side by side along its last axis."""
    is_vector: bool = False
    """Theirs is a matrix of one row, ours that row."""

    @property
    def stacked(self) -> bool:
        return "{layer}" in self.theirs

    def to_ours(self, tensor: np.ndarray) -> np.ndarray:
        """What of their tensor is ours; a tensor that cannot be cut so stays whole."""
        which, parts = self.part
        if tensor.ndim and tensor.shape[-1] % parts == 0:
            tensor = np.split(tensor, parts, axis=-1)[which]
        if self.is_vector and tensor.shape[:1] == (1,):
            tensor = tensor[0]
        return tensor.T if self.transpose else tensor

    def to_theirs(self, value: np.ndarray) -> np.ndarray:
        """Ours as it stands in their tensor: all of it, or the part that is ours."""
        value = value[None] if self.is_vector else value
        return value.T if self.transpose else value


@dataclass(frozen=True)
class Zeros:
    """A tensor of theirs that is zero throughout, and none of our parameters."""

    theirs: str
    shape: tuple[int, ...]


def to_ours(rows: list[Row | Zeros], tensors: Tensors, abstract: Any) -> Any:
    """Our parameter tree (float32) from their tensors.

    Args:
      abstract: our tree with the shapes that the architecture needs.

    Raises:
      InputError: every name that is missing, left over, or of another shape is listed.
    """
    shapes = {path: leaf.shape for path, leaf in traverse_util.flatten_dict(abstract, sep="/").items()}
    params, problems, used = {}, [], set()
    for row in rows:
        if isinstance(row, Zeros):
            used.add(row.theirs)
            if np.any(tensors.get(row.theirs, 0)):
                problems.append(f"{row.theirs} is not zero")
            continue
        shape = shapes[row.ours]
        names = [row.theirs.format(layer=layer) for layer in range(shape[0])] if row.stacked else [row.theirs]
        used.update(names)
        expected = shape[1:] if row.stacked else shape
        values = []
        for name in names:
            if name not in tensors:
                problems.append(f"{name} is missing (ours: {row.ours})")
                continue
            value = row.to_ours(np.asarray(tensors[name], np.float32))
            if value.shape != expected:
                problems.append(
                    f"{name} has shape {value.shape}, not {expected}, after transposition (ours: {row.ours})"
                )
            values.append(value)
        if not problems:
            params[row.ours] = np.stack(values) if row.stacked else values[0]
    unknown = sorted(set(tensors) - used)
    problems += [f"{name} is not of this architecture" for name in unknown]
    if problems:
        remedy = "save it without what is not of it, such as a task's head" if unknown else "fetch it again"
        raise InputError(f"the checkpoint does not fit its config.json: {'; '.join(problems)}; {remedy}")
    return traverse_util.unflatten_dict(params, sep="/")


def to_theirs(rows: list[Row | Zeros], params: Any) -> dict[str, np.ndarray]:
    """Their tensors from our parameter tree: the inverse of `to_ours`."""
    flat = traverse_util.flatten_dict(jax.device_get(params), sep="/")
    tensors: dict[str, np.ndarray] = {}
    parts: dict[str, list[np.ndarray]] = {}
    for row in rows:
        if isinstance(row, Zeros):
            tensors[row.theirs] = np.zeros(row.shape, np.float32)
            continue
        value = np.asarray(flat.pop(row.ours), np.float32)
        layers = enumerate(value) if row.stacked else [(0, value)]
        for layer, tensor in layers:
            name, (which, of) = row.theirs.format(layer=layer), row.part
            parts.setdefault(name, [np.empty(0)] * of)[which] = row.to_theirs(tensor)
    for name, pieces in parts.items():
        tensors[name] = np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1))
    if flat:
        raise ValueError(f"parameters without a name in the table: {sorted(flat)}")
    return tensors


def dense(theirs: str, ours: str) -> list[Row]:
    """Kernel and bias of a dense layer."""
    return [Row(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Row(f"{theirs}.bias", f"{ours}/bias")]


def norm(theirs: str, ours: str) -> list[Row]:
    """Scale and bias of a LayerNorm."""
    return [Row(f"{theirs}.weight", f"{ours}/scale"), Row(f"{theirs}.bias", f"{ours}/bias")]


def has(tensors: Tensors, start: str) -> bool:
    """Whether there are tensors whose names begin so."""
    return any(name.startswith(start) for name in tensors)
