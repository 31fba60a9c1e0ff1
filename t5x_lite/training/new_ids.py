"""Ids that an objective's rows have beyond the vocabulary's: the model that a run starts from has not seen them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jaxtyping import Array, Float

from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.parallel import logical_axes
from t5x_lite.parallel.batch_rows import place_copies


@dataclass(frozen=True)
class NewIds:
    """Where a model's parameters have their ids, and which of these are new."""

    places: dict[str, int]
    """The dimension of ids, by the path of each parameter that has one."""
    added: range
    """Ids that mean nothing to the other model, whether or not it has room for them."""

    @classmethod
    def of(cls, model: ModelConfig, vocabulary_size: int, added_ids: tuple[str, ...]) -> "NewIds":
        """Those of a model whose rows have `added_ids` behind the vocabulary's."""
        axes = traverse_util.flatten_dict(logical_axes(abstract_params(model)), sep="/")
        places = {path: names.index("vocab") for path, names in axes.items() if "vocab" in names}
        return cls(places, range(vocabulary_size, vocabulary_size + len(added_ids)))

    def filled_in(self, source: Any, params: Any) -> tuple[Any, str]:
        """(`source`, another model's parameters, with the values of `params` for ids that are new, and for all that it
        has no room for; what that were, as the end of a sentence). Without added ids it is as it was."""
        if not self.added:
            return source, ""
        theirs, ours = (traverse_util.flatten_dict(tree, sep="/") for tree in (source, params))
        counts = {}
        for path, dimension in self.places.items():
            if path in theirs and _differ_only_in(dimension, ours[path].shape, theirs[path].shape):
                theirs[path], counts[path] = self._filled_in(theirs[path], ours[path], dimension)
        told = ", ".join(f"{count} ids of {path}" for path, count in counts.items())
        return traverse_util.unflatten_dict(theirs, sep="/"), f"; random too are {told}" if counts else ""

    def _filled_in(self, theirs: Any, ours: Float[Array, "*_"], dimension: int) -> tuple[Float[Array, "*_"], int]:
        number = np.arange(ours.shape[dimension])
        new = (number >= theirs.shape[dimension]) | np.isin(number, self.added)
        room = [(0, more - there) for more, there in zip(ours.shape, theirs.shape, strict=True)]
        placed = place_copies(np.pad(np.asarray(theirs), room), ours.sharding)
        along = new.reshape([-1 if axis == dimension else 1 for axis in range(ours.ndim)])

        def merge(ours: Float[Array, "*_"], theirs: Float[Array, "*_"]) -> Float[Array, "*_"]:
            return jnp.where(along, ours, theirs)

        return jax.jit(merge, out_shardings=ours.sharding)(ours, placed), int(new.sum())


def _differ_only_in(dimension: int, ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether the two shapes are the same, or ours is longer in that dimension alone."""
    others = [np.delete(shape, dimension).tolist() if len(shape) > dimension else None for shape in (ours, theirs)]
    return others[0] is not None and others[0] == others[1] and ours[dimension] >= theirs[dimension]
