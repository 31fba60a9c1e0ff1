"""Recurrent encoder-decoders without attention and with two kinds of it.

Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.alignment import Memory, align, reverse_valid
from t5x_lite.layers.dense import Dense, Dropout, keep_mask
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.recurrence import (
    Cell,
    CellName,
    CellState,
    CellWeights,
    Product,
    RecurrentStack,
    scan_time,
    uniform,
)
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, Ids, ModelConfig, Pretraining, Valid
from t5x_lite.parallel.partitioning import constrain_sharding
from t5x_lite.validation import Layers, NonNegative, Positive, Range, Rate

Attention = Literal["none", "additive", "dot", "general", "concat"]


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """The architecture of one recurrent encoder-decoder. Attention says which paper's decoder it has:

    - none: the decoder begins with the encoder's last state, and sees no more of the input (Sutskever et al. 2014).
    - additive: each state has a context of its own by the state before, and the output is a maxout of state, token and
      context (Bahdanau et al. 2015, appendix A.2.2).
    - dot, general, concat: each state finds its context, and their tanh layer is the output (Luong et al. 2015).
    """

    vocab_size: Positive = 32_000
    """Rows of the embeddings and of the output: the tokenizer's ids or more."""
    embed_dim: Positive = 512
    cell: CellName = "lstm"
    """lstm, or gru."""
    units: Positive = 512
    """Of a layer, in one direction."""
    num_encoder_layers: Layers = 2
    num_decoder_layers: Layers = 2
    bidirectional: NonNegative = 0
    """Layers of the encoder, the lowest ones, that read both ways, with `units` for each."""
    attention: Attention = "general"
    """none, additive, dot, general or concat."""
    alignment_units: Positive | None = None
    """Hidden units of the additive and the concat score; None means units."""
    window: NonNegative = 0
    """Tokens seen on either side of a position that each state predicts: local-p; 0: all tokens are seen, at any."""
    input_feeding: bool = False
    """The output of one step is read by the next (Luong et al. 2015, section 3.3)."""
    maxout_units: Positive = 500
    """Of the output, of additive attention."""
    residual: bool = False
    """The input of each layer but the two lowest is added to its output (Wu et al. 2016, section 3.1)."""
    reverse_inputs: bool = False
    """The encoder reads each input from its end to its beginning (Sutskever et al. 2014, section 3.3)."""
    shared_embedding: bool = False
    """Encoder and decoder read one embedding; otherwise each has its own."""
    dropout_rate: Rate = 0.0
    """Dropout on embeddings, between layers, and on the output."""
    initial_scale: Annotated[float, Range(gt=0, remedy="choose e.g. 0.08")] = 0.08
    """All matrices begin uniformly between this and its negative."""

    architecture: ClassVar[Architecture] = "encoder-decoder"
    pretraining: ClassVar[Pretraining | None] = "sequence to sequence"
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "decoder_token_embedding")
    packs_rows: ClassVar[bool] = False
    heads: ClassVar[tuple[str, ...]] = ()
    texts_begin_with_cls: ClassVar[bool] = False
    max_length: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional > self.num_encoder_layers:
            raise InputError(
                f"bidirectional={self.bidirectional} exceeds num_encoder_layers={self.num_encoder_layers}; choose at "
                "most as many"
            )
        if self.residual and 1 < self.bidirectional < self.num_encoder_layers:
            raise InputError(
                f"bidirectional={self.bidirectional} with residual=True adds {2 * self.units} features to the "
                f"{self.units} of the first layer that reads one way; choose 0, 1 or {self.num_encoder_layers}"
            )
        if self.attention == "additive" and (self.input_feeding or self.window):
            raise InputError(
                "attention='additive' goes with neither input_feeding nor window, which are Luong's; choose concat"
            )
        if self.attention == "none" and (self.input_feeding or self.window):
            raise InputError("attention='none' has neither input_feeding nor window; choose dot, general or concat")
        if self.attention == "dot" and self.encoded_size != self.units:
            raise InputError(
                f"attention='dot' compares {self.units} units with the encoder's {self.encoded_size}, both directions "
                "together; choose general, or an encoder whose last layer is not bidirectional"
            )

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),) * 2

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "RecurrentEncoderDecoder":
        if remat not in ("none", "unroll"):
            raise InputError(f"remat={remat!r}: the layers of a RecurrentConfig keep what they compute; choose none")
        return RecurrentEncoderDecoder(self, dtype=dtype)

    def check_length(self, length: int) -> None:
        """Rows of any length are read."""

    @property
    def encoded_size(self) -> int:
        """Of the encoder's outputs."""
        return self.units * (2 if self.bidirectional == self.num_encoder_layers else 1)

    @property
    def output_size(self) -> int:
        """Of what is projected to the vocabulary."""
        return self.maxout_units if self.attention == "additive" else self.units

    @property
    def is_luongs(self) -> bool:
        return self.attention in ("dot", "general", "concat")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecoderState:
    """What one step of the decoder hands to the next, of R sequences."""

    layers: tuple[CellState, ...]
    fed: Any = None
    """[R O], the output of the step before, where it is read."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RecurrentCache:
    """What `decode_step` reads, and returns with the next state in it."""

    state: DecoderState
    memory: Memory
    """Of the inputs: their sequences share it."""
    matrices: dict[str, Any]
    """What the memory is read by."""

    def repeat(self, times: int) -> "RecurrentCache":
        """The cache for `times` sequences an input, all alike so far, of one for each."""
        return replace(self, state=jax.tree.map(lambda x: jnp.repeat(x, times, axis=0), self.state))

    def take(self, rows: Int[Array, "R"]) -> "RecurrentCache":
        """The cache of sequences that go on from these rows, each of the same input."""
        return replace(self, state=jax.tree.map(lambda x: x[rows], self.state))


class Alignment(nn.Module):
    """The parameters of an attention, and what a step reads of the encoder's outputs."""

    config: RecurrentConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, encoded: Float[Array, "B M E"], valid: Bool[Array, "B M"]) -> tuple[Memory, dict[str, Array]]:
        """(the memory, matrices that the query and the center are made by)."""
        c, init = self.config, uniform(self.config.initial_scale)
        size, matrices = c.alignment_units or c.units, {}

        def matrix(name: str, outputs: int) -> None:
            kernel = parameter(self, name, init, ("embed", "mlp"), (c.units, outputs))
            matrices[name] = constrain_sharding(kernel.astype(self.dtype), None, None)

        if c.window:
            matrix("center", size)
            kernel = parameter(self, "center_score", init, ("mlp", None), (size, 1))
            matrices["center_score"] = constrain_sharding(kernel.astype(self.dtype), None, None)
        if c.attention == "dot":
            return Memory(encoded, encoded, valid), matrices
        if c.attention == "general":
            matrix("query", c.encoded_size)
            return Memory(encoded, encoded, valid), matrices
        matrix("query", size)
        keys = Dense(size, ("embed", "mlp"), True, self.dtype, init, name="key")(encoded)
        vector = parameter(self, "score", init, ("mlp",), (size,))
        keys = constrain_sharding(keys, "activation_batch", None, None)
        vector = constrain_sharding(vector.astype(self.dtype), None)
        return Memory(keys, encoded, valid, vector), matrices


