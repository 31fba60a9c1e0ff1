"""The decoder that GPT and its descendants are, and the one that T5's authors compared with their encoder-decoder.

A family is a config: its file in this folder has what is particular to it, and the published sizes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import DistanceBias, Mask
from t5x_lite.layers.decoding_cache import DecodingCache
from t5x_lite.layers.dense import Activation, Dropout
from t5x_lite.layers.embedding import POSITION_AXES, Embedding, LazyLogits
from t5x_lite.layers.positions import RelativePositionBias, positions_in_segments
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, GeneratorConfig, Hidden, Ids, Pretraining, TextGenerator, Valid
from t5x_lite.validation import NormEpsilon, Positive


@dataclass(frozen=True)
class DecoderConfig(GeneratorConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive
    """Rows of the token embedding: the tokenizer's ids or more."""
    num_heads: Positive = 12
    """Attention heads a layer."""
    embed_dim: Positive = 768
    """Width of the residual stream."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layer."""
    num_layers: Positive = 12
    activation: Activation = "gelu_tanh"
    """Of the feed-forward layer: gelu_tanh, gelu, quick_gelu, relu, silu or tanh."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance (mean square in RMSNorm)."""
    tied: bool = True
    """The output projection is the embedding; otherwise it has a kernel of its own."""

    architecture: ClassVar[Architecture] = "decoder"
    pretraining: ClassVar[Pretraining] = "causal language model"
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding", "position", "position_bias")
    answers_prompts: ClassVar[bool] = False
    """It reads a text and writes another one, rather than going on from where the text breaks off."""

    # Fields of some families, documented there.
    full_prefix: ClassVar[bool] = False
    embedding_dropout_rate: ClassVar[float] = 0.0

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        """The id between inputs and targets: the EOS that closes the inputs."""
        return eos_id

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Decoder":
        return Decoder(self, dtype=dtype, remat=remat)


