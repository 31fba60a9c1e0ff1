"""The encoder-decoder of text that T5, the 2017 Transformer, Marian and BART are.

A family is a config: its file in this folder has what is particular to it, and the published sizes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.kernels.masks import DistanceBias, Mask
from t5x_lite.layers.decoding_cache import DecodingCache
from t5x_lite.layers.dense import Activation, Dropout, LayerConfig, make_norm
from t5x_lite.layers.embedding import POSITION_AXES, Embedding, LazyLogits
from t5x_lite.layers.heads import at_end
from t5x_lite.layers.positions import RelativePositionBias, positions_in_segments, sinusoidal_positions
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import Architecture, GeneratorConfig, Hidden, Ids, Pretraining, TextGenerator, Valid
from t5x_lite.validation import NormEpsilon, Positive, Rate

StackName = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class EncoderDecoderConfig(GeneratorConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive
    """Rows of the embedding that encoder, decoder and output share: the tokenizer's ids or more."""
    num_heads: Positive = 8
    """Attention heads a layer."""
    embed_dim: Positive = 512
    """Width of the residual stream (d_model)."""
    mlp_dim: Positive = 2048
    """Width of the feed-forward layers (d_ff)."""
    num_encoder_layers: Positive = 6
    num_decoder_layers: Positive = 6
    activation: Activation = "relu"
    """Of the feed-forward layers: relu, gelu, gelu_tanh, quick_gelu, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings and residual branches."""
    norm_epsilon: NormEpsilon = 1e-5
    """Added to the variance in LayerNorm, or to the mean square in RMSNorm."""
    tied: bool = True
    """The output projection is the decoder's embedding; otherwise it has a kernel of its own."""

    architecture: ClassVar[Architecture] = "encoder-decoder"
    pretraining: ClassVar[Pretraining | None] = "sequence to sequence"
    below_layers: ClassVar[tuple[str, ...]] = (
        "token_embedding",
        "decoder_token_embedding",
        "encoder_embeddings",
        "decoder_embeddings",
        "encoder_position_bias",
        "decoder_position_bias",
    )
    norm_embedding: ClassVar[bool] = False
    """LayerNorm on the sum of the embeddings."""
    starts_with: ClassVar[Literal["pad", "eos"]] = "pad"
    """What the decoder reads first where `start_id` is None."""

    # Fields of some families, documented there.
    stacks_share_parameters: ClassVar[bool] = False
    shared_embedding: ClassVar[bool] = True
    scale_embedding: ClassVar[bool] = False
    fixed_id: ClassVar[int | None] = None
    start_id: ClassVar[int | None] = None

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        if self.start_id is not None:
            return self.start_id
        return eos_id if self.starts_with == "eos" else pad_id

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "EncoderDecoder":
        return EncoderDecoder(self, dtype=dtype, remat=remat)

    def decoder_layer(self) -> LayerConfig:
        """The sizes and options of a layer of the decoder; the encoder's unless a family says otherwise."""
        return self.layer()


class InputEmbeddings(nn.Module):
    """What a stack reads: the tokens' vectors with those of positions, and a norm where the family has one."""

    config: EncoderDecoderConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, embedded: Hidden, positions: Int[Array, "_ L"], *, deterministic: bool) -> Hidden:
        c = self.config
        x = embedded * c.embed_dim**0.5 if c.scale_embedding else embedded
        if c.positions == "sinusoidal":
            x += jnp.asarray(sinusoidal_positions(c.max_length, c.embed_dim), self.dtype)[positions]
        elif c.positions == "learned":
            rows = c.position_offset + c.max_length
            table = Embedding(rows, c.embed_dim, self.dtype, c.embedding_init, POSITION_AXES, name="position")
            x += table(positions + c.position_offset)
        if c.norm_embedding:
            x = make_norm("layer", epsilon=c.norm_epsilon, dtype=self.dtype, name="norm")(x)
        return Dropout(c.dropout_rate, c.layer().positions_share_dropout)(x, deterministic=deterministic)