class RecurrentDecoder(nn.Module):
    """The layers of the decoder with their attention, a step of which gives a token's output."""

    config: RecurrentConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        embedded: Float[Array, "R L D"],
        state: DecoderState,
        memory: Memory,
        matrices: dict[str, Array],
        deterministic: bool = True,
    ) -> tuple[Float[Array, "R L O"], DecoderState]:
        """(outputs, the state after the last token).

        Where the collection `intermediates` is mutable, the weights of the attention [R L M] are sown there as
        `alignment`.
        """
        c, init = self.config, uniform(self.config.initial_scale)
        cell = decoder_cell(c)
        weights = [
            CellWeights(cell, init, self.dtype, name=f"layer_{n}")(c.embed_dim if n == 0 else c.units)
            for n in range(c.num_decoder_layers)
        ]
        products = {f"{n}/{name}": matrix for n, one in enumerate(weights) for name, matrix in one.own.items()}
        products |= {f"{n}/input": one.input.astype(self.dtype) for n, one in enumerate(weights) if n}
        products |= matrices

        def matrix(name: str, inputs: int, outputs: int) -> None:
            kernel = parameter(self, name, init, ("embed", "mlp"), (inputs, outputs))
            products[name] = kernel.astype(self.dtype)

        of_tokens = None
        if c.attention == "additive":
            matrix("context", c.encoded_size, cell.num_gates * c.units)
            matrix("readout_state", c.units, 2 * c.maxout_units)
            matrix("readout_context", c.encoded_size, 2 * c.maxout_units)
            of_tokens = Dense(2 * c.maxout_units, ("embed", "mlp"), False, self.dtype, init, name="readout")(embedded)
        if c.is_luongs:
            matrix("combine", c.encoded_size + c.units, c.units)
        if c.input_feeding:
            matrix("fed", c.units, cell.num_gates * c.units)
        products = {name: constrain_sharding(matrix, None, None) for name, matrix in products.items()}
        shared = memory, [(one.bias, one.own_bias) for one in weights]
        keep = None
        if c.dropout_rate and not deterministic:
            shape = (*embedded.shape[:2], c.num_decoder_layers - 1, c.units)
            axes = ("activation_batch", None, None, None)
            keep = keep_mask(self.make_rng("dropout"), c.dropout_rate, shape, axes)
        of_tokens, keep = jax.tree.map(lambda x: x.swapaxes(0, 1), (of_tokens, keep))
        xs = weights[0].gates(embedded), of_tokens, keep
        state, (outputs, seen) = scan_time(partial(_step, c), products, shared, state, xs, reverse=False)
        if seen is not None:
            self.sow("intermediates", "alignment", seen.swapaxes(0, 1))
        return outputs.swapaxes(0, 1), state


