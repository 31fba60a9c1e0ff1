"""What every model of the zoo has: a frozen config that builds a pure Linen module."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.validation import Validated


@dataclass(frozen=True)
class ModelConfig(Validated, ABC):
    """The architecture of a model: sizes and choices, no behaviour. Families derive from it."""

    task_heads: ClassVar[tuple[str, ...]] = ()
    """The heads of tasks that it can have: see `models.task_heads`."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Rows of the token embedding; the tokenizer's ids must be fewer or as many."""

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """What the mesh's axis `tensor` has to divide."""

    @abstractmethod
    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> nn.Module:
        """The module of this architecture, computing in `dtype` and rematerialising as `remat` says."""

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        """What a decoder reads before its first token; it means nothing to an encoder."""
        return pad_id


@functools.lru_cache(maxsize=64)
def abstract_params(config: ModelConfig) -> Any:
    """Shapes, dtypes and logical axes of the parameters; nothing is allocated.

    Every module of the zoo can be called with two arrays of ids: a T5 with inputs and decoder inputs, an encoder with
    inputs and segments. Every leaf is a `nn.LogicallyPartitioned` around a `jax.ShapeDtypeStruct`. The tree is kept for
    the next call, which must not find it changed.
    """
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    module = config.build()
    return jax.eval_shape(module.init, jax.random.key(0), ids, ids)["params"]


def num_params(config: ModelConfig) -> int:
    """The number of parameters.

    >>> from t5x_lite.models.t5 import PRESETS
    >>> f"{num_params(PRESETS['t5-11b']):,}"
    '11,307,321,344'
    """
    return sum(leaf.size for leaf in jax.tree.leaves(nn.unbox(abstract_params(config))))


def check_heads(config: Any, field: str = "num_heads") -> None:
    """Raises `InputError` where the number of heads in `field` does not divide `embed_dim`."""
    heads = getattr(config, field)
    if config.embed_dim % heads:
        nearest = max(1, round(config.embed_dim / heads)) * heads
        raise InputError(
            f"{field}={heads} does not divide embed_dim={config.embed_dim}; choose a multiple of "
            f"{heads} (e.g. {nearest})"
        )