class EncoderDecoder(TextGenerator):
    """Two stacks over one embedding, which is the output too unless the config says otherwise.

    Logits are float32 whatever `dtype` the layers compute in.
    """

    config: EncoderDecoderConfig

    def setup(self) -> None:
        c = self.config
        self.setup_output()
        if not c.shared_embedding:
            self.decoder_token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.embedding_init)
        self.encoder_embeddings = InputEmbeddings(c, self.dtype)
        self.decoder_embeddings = InputEmbeddings(c, self.dtype)
        if c.positions == "relative":
            buckets = (c.relative_buckets, c.relative_max_distance)
            self.encoder_position_bias = RelativePositionBias(c.num_heads, True, *buckets)
            self.decoder_position_bias = RelativePositionBias(c.num_heads, False, *buckets)
        self.decoder = Stack(c.decoder_layer(), c.num_decoder_layers, True, self.remat, self.dtype)
        if c.stacks_share_parameters:
            self.encoder = self.decoder
        else:
            self.encoder = Stack(c.layer(), c.num_encoder_layers, False, self.remat, self.dtype)

    def scores(self, inputs: Int[Array, "B M"], decoder_inputs: Int[Array, "B L"], **options: Any) -> LazyLogits:
        """Which target follows each decoder input, teacher forced; arguments are those of `decoder_states`."""
        return self.output_scores(self.decoder_states(inputs, decoder_inputs, **options))

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """What heads of tasks read: the decoder's output when it reads the same row as the encoder, one position
        later (Lewis et al. 2020, sections 3.1 and 3.2, and the released code).

        The row's last token, which is EOS, comes first, or the config's `start_id`. There are no segments.
        """
        start_id, last = self.config.start_id, at_end(inputs, inputs_valid)
        first = last if start_id is None else jnp.full_like(last, start_id)
        decoder_inputs = jnp.concatenate([first[:, None], inputs[:, :-1]], axis=1)
        return self.decoder_states(inputs, decoder_inputs, inputs_valid=inputs_valid, deterministic=deterministic)

    def decoder_states(
        self,
        inputs: Int[Array, "B M"],
        decoder_inputs: Int[Array, "B L"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        decoder_segments: Int[Array, "B L"] | None = None,
        decoder_positions: Int[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """The decoder's output.

        Args:
          inputs: ids of the encoder's side.
          decoder_inputs: the targets shifted right by one, the start id in front.
          inputs_valid: true where `inputs` is not padding; None means everywhere.
          inputs_segments, decoder_segments: for packed rows: tokens see those of their segment alone, and count their
            positions from its beginning.
          decoder_positions: of the decoder's inputs; None counts them from 0. A bias by distance needs none.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.

        Raises:
          InputError: a row is longer than the config's `max_length`.
        """
        encoded = self.encode(
            inputs, inputs_valid=inputs_valid, inputs_segments=inputs_segments, deterministic=deterministic
        )
        context = Context(
            self_bias=self._bias("decoder", decoder_inputs.shape[1]),
            self_mask=Mask.of_segments(decoder_segments, causal=True),
            memory=encoded,
            memory_mask=Mask.of_segments(decoder_segments, inputs_segments, valid=inputs_valid),
        )
        if decoder_positions is None:
            decoder_positions = self._positions(decoder_inputs, decoder_segments)
        x = self._embed("decoder", decoder_inputs, decoder_positions, deterministic)
        return self.output_dropout(self.decoder(x, context, deterministic=deterministic), deterministic=deterministic)

    def encode(
        self,
        inputs: Int[Array, "B M"],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        inputs_segments: Int[Array, "B M"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B M D"]:
        """The encoder's output; arguments are those of `decoder_states`."""
        bias = self._bias("encoder", inputs.shape[1])
        context = Context(bias, Mask.of_segments(inputs_segments, valid=inputs_valid))
        x = self._embed("encoder", inputs, self._positions(inputs, inputs_segments), deterministic)
        return self.output_dropout(self.encoder(x, context, deterministic=deterministic), deterministic=deterministic)

    def start_decoding(
        self, inputs: Int[Array, "B M"], *, inputs_valid: Bool[Array, "B M"] | None = None, max_length: int
    ) -> DecodingCache:
        """Runs the encoder; what `decode_step` reads and writes, with room for `max_length` tokens."""
        self.config.check_length(max_length)
        valid = jnp.ones(inputs.shape, bool) if inputs_valid is None else inputs_valid
        encoded = self.encode(inputs, inputs_valid=valid)
        return self.decoder.start_decoding(valid, self.output_kernel(), memory=encoded, max_length=max_length)

    def decode_hidden(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L D"], DecodingCache]:
        """The decoder's output for the tokens at positions `index, index + 1, ...`, and the cache with them."""
        queries = (index + jnp.arange(decoder_inputs.shape[1]))[None, :]
        past = jnp.arange(cache.num_positions)[None, :] <= queries[0][:, None]
        x = self._embed("decoder", decoder_inputs, queries, True)
        bias = self._bias("decoder", cache.num_positions)
        return self.decoder.decode(x, cache, position=index, mask=past[None, None], bias=bias)

    def _embed(self, stack: StackName, ids: Ids, positions: Int[Array, "_ L"], deterministic: bool) -> Hidden:
        table, fixed_id = self.output_table if stack == "decoder" else self.token_embedding, self.config.fixed_id
        x = table(ids)
        if fixed_id is not None:
            x = jnp.where((ids == fixed_id)[..., None], jax.lax.stop_gradient(x), x)
        return getattr(self, f"{stack}_embeddings")(x, positions, deterministic=deterministic)

    @property
    def output_table(self) -> Embedding:
        return self.token_embedding if self.config.shared_embedding else self.decoder_token_embedding

    def _bias(self, stack: StackName, length: int) -> DistanceBias | None:
        return getattr(self, f"{stack}_position_bias")(length, length) if self.config.positions == "relative" else None

    def _positions(self, ids: Ids, segments: Ids | None) -> Int[Array, "_ L"]:
        self.config.check_length(ids.shape[1])
        return jnp.arange(ids.shape[1])[None] if segments is None else positions_in_segments(segments)
