"""Which rows of a batch the devices of this process hold, and the way there of these and of whole arrays."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Int, Shaped


class BatchRows:
    """The rows of global batches that this process reads.

    They are those that its devices hold, which are neither neighbours nor its own alone: a mesh follows the wires of a
    pod, not the order of its hosts, and hosts along `tensor` hold the same rows.

    Args:
      sharding: of the batch.
      batch_size: B, rows of a global batch.
    """

    def __init__(self, sharding: NamedSharding, batch_size: int):
        self._sharding, self._batch_size = sharding, batch_size
        held = sharding.addressable_devices_indices_map((batch_size,)).values()
        self.numbers: Int[np.ndarray, "b"] = np.unique(np.concatenate([np.arange(batch_size)[index] for index in held]))
        """Their places in the batch, in order."""

    def place(self, values: Shaped[np.ndarray, "b ..."]) -> jax.Array:
        """The global batch [B, ...], of which every process gives its own rows."""

        def part(index: tuple[slice, ...]) -> np.ndarray:
            start, stop, _ = index[0].indices(self._batch_size)
            first = int(np.searchsorted(self.numbers, start))
            return values[(slice(first, first + stop - start), *index[1:])]

        return _place((self._batch_size, *values.shape[1:]), self._sharding, part)


def place_copies(tree: Any, shardings: Any) -> Any:
    """Arrays that every process holds whole, laid out over the devices of all; what lies there already stays."""

    def place(leaf: Any, sharding: NamedSharding) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        whole = np.asarray(leaf)
        return _place(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(place, tree, shardings)


def _place(
    shape: tuple[int, ...], sharding: NamedSharding, part: Callable[[tuple[slice, ...]], np.ndarray]
) -> jax.Array:
    # As jax.make_array_from_callback, whose transfers jax.transfer_guard("disallow") takes for unmeant ones.
    indices = sharding.addressable_devices_indices_map(shape)
    arrays = jax.device_put([part(index) for index in indices.values()], list(indices))
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)
