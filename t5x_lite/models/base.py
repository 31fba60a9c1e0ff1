"""What every model of the zoo has: a frozen config that builds a pure Linen module."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.validation import Validated

Architecture = Literal["encoder", "decoder", "encoder-decoder"]
Positions = Literal["learned", "sinusoidal", "relative"]
"""What tells a text model where a token stands: vectors added to the embeddings, or T5's bias of the attention."""
Pretraining = Literal[
    "span corruption",
    "denoising",
    "sequence to sequence",
    "causal language model",
    "masked language model",
    "masked language model, next sentence",
    "masked language model, sentence order",
]


@dataclass(frozen=True)
class ModelConfig(Validated, ABC):
    """The architecture of a model: sizes and choices, no behaviour. A family is a class that derives from it.

    What the rest of the package has to know of a family stands here as class attributes; its sizes under their
    published names are `PRESETS` in the module of the class, and Hugging Face's names, where there are any, a module of
    `t5x_lite.convert`.
    """

    task_heads: ClassVar[tuple[str, ...]] = ()
    """The heads of tasks that it can have: see `models.task_heads`."""
    architecture: ClassVar[Architecture | None] = None
    """How `pretrained.load` opens it; None: as a model of which only the parameters are known."""
    networks: ClassVar[tuple[str, ...]] = ()
    """The networks in it by their names in the parameters, the one that is kept first; () where it is one."""
    below_layers: ClassVar[tuple[str, ...]] = ()
    """What the first layer reads, by its name in the parameters; what is neither this nor a layer is a head."""

    @abstractmethod
    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The arrays that the module's `init` is called with, of any batch size and length."""

    @abstractmethod
    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> nn.Module:
        """The module of this architecture, computing in `dtype` and rematerialising as `remat` says."""

    @property
    def vocab_size(self) -> int | None:
        """Rows of the token embedding, at least as many as the tokenizer has ids; None where no ids are read."""
        return None

    @property
    def sharded_sizes(self) -> dict[str, int]:
        """The sizes, by their names, that the mesh's axis `tensor` has to divide."""
        return {}

    @property
    def pretraining(self) -> Pretraining | None:
        """What the published models, or the heads that this one has, were trained by; None where nothing is known."""
        return None

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        """What a decoder reads before its first token; it means nothing to an encoder."""
        return pad_id


class TextConfig(ModelConfig):
    """The architecture of a model of texts, called with two arrays of ids: inputs and decoder inputs, or segments."""

    num_heads: int
    """Attention heads a layer."""

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),) * 2

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}


@functools.lru_cache(maxsize=64)
def abstract_params(config: ModelConfig) -> Any:
    """Shapes, dtypes and logical axes of the parameters; nothing is allocated.

    Every leaf is a `nn.LogicallyPartitioned` around a `jax.ShapeDtypeStruct`. The tree is kept for the next call, which
    must not find it changed.
    """
    return jax.eval_shape(config.build().init, jax.random.key(0), *config.abstract_inputs())["params"]


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


def check_length(config: Any, length: int) -> None:
    """Raises `InputError` for rows longer than the config's `max_length`, if it has one."""
    most = config.max_length
    if most is not None and length > most:
        raise InputError(
            f"the rows have length {length}, the model has positions for max_length={most}; "
            f"cut them to {most} ids or choose a model with more positions"
        )
