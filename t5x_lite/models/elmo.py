"""ELMo: words from their characters, and a language model in each direction over them (Peters et al. 2018)."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Dense, Dropout
from t5x_lite.layers.embedding import Embedding, LazyLogits
from t5x_lite.layers.recurrence import Cell, CellState, Recurrent
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, ModelConfig, Pretraining
from t5x_lite.parallel.partitioning import all_gather_fsdp, constrain_sharding
from t5x_lite.tokenizers.characters import PAD_CHARACTER
from t5x_lite.validation import NonNegative, Positive, Range, Rate

Clip = Annotated[float, Range(gt=0, remedy="choose e.g. 3.0")]


@dataclass(frozen=True)
class ElmoConfig(ModelConfig):
    """The architecture of one ELMo. The defaults are the original one's, without the output that it was trained by."""

    character_dim: Positive = 16
    """Width of the characters' vectors."""
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    """(characters that a filter reads, how many such filters there are)."""
    num_highway_layers: Positive = 2
    units: Positive = 4096
    """Of an LSTM."""
    projection: Positive = 512
    """Width of words, and of what an LSTM gives."""
    num_layers: Positive = 2
    memory_clip: Clip | None = 3.0
    """An LSTM's memory stays within this bound on either side."""
    output_clip: Clip | None = 3.0
    """Likewise what it gives."""
    max_characters: Annotated[int, Range(ge=3)] = 50
    """Of a word, the two around it included; longer ones are cut."""
    num_words: NonNegative = 0
    """Words that both language models predict, by one softmax: the tokenizer's ids or more. 0: there is no output."""
    dropout_rate: Rate = 0.0
    """Dropout on what each LSTM reads, and on the last outputs."""

    architecture: ClassVar[Architecture] = "words"

    def __post_init__(self) -> None:
        super().__post_init__()
        for width, count in self.filters:
            if not 1 <= width <= self.max_characters or count < 1:
                raise InputError(
                    f"filters={self.filters}: {width} characters by {count} filters; choose 1 to max_characters="
                    f"{self.max_characters}, and 1 filter or more"
                )

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2, self.max_characters), jnp.int32),)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Elmo":
        if remat not in ("none", "unroll"):
            raise InputError(f"remat={remat!r}: the layers of an ElmoConfig keep what they compute; choose none")
        return Elmo(self, dtype=dtype)

    @property
    def vocab_size(self) -> int | None:
        return self.num_words or None

    @property
    def pretraining(self) -> Pretraining | None:
        return "bidirectional language model" if self.num_words else None


State = dict[str, dict[str, Array]]
"""The `output` [B P] and the `memory` [B U] of each layer in each direction, by names such as forward_0."""


class CharacterEncoder(nn.Module):
    """Words from their characters: convolutions, each at its best place, and highway layers (Kim et al. 2016)."""

    config: ElmoConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, characters: Int[Array, "B L C"]) -> Float[Array, "B L P"]:
        c, of_filters = self.config, []
        init = nn.with_logical_partitioning(nn.initializers.uniform(1.0), ("window", "channels"))
        table = self.param("characters", init, (PAD_CHARACTER + 1, c.character_dim), jnp.float32)
        embedded = table.astype(self.dtype)[characters]
        # Words one after another, as pictures of one line.
        words = jax.lax.collapse(embedded, 0, 2)
        for index, (width, count) in enumerate(c.filters):
            axes = ("window", "channels", "channels")
            init = nn.with_logical_partitioning(nn.initializers.normal(0.05), axes)
            kernel = self.param(f"filter_{index}", init, (width, c.character_dim, count), jnp.float32)
            zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("channels",))
            bias = self.param(f"bias_{index}", zeros, (count,), jnp.float32)
            found = jax.lax.conv_general_dilated(
                words,
                all_gather_fsdp(kernel, axes, self.dtype),
                (1,),
                "VALID",
                dimension_numbers=("NWC", "WIO", "NWC"),
            )
            of_filters.append(jax.nn.relu(found.max(axis=1) + bias.astype(self.dtype)[None]))
        x = jnp.concatenate(of_filters, axis=-1).reshape(*characters.shape[:2], -1)
        x = constrain_sharding(x, "activation_batch", "activation_length", None)
        init, size = nn.initializers.lecun_normal(), x.shape[-1]
        for n in range(c.num_highway_layers):
            # It begins by carrying most of what it reads (Srivastava et al. 2015).
            carry = Dense(size, ("embed", "mlp"), True, self.dtype, init, name=f"carry_{n}")(x)
            transform = Dense(size, ("embed", "mlp"), True, self.dtype, init, name=f"transform_{n}")(x)
            share = jax.nn.sigmoid(carry)
            x = share * jax.nn.relu(transform) + (1.0 - share) * x
        return Dense(c.projection, ("mlp", "embed"), True, self.dtype, init, name="projection")(x)


