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

    @property
    def stacked(self) -> bool:
        return "{layer}" in self.theirs


def to_ours(rows: list[Row], tensors: Tensors, abstract: Any) -> Any:
    """Our parameter tree (float32) from their tensors.

    Args:
      abstract: our tree with the shapes that the architecture needs.

    Raises:
      InputError: every name that is missing, left over, or of another shape is listed.
    """
    shapes = {path: leaf.shape for path, leaf in traverse_util.flatten_dict(abstract, sep="/").items()}
    params, problems, used = {}, [], set()
    for row in rows:
        shape = shapes[row.ours]
        names = [row.theirs.format(layer=layer) for layer in range(shape[0])] if row.stacked else [row.theirs]
        used.update(names)
        expected = shape[1:] if row.stacked else shape
        values = []
        for name in names:
            if name not in tensors:
                problems.append(f"{name} is missing (ours: {row.ours})")
                continue
            value = np.asarray(tensors[name], np.float32)
            value = value.T if row.transpose else value
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


def to_theirs(rows: list[Row], params: Any) -> dict[str, np.ndarray]:
    """Their tensors from our parameter tree: the inverse of `to_ours`."""
    flat = traverse_util.flatten_dict(jax.device_get(params), sep="/")
    tensors = {}
    for row in rows:
        value = np.asarray(flat.pop(row.ours), np.float32)
        layers = enumerate(value) if row.stacked else [(0, value)]
        for layer, tensor in layers:
            tensors[row.theirs.format(layer=layer)] = np.ascontiguousarray(tensor.T if row.transpose else tensor)
    if flat:
        raise ValueError(f"parameters without a name in the table: {sorted(flat)}")
    return tensors