class Decoder(TextGenerator):
    """A causal stack over token embeddings. Logits are float32 whatever `dtype` the layers compute in."""

    config: DecoderConfig

    def setup(self) -> None:
        c = self.config
        self.setup_output()
        if c.positions == "relative":
            buckets = (c.relative_buckets, c.relative_max_distance)
            self.position_bias = RelativePositionBias(c.num_heads, c.full_prefix, *buckets)
        else:
            self.position = Embedding(c.max_length, c.embed_dim, self.dtype, c.embedding_init, POSITION_AXES)
        layer = c.layer()
        self.decoder = Stack(layer, c.num_layers, False, self.remat, self.dtype)
        self.embedding_dropout = Dropout(c.embedding_dropout_rate, layer.positions_share_dropout)

    def scores(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        decoder_segments: Int[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> LazyLogits:
        """Which token follows each of `decoder_inputs`, or of `inputs` where those are all there is.

        Args:
          inputs: ids that come first.
          decoder_inputs: ids that go on from them, such as targets shifted right by one, the start id in front.
          inputs_valid: true where `inputs` is not padding, which may be on either side; None means everywhere.
          decoder_segments: for packed rows, of `decoder_inputs` alone after inputs of length 0: tokens see those of
            their segment alone, and count their positions from its beginning.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.

        Returns:
          Scores of [B L], or [B M] without decoder inputs; after padding they mean nothing.

        Raises:
          InputError: the rows are longer than the config's `max_length`.
        """
        prefix = inputs.shape[1]
        if decoder_inputs is None:
            hidden = self._hidden(inputs, inputs_valid, None, prefix, deterministic)
        elif prefix == 0:
            hidden = self._hidden(decoder_inputs, None, decoder_segments, 0, deterministic)
        elif decoder_segments is not None:
            raise ValueError("decoder_segments are for rows without inputs")
        else:
            valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
            inputs, valid = padding_first(inputs, valid)
            ids = jnp.concatenate([inputs, decoder_inputs], axis=1)
            valid = jnp.concatenate([valid, jnp.ones(decoder_inputs.shape, bool)], axis=1)
            hidden = self._hidden(ids, valid, None, prefix, deterministic)[:, prefix:]
        return self.token_scores(hidden, deterministic=deterministic)

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """The last layer's output, which heads of tasks and `token_scores` read; there are no segments."""
        return self._hidden(inputs, inputs_valid, None, inputs.shape[1], deterministic)

    def token_scores(self, hidden: Hidden, *, deterministic: bool = True) -> LazyLogits:
        """Which token follows each, from `hidden_states`."""
        return self.output_scores(self.output_dropout(hidden, deterministic=deterministic))

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the inputs; what `decode_step` reads and writes, with room for `max_length` tokens after them."""
        length = inputs.shape[1]
        self.config.check_length(length + max_length)
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        inputs, valid = padding_first(inputs, valid)
        output = self.output_kernel()
        cache = self.decoder.start_decoding(valid, output, max_length=max_length, prompt_length=length)
        return self.decode_hidden(inputs, cache, jnp.int32(-length))[1] if length else cache

    def decode_hidden(
        self, ids: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L D"], DecodingCache]:
        """The last layer's output for the tokens `index, index + 1, ...` after the inputs, and the cache with them."""
        length, positions, prefix = ids.shape[1], cache.num_positions, cache.prompt_length
        first = prefix + index
        queries = first + jnp.arange(length)
        seen = jnp.arange(positions)[None, :] <= queries[:, None]
        if self.config.full_prefix:
            seen |= (jnp.arange(positions) < prefix)[None, :] & (queries < prefix)[:, None]
        valid = jnp.pad(cache.inputs_valid, ((0, 0), (0, positions - prefix)), constant_values=True)
        padding = jnp.repeat((~valid).sum(axis=1, keepdims=True), cache.num_sequences, axis=0)
        x = self._embed(ids, jnp.maximum(queries[None, :] - padding, 0), True)
        mask = seen[None, None] & valid[:, None, None]
        return self.decoder.decode(x, cache, position=first, mask=mask, bias=self._bias(positions))

    def _hidden(self, ids: Ids, valid: Valid, segments: Ids | None, prefix: int, deterministic: bool) -> Hidden:
        length = ids.shape[1]
        self.config.check_length(length)
        if segments is not None:
            positions = positions_in_segments(segments)
        elif valid is not None:
            positions = jnp.maximum(jnp.cumsum(valid, axis=1) - 1, 0)
        else:
            positions = jnp.arange(length)[None]
        prefix = prefix if self.config.full_prefix else 0
        context = Context(self._bias(length), Mask(valid, segments, segments, causal=True, prefix=prefix))
        return self.decoder(self._embed(ids, positions, deterministic), context, deterministic=deterministic)

    def _embed(self, ids: Ids, positions: Int[Array, "_ L"], deterministic: bool) -> Hidden:
        x = self.token_embedding(ids)
        if self.config.positions == "learned":
            x += self.position(positions)
        return self.embedding_dropout(x, deterministic=deterministic)

    def _bias(self, length: int) -> DistanceBias | None:
        return self.position_bias(length, length) if self.config.positions == "relative" else None


def padding_first(ids: Int[Array, "B M"], valid: Bool[Array, "B M"]) -> tuple[Int[Array, "B M"], Bool[Array, "B M"]]:
    """The same rows with their padding in front, so that what is written after them follows without a gap.

    >>> ids, valid = padding_first(jnp.array([[7, 8, 0]]), jnp.array([[True, True, False]]))
    >>> ids.tolist(), valid.tolist()
    ([[0, 7, 8]], [[False, True, True]])
    """
    order = jnp.argsort(valid, axis=1, stable=True)
    return jnp.take_along_axis(ids, order, axis=1), jnp.take_along_axis(valid, order, axis=1)