def decoder_cell(config: RecurrentConfig) -> Cell:
    """That of Bahdanau et al. is Cho's."""
    return Cell(config.cell, config.units, reset="before" if config.attention == "additive" else "after")


def _step(
    config: RecurrentConfig, product: Product, shared: Any, state: DecoderState, x: Any
) -> tuple[DecoderState, tuple[Float[Array, "R O"], Float[Array, "R M"] | None]]:
    """One token of R sequences: (the next state, (its output, the weights of its attention))."""
    c, cell, (memory, biases) = config, decoder_cell(config), shared
    gates, of_token, keep = x
    before, context, seen = state.layers[-1].output, None, None
    if c.attention == "additive":
        context, seen = align(memory, product("query", before))
        gates += product("context", context)
    if c.input_feeding:
        gates += product("fed", state.fed)
    output, layers = None, []
    for n, (bias, own_bias) in enumerate(biases):
        below = output
        if n:
            if keep is not None:
                below = jnp.where(keep[:, n - 1], below / (1.0 - c.dropout_rate), 0)
            gates = product(f"{n}/input", below) + bias[None]
        one = cell.step(lambda name, x, n=n: product(f"{n}/{name}", x), own_bias, state.layers[n], gates)
        output = one.output + below if c.residual and n >= 2 else one.output
        layers.append(one)
    if c.attention == "additive":
        output = product("readout_state", before) + of_token + product("readout_context", context)
        output = output.reshape(len(output), -1, 2).max(axis=-1)
    elif c.is_luongs:
        center = None
        if c.window:
            lengths = memory.valid.sum(axis=1)
            lengths = jnp.repeat(lengths, len(output) // len(lengths))
            score = product("center_score", jnp.tanh(product("center", output)))[:, 0]
            center = (lengths - 1) * jax.nn.sigmoid(score.astype(jnp.float32))
        query = output if c.attention == "dot" else product("query", output)
        context, seen = align(memory, query, center=center, window=c.window)
        output = jnp.tanh(product("combine", jnp.concatenate([context, output], axis=-1)))
    return DecoderState(tuple(layers), output if c.input_feeding else None), (output, seen)


class RecurrentEncoderDecoder(nn.Module):
    """Logits are float32 whatever `dtype` the layers compute in."""

    config: RecurrentConfig
    dtype: Any = jnp.float32

    def setup(self) -> None:
        c = self.config
        init = uniform(c.initial_scale)
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, init)
        if not c.shared_embedding:
            self.decoder_token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, init)
        both = (True,) * c.bidirectional + (False,) * (c.num_encoder_layers - c.bidirectional)
        cells = (Cell(c.cell, c.units, reset=decoder_cell(c).reset),) * c.num_encoder_layers
        first = 2 if c.residual else None
        self.encoder = RecurrentStack(cells, both, c.dropout_rate, first, init, self.dtype)
        size, pairs = c.units, min(c.bidirectional, c.num_decoder_layers)
        self.bridges = [Dense(size, ("embed", "mlp"), True, self.dtype, init) for _ in range(pairs)]
        if c.cell == "lstm":
            self.memory_bridges = [Dense(size, ("embed", "mlp"), True, self.dtype, init) for _ in range(pairs)]
        if c.attention != "none":
            self.cross_attention = Alignment(c, self.dtype)
        self.decoder = RecurrentDecoder(c, self.dtype)
        self.output = Unembedding(c.vocab_size, self.dtype, init)
        self.dropout = Dropout(c.dropout_rate)

    def __call__(self, *ids: Int[Array, "B _"], **options: Any) -> Float[Array, "B L V"]:
        """Logits of the token that follows each: see `scores`, which takes the same."""
        return self.scores(*ids, **options).dense()

    def scores(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        deterministic: bool = True,
    ) -> LazyLogits:
        """Which target follows each decoder input, teacher forced.

        Args:
          inputs: ids of the encoder's side.
          decoder_inputs: the targets shifted right by one, the start id in front.
          inputs_valid: true where `inputs` is not padding, which comes last; None means everywhere.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.
        """
        hidden, _ = self._decode(decoder_inputs, *self._encode(inputs, inputs_valid, deterministic), deterministic)
        return self.output(hidden)

    def encode(self, inputs: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Float[Array, "B M E"]:
        """The encoder's outputs; arguments are those of `scores`."""
        return self._encode(inputs, inputs_valid, deterministic)[1].values

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B L E"]:
        """The vectors of texts: `encode`; there are no segments."""
        return self.encode(inputs, inputs_valid=inputs_valid, deterministic=deterministic)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> RecurrentCache:
        """Runs the encoder; what `decode_step` reads and writes, however many tokens it writes."""
        state, memory, matrices = self._encode(inputs, inputs_valid, True)
        return RecurrentCache(state, memory, matrices)

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: RecurrentCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], RecurrentCache]:
        """Logits after the decoder inputs at positions `index, index + 1, ...`, given the state before."""
        hidden, state = self._decode(decoder_inputs, cache.state, cache.memory, cache.matrices, True)
        logits = vocabulary_logits(hidden, self.output.output_kernel(), self.dtype)
        return logits, replace(cache, state=state)

    def _encode(self, inputs: Ids, valid: Valid, deterministic: bool) -> tuple[DecoderState, Memory, dict[str, Array]]:
        """(the decoder's first state, what it reads of the inputs at each step, matrices that it reads them by)."""
        c = self.config
        valid = jnp.ones(inputs.shape, bool) if valid is None else valid
        ids = reverse_valid(inputs, valid) if c.reverse_inputs else inputs
        embedded = self.dropout(self.token_embedding(ids), deterministic=deterministic)
        encoded, states = self.encoder(embedded, valid, deterministic=deterministic)
        if c.reverse_inputs:
            encoded = reverse_valid(encoded, valid)
        memory, matrices = Memory(encoded, encoded, valid), {}
        if c.attention != "none":
            memory, matrices = self.cross_attention(encoded, valid)
        layers = []
        for n in range(c.num_decoder_layers):
            if n >= len(states):
                layers.append(decoder_cell(c).zeros(inputs.shape[:1], self.dtype))
            elif len(states[n]) == 1:
                layers.append(states[n][0])
            else:
                # That which read from the end to the beginning, as in Bahdanau et al. 2015, appendix A.2.2.
                output, cell_memory = states[n][1].output, states[n][1].memory
                if cell_memory is not None:
                    cell_memory = self.memory_bridges[n](cell_memory).astype(jnp.float32)
                layers.append(CellState(jnp.tanh(self.bridges[n](output)), cell_memory))
        fed = jnp.zeros((len(inputs), c.units), self.dtype) if c.input_feeding else None
        return DecoderState(tuple(layers), fed), memory, matrices

    def _decode(
        self,
        ids: Ids,
        state: DecoderState,
        memory: Memory,
        matrices: dict[str, Array],
        deterministic: bool,
    ) -> tuple[Float[Array, "R L O"], DecoderState]:
        table = self.token_embedding if self.config.shared_embedding else self.decoder_token_embedding
        embedded = self.dropout(table(ids), deterministic=deterministic)
        hidden, state = self.decoder(embedded, state, memory, matrices, deterministic)
        hidden = constrain_sharding(hidden, "activation_batch", "activation_length", "activation_embed")
        return self.dropout(hidden, deterministic=deterministic), state