class Elmo(nn.Module):
    """Reads words by their characters, `<S>` and `</S>` of each sentence among them."""

    config: ElmoConfig
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        cell = Cell("lstm", c.units, c.projection, c.memory_clip, c.output_clip)
        self.words = CharacterEncoder(c, self.dtype)

        def layers(reverse: bool) -> list[Recurrent]:
            return [Recurrent(cell, dtype=self.dtype, reverse=reverse) for _ in range(c.num_layers)]

        self.forward, self.backward = layers(False), layers(True)
        self.dropout = Dropout(c.dropout_rate)
        if c.num_words:
            init = nn.initializers.normal(c.projection**-0.5)
            self.output = Embedding(c.num_words, c.projection, self.dtype, init)
            zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
            self.output_bias = self.param("output_bias", zeros, (c.num_words,), jnp.float32)

    def __call__(self, characters: Int[Array, "B L C"], valid: Bool[Array, "B L"] | None = None) -> Float[Array, "..."]:
        """All layers of `layers_and_state`."""
        if self.is_initializing() and self.config.num_words:
            self.output(jnp.zeros((1, 1), jnp.int32))
        return self.layers_and_state(characters, valid)[0]

    def predictions(
        self, characters: Int[Array, "B L1 C"], state: State | None = None, *, deterministic: bool = True
    ) -> tuple[LazyLogits, LazyLogits, State]:
        """(scores of the words 1 .. L by those before each, of the words 0 .. L - 1 by those after each, the state).

        Args:
          characters: of L + 1 words, see `layers_and_state`.
          state: of the rows before, from which the layers go on; None: they begin anew.
        """
        words, states, hidden = self.words(characters), {}, []
        for direction, stack, x in (
            ("forward", self.forward, words[:, :-1]),
            ("backward", self.backward, words[:, 1:]),
        ):
            for n, layer in enumerate(stack):
                name = f"{direction}_{n}"
                before = None if state is None else CellState(**state[name])
                y, last = layer(self.dropout(x, deterministic=deterministic), None, before)
                x = x + y if n else y
                states[name] = {"output": last.output, "memory": last.memory}
            x = self.dropout(x, deterministic=deterministic)
            hidden.append(replace(self.output.scores(x), bias=self.output_bias))
        return *hidden, jax.tree.map(jax.lax.stop_gradient, states)

    def empty_state(self, batch_size: int) -> State:
        """That of rows before which there is nothing."""
        c = self.config
        zeros = Cell("lstm", c.units, c.projection).zeros((batch_size,), self.dtype)
        one = {"output": zeros.output, "memory": zeros.memory}
        return {f"{side}_{n}": dict(one) for side in ("forward", "backward") for n in range(c.num_layers)}

    def layers_and_state(
        self,
        characters: Int[Array, "B L C"],
        valid: Bool[Array, "B L"] | None = None,
        state: tuple[list[CellState], list[CellState]] | None = None,
    ) -> tuple[Float[Array, "N1 B L E"], tuple[list[CellState], list[CellState]]]:
        """(the words twice side by side, then what both directions give in each layer; the last states of either).

        Args:
          characters: of each word, between `BEGIN_WORD` and `END_WORD`, filled up by `PAD_CHARACTER`.
          valid: false where there is no word.
          state: of the texts before, from which the layers go on; None: they begin anew.
        """
        words = self.words(characters)
        if valid is not None:
            words = jnp.where(valid[..., None], words, 0)
        outputs, states = [[words], [words]], ([], [])
        for direction, stack in enumerate((self.forward, self.backward)):
            x = words
            for n, layer in enumerate(stack):
                y, last = layer(x, valid, None if state is None else state[direction][n])
                x = x + y if n else y  # the lowest layer has no other path around it
                outputs[direction].append(x)
                states[direction].append(last)
        both = [jnp.concatenate(pair, axis=-1) for pair in zip(*outputs, strict=True)]
        return jnp.stack(both), states


PRESETS: dict[str, ElmoConfig] = {
    "elmo-original": ElmoConfig(),
    "elmo-medium": ElmoConfig(units=2048, projection=256, num_highway_layers=1),
    "elmo-small": ElmoConfig(units=1024, projection=128, num_highway_layers=1),
}
"""The published sizes."""
