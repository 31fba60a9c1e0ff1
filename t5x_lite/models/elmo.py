"""ELMo: words from their characters, and a language model in each direction over them (Peters et al. 2018)."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.layers.dense import Dense, Dropout
from t5x_lite.layers.embedding import Embedding, LazyLogits
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.recurrence import Cell, CellState, Recurrent
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import (
    TASK_HEADS,
    Architecture,
    Hidden,
    Ids,
    Pretraining,
    TaskHead,
    TaskModelConfig,
    TextModel,
    Valid,
)
from t5x_lite.parallel.partitioning import all_gather_fsdp, constrain_sharding
from t5x_lite.tokenizers.characters import BEGIN_SENTENCE, BEGIN_WORD, END_WORD, NUM_CHARACTERS, PAD_CHARACTER
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Layers, NonNegative, Positive, Range, Rate

Clip = Annotated[float, Range(gt=0, remedy="choose e.g. 3.0")]


@dataclass(frozen=True)
class ElmoConfig(TaskModelConfig):
    """The architecture of one ELMo. The defaults are the original one's, without the output that it was trained by.

    With heads of tasks it reads texts as `WordCharacters` numbers them, and the heads a mixture of its layers.
    """

    character_dim: Positive = 16
    """Width of the characters' vectors."""
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    """(characters that a filter reads, how many such filters there are)."""
    num_highway_layers: Layers = 2
    units: Positive = 4096
    """Of an LSTM."""
    projection: Positive = 512
    """Width of words, and of what an LSTM gives."""
    num_layers: Layers = 2
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
    heads: tuple[TaskHead, ...] = ()
    """Heads of tasks."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.5
    """Dropout in the heads of tasks."""

    architecture: ClassVar[Architecture] = "words"
    task_heads: ClassVar[tuple[str, ...]] = TASK_HEADS
    row_activation: ClassVar[str] = "tanh"
    texts_begin_with_cls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads and self.num_words:
            raise InputError(
                f"heads={self.heads} of tasks leave num_words={self.num_words} without use; set num_words to 0"
            )
        if not self.filters:
            raise InputError("filters=() read no character; give pairs such as (3, 64): characters, filters")
        for width, count in self.filters:
            if not 1 <= width <= self.max_characters or count < 1:
                raise InputError(
                    f"filters={self.filters}: {width} characters by {count} filters; choose 1 to max_characters="
                    f"{self.max_characters}, and 1 filter or more"
                )

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2, self.max_characters), jnp.int32),)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        if self.heads and (vocabulary.size, vocabulary.cls_id) != (NUM_CHARACTERS, BEGIN_SENTENCE):
            raise InputError(
                "model is an ElmoConfig with heads, which reads words by their characters; set data.tokenizer to "
                "WordCharacters()"
            )

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Elmo":
        if remat not in ("none", "unroll"):
            raise InputError(f"remat={remat!r}: the layers of an ElmoConfig keep what they compute; choose none")
        return Elmo(self, dtype=dtype)

    @property
    def reads_ids(self) -> bool:
        return bool(self.heads)

    @property
    def vocab_size(self) -> int | None:
        return NUM_CHARACTERS if self.heads else self.num_words or None

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
        axes, shape = ("window", "channels"), (NUM_CHARACTERS, c.character_dim)
        table = parameter(self, "characters", nn.initializers.uniform(1.0), axes, shape)
        embedded = table.astype(self.dtype)[characters]
        # Words one after another, as pictures of one line.
        words = jax.lax.collapse(embedded, 0, 2)
        for index, (width, count) in enumerate(c.filters):
            axes, shape = ("window", "channels", "channels"), (width, c.character_dim, count)
            kernel = parameter(self, f"filter_{index}", nn.initializers.normal(0.05), axes, shape)
            bias = parameter(self, f"bias_{index}", nn.initializers.zeros, ("channels",), (count,))
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


def words_of(ids: Ids, max_characters: int) -> tuple[Int[Array, "B W C"], Int[Array, "B L"]]:
    """(the characters of the words of rows, and of each id the number of its word), W = L / 2 + 4.

    Args:
      ids: as `WordCharacters` numbers texts, `<S>` and `</S>` around them, and padding after them. Of a word that
        begins before its row, or a part of one, the rest is a word. Words without characters, of a single id, may be
        more than W; those after them are left out.
      max_characters: of a word, the two around it included; longer ones are cut.
    """
    is_mark = (ids >= BEGIN_SENTENCE) & (ids < BEGIN_WORD)
    after_mark = jnp.pad(is_mark[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    begins = (ids != PAD_CHARACTER) & ((ids >= BEGIN_SENTENCE) | after_mark)
    numbers = jnp.cumsum(begins, axis=1) - 1
    words = jnp.arange(ids.shape[1] // 2 + 4)
    starts = jax.vmap(lambda row: jnp.searchsorted(row, words))(numbers)
    # A mark, or a byte without a beginning before it, is a word's second character.
    first = jnp.take_along_axis(ids, starts, axis=1, mode="clip")
    starts -= (first < BEGIN_WORD).astype(starts.dtype)
    places = starts[..., None] + jnp.arange(max_characters)[None, None]
    rows = jnp.arange(len(ids))[:, None, None]
    found = ids.at[rows, places].get(mode="fill", fill_value=PAD_CHARACTER)
    inside = (numbers.at[rows, places].get(mode="fill", fill_value=-1) == words[None, :, None]) & (found < BEGIN_WORD)
    inside &= (places >= 0) & (jnp.arange(max_characters) < max_characters - 1)[None, None]
    size = inside.sum(axis=-1, keepdims=True)
    order = jnp.arange(max_characters)[None, None]
    characters = jnp.where(inside, found, PAD_CHARACTER)
    characters = jnp.where(order == 0, BEGIN_WORD, jnp.where(order == size + 1, END_WORD, characters))
    return jnp.where(words[None, :, None] <= numbers[:, -1:, None], characters, PAD_CHARACTER), numbers


class LayerMixture(nn.Module):
    """gamma times the mean of layers, weighted by a softmax of s (Peters et al. 2018, equation 1)."""

    @nn.compact
    def __call__(self, layers: Float[Array, "N1 B L E"]) -> Float[Array, "B L E"]:
        scores = parameter(self, "s", nn.initializers.zeros, (None,), layers.shape[:1])
        scale = parameter(self, "gamma", nn.initializers.ones, (), ())
        weights = scale * jax.nn.softmax(scores)
        return jnp.einsum("N,NBLE->BLE", weights.astype(layers.dtype), layers)


class Elmo(TextModel):
    """Reads words by their characters, `<S>` and `</S>` of each sentence among them."""

    config: ElmoConfig

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
            self.output_bias = parameter(self, "output_bias", nn.initializers.zeros, ("vocab",), (c.num_words,))
        if c.heads:
            self.mixture = LayerMixture()
        self.setup_task_heads()

    def __call__(self, characters: Int[Array, "B L C"], valid: Bool[Array, "B L"] | None = None) -> Float[Array, "..."]:
        """All layers of `layers_and_state`."""
        layers = self.layers_and_state(characters, valid)[0]
        if self.is_initializing():
            if self.config.num_words:
                self.output(jnp.zeros((1, 1), jnp.int32))
            for head in self.config.heads:
                getattr(self, f"{head}_logits")(self.mixture(layers))
        return layers

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """What heads of tasks read: at the first id of each word the mixture of its layers, at others 0.

        Args:
          inputs: ids of `WordCharacters`.
          segments: not read: the second text of a pair follows `</S>`.
          inputs_valid: true where `inputs` is not padding, which comes last; None means everywhere.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.
        """
        ids = inputs if inputs_valid is None else jnp.where(inputs_valid, inputs, PAD_CHARACTER)
        characters, numbers = words_of(ids, self.config.max_characters)
        words_valid = jnp.arange(characters.shape[1])[None] <= numbers[:, -1:]
        layers, _ = self.layers_and_state(characters, words_valid, deterministic=deterministic)
        mixed = self.mixture(layers)
        is_first = jnp.diff(numbers, axis=1, prepend=-1) > 0
        places = numbers.clip(min=0)[..., None]
        of_ids = jnp.take_along_axis(mixed, places, axis=1, mode="fill", fill_value=0)
        return jnp.where(is_first[..., None], of_ids, 0)

    def row_vector(self, head: TaskHead, hidden: Hidden, inputs_valid: Valid) -> Float[Array, "B D"]:
        """The mean of a row's words, `<S>` and `</S>` among them."""
        count = (hidden != 0).any(axis=-1).sum(axis=1)
        return hidden.sum(axis=1) / count.clip(min=1)[:, None].astype(hidden.dtype)

    def question_answering_logits(
        self, hidden: Hidden, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B L 2"]:
        """An answer begins and ends with a word: other ids than the first ones of words are out of the question."""
        logits = super().question_answering_logits(hidden, inputs_valid=inputs_valid, deterministic=deterministic)
        return jnp.where((hidden != 0).any(axis=-1, keepdims=True), logits, MASKED_LOGIT)

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
        *,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "N1 B L E"], tuple[list[CellState], list[CellState]]]:
        """(the words twice side by side, then what both directions give in each layer; the last states of either).

        Args:
          characters: of each word, between `BEGIN_WORD` and `END_WORD`, filled up by `PAD_CHARACTER`.
          valid: false where there is no word.
          state: of the texts before, from which the layers go on; None: they begin anew.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.
        """
        words = self.words(characters)
        if valid is not None:
            words = jnp.where(valid[..., None], words, 0)
        outputs, states = [[words], [words]], ([], [])
        for direction, stack in enumerate((self.forward, self.backward)):
            x = words
            for n, layer in enumerate(stack):
                below = self.dropout(x, deterministic=deterministic)
                y, last = layer(below, valid, None if state is None else state[direction][n])
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