def _presets() -> dict[str, RecurrentConfig]:
    """With one vocabulary for both languages, where the papers have one for each."""
    return {
        # Section 3.4: four layers of 1,000 cells.
        "rnn-sutskever": RecurrentConfig(
            vocab_size=80_000,
            embed_dim=1000,
            units=1000,
            num_encoder_layers=4,
            num_decoder_layers=4,
            attention="none",
            reverse_inputs=True,
        ),
        # Appendix A.2.3 and B.1: RNNsearch.
        "rnn-bahdanau": RecurrentConfig(
            vocab_size=30_000,
            embed_dim=620,
            cell="gru",
            units=1000,
            num_encoder_layers=1,
            num_decoder_layers=1,
            bidirectional=1,
            attention="additive",
            initial_scale=0.01,
        ),
        # Section 4.1: local-p with the general score, input feeding and dropout, the best of table 1.
        "rnn-luong": RecurrentConfig(
            vocab_size=50_000,
            embed_dim=1000,
            units=1000,
            num_encoder_layers=4,
            num_decoder_layers=4,
            window=10,
            input_feeding=True,
            reverse_inputs=True,
            dropout_rate=0.2,
            initial_scale=0.1,
        ),
        # Wu et al. 2016, section 3: eight layers, of which the lowest of the encoder reads both ways.
        "rnn-gnmt": RecurrentConfig(
            vocab_size=32_000,
            embed_dim=1024,
            units=1024,
            num_encoder_layers=8,
            num_decoder_layers=8,
            bidirectional=1,
            attention="concat",
            input_feeding=True,
            residual=True,
            dropout_rate=0.2,
            initial_scale=0.04,
        ),
    }


PRESETS: dict[str, RecurrentConfig] = _presets()
"""The sizes of the papers: `rnn-sutskever`, `rnn-bahdanau`, `rnn-luong`, `rnn-gnmt`."""
