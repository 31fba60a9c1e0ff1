"""XLNet: an encoder that predicts tokens in any order, by a stream of content and one of queries (Yang et al. 2019)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, Dropout, LayerConfig
from t5x_lite.layers.embedding import Embedding, LazyLogits
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.relative import (
    Memory,
    RelativeContext,
    RelativeStack,
    empty_memory,
    next_memory,
    relative_positions,
    remembered,
)
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import TASK_HEADS, Hidden, Ids, Pretraining, TaskHead, TextConfig, TextModel, Valid
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NormEpsilon, Positive, Rate

Head = Literal["permutation_lm", TaskHead]
"""The output over the vocabulary, and heads of tasks."""


@dataclass(frozen=True)
class XLNetConfig(TextConfig):
    """The architecture of one XLNet. The defaults are base, cased."""

    vocab_size: Positive = 32_000
    """Rows of the token embedding: the tokenizer's ids or more."""
    num_heads: Positive = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 768
    """Width of the residual stream."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layer."""
    num_layers: Positive = 12
    activation: Activation = "gelu"
    """Of the feed-forward layer: gelu, gelu_tanh, quick_gelu, relu, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings, positions, attention weights, hidden units, residual branches and the output."""
    norm_epsilon: NormEpsilon = 1e-12
    """Added to the variance in LayerNorm."""
    clamp_length: Positive | None = None
    """Keys at a larger distance, before or after, have the position of this one; None: each has its own."""
    heads: tuple[Head, ...] = ()
    """Heads that read the encoder's output: permutation_lm, and those of tasks."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.1
    """Dropout in the heads of tasks."""

    task_heads: ClassVar[tuple[str, ...]] = TASK_HEADS
    known_heads: ClassVar[tuple[str, ...]] = ("permutation_lm",)
    architecture: ClassVar[str] = "encoder"
    row_activation: ClassVar[str] = "tanh"
    texts_begin_with_cls: ClassVar[bool] = True
    below_layers: ClassVar[tuple[str, ...]] = ("token_embedding",)
    num_segments: ClassVar[int] = 3
    """Of two texts and the [CLS] after them; what counts is which tokens are of the same one."""
    tied: ClassVar[bool] = True

    @property
    def attention_dropout_rate(self) -> float:
        return self.dropout_rate

    @property
    def pretraining(self) -> Pretraining | None:
        return "permutation language model" if "permutation_lm" in self.heads else None

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        if vocabulary.cls_id is not None and not vocabulary.cls_last:
            raise InputError(
                "model is an XLNetConfig, whose heads read a [CLS] that ends a row, and the tokenizer's begins it; use "
                "SentencePiece(layout='xlnet'), or a tokenizer without [CLS]"
            )

    def layer(self) -> LayerConfig:
        return replace(super().layer(), attention_bias=False, mlp_dropout_rate=self.dropout_rate)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "XLNet":
        return XLNet(self, dtype=dtype, remat=remat)


class XLNet(TextModel):
    """Token embeddings, layers with relative positions and segments, and the config's heads. Logits are float32
    whatever `dtype` the layers compute in."""

    config: XLNetConfig

    def setup(self) -> None:
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.kernel_init)
        self.mask_embedding = parameter(self, "mask_embedding", c.kernel_init, ("norm",), (c.embed_dim,))
        options = {"has_segments": True, "remat": self.remat, "dtype": self.dtype}
        self.encoder = RelativeStack(c.layer(), c.num_layers, c.embed_dim, **options)
        self.dropout = Dropout(c.dropout_rate)
        if "permutation_lm" in c.heads:
            self.output_bias = parameter(self, "output_bias", nn.initializers.zeros, ("vocab",), (c.vocab_size,))
        self.setup_task_heads()

    def __call__(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> dict[str, Array]:
        """All outputs for some rows, each token of which sees all others: `hidden` [B L D], and for each head
        `<head>_logits`. The arguments are those of `hidden_states`."""
        hidden = self.hidden_states(inputs, segments, inputs_valid=inputs_valid, deterministic=deterministic)
        options = {"inputs_valid": inputs_valid, "deterministic": deterministic}
        results = {"hidden": hidden}
        for head in self.config.heads:
            of_head = options if head in ("classification", "multiple_choice") else {}
            results[f"{head}_logits"] = getattr(self, f"{head}_logits")(hidden, **of_head)
        return results

    def hidden_states(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """The last layer's output, which heads of tasks read.

        Args:
          inputs: ids.
          segments: the segment of each id; None leaves out what distinguishes them.
          inputs_valid: true where `inputs` is not padding, which may be on either side; None means everywhere.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.
        """
        memory = self.empty_memory(len(inputs), 0)
        (hidden, _), _ = self._streams(inputs, segments, inputs_valid, memory, deterministic=deterministic)
        return self.dropout(hidden, deterministic=deterministic)

    def encode_layers(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "_ B L D"]:
        """The embeddings and the output of each layer: num_layers + 1 arrays."""
        memory = self.empty_memory(len(inputs), 0)
        (hidden, _), read = self._streams(inputs, segments, inputs_valid, memory, deterministic=deterministic)
        return jnp.concatenate([read, hidden[None]])

    def predictions(
        self,
        inputs: Ids,
        segments: Ids | None,
        order: Int[Array, "B L"],
        positions: Int[Array, "B P"],
        *,
        memory: Memory | None = None,
        remembered_length: int | None = None,
        backward: Bool[Array, "B"] | None = None,
        inputs_valid: Valid = None,
        deterministic: bool = True,
    ) -> tuple[LazyLogits, Memory]:
        """(scores of the token at each of `positions`, given those before it in the order; the next memory).

        Args:
          order: of the tokens, as numbers: a token sees those of lower ones, and tokens of the same even number see
            each other. The content stream of a token sees itself too; the query stream knows where it is, and not what
            is there (section 2.3).
          memory: of the segment before; None: there is none.
          remembered_length: tokens at the beginning that go into the memory; None: all.
          backward: rows whose text is read from its end to its beginning: positions count the other way.
          Others are those of `hidden_states`.
        """
        memory = self.empty_memory(len(inputs), 0) if memory is None else memory
        seen = order[:, None, :] < (order + (order % 2 == 0))[:, :, None]
        (_, hidden), read = self._streams(
            inputs, segments, inputs_valid, memory, seen, positions, backward, deterministic=deterministic
        )
        hidden = self.dropout(hidden, deterministic=deterministic)
        scores = replace(self.token_embedding.scores(hidden), bias=self.output_bias)
        return scores, next_memory(memory, read[:, :, :remembered_length])

    def permutation_lm_logits(self, hidden: Float[Array, "B P D"]) -> Float[Array, "B P V"]:
        """Logits of tokens, from the last layer's output for a stream."""
        return replace(self.token_embedding.scores(hidden), bias=self.output_bias).dense()

    def empty_memory(self, batch_size: int, length: int) -> Memory:
        """That of rows before which there is nothing."""
        return empty_memory(batch_size, self.config.num_layers, length, self.config.embed_dim, self.dtype)

    def _streams(
        self,
        ids: Ids,
        segments: Ids | None,
        valid: Valid,
        memory: Memory,
        seen: Bool[Array, "B L L"] | None = None,
        positions: Int[Array, "B P"] | None = None,
        backward: Bool[Array, "B"] | None = None,
        *,
        deterministic: bool,
    ) -> Any:
        """((content, query), what the layers have read); `seen` without each token itself, None: all see all."""
        c, (batch_size, length) = self.config, ids.shape
        before = memory["hidden"].shape[2]
        valid = jnp.ones(ids.shape, bool) if valid is None else valid
        seen = jnp.ones((1, length, length), bool) if seen is None else seen
        itself = jnp.eye(length, dtype=bool)[None]
        of_memory = jnp.broadcast_to(remembered(memory)[:, None], (batch_size, length, before))

        def mask(pairs: Bool[Array, "B L L"]) -> Bool[Array, "B 1 L M"]:
            pairs = jnp.broadcast_to(pairs, (batch_size, length, length))
            return jnp.concatenate([of_memory, pairs], axis=2)[:, None]

        hidden_pairs = seen & valid[:, None, :]
        other = None
        if segments is not None:
            # A memory counts as of the first segment, as in their code.
            of_keys = jnp.pad(segments, ((0, 0), (before, 0)))
            other = segments[:, :, None] != of_keys[:, None, :]
        encodings = self._encodings(length, before, backward)
        query, query_mask = None, None
        if positions is not None:
            query_mask = mask(hidden_pairs)
            query = jnp.broadcast_to(self.mask_embedding.astype(self.dtype), (*positions.shape, c.embed_dim))
            query = self.dropout(query, deterministic=deterministic)
        context = RelativeContext(
            self.dropout(encodings, deterministic=deterministic),
            mask(hidden_pairs | itself),
            query_mask,
            positions,
            other,
        )
        content = self.dropout(self.token_embedding(ids), deterministic=deterministic)
        return self.encoder((content, query), memory, context, deterministic=deterministic)

    def _encodings(self, length: int, before: int, backward: Bool[Array, "B"] | None) -> Float[Array, "_ T D"]:
        c = self.config
        sizes = (length, before + length, c.embed_dim)
        encodings = jnp.asarray(relative_positions(*sizes, causal=False, clamp=c.clamp_length), self.dtype)
        if backward is None:
            return encodings
        sines, cosines = jnp.split(encodings, 2, axis=-1)
        return jnp.where(backward[:, None, None], jnp.concatenate([-sines, cosines], axis=-1), encodings)


PRESETS: dict[str, XLNetConfig] = {
    "xlnet-base-cased": XLNetConfig(),
    "xlnet-large-cased": XLNetConfig(num_heads=16, embed_dim=1024, mlp_dim=4096, num_layers=24),
}
"""The published sizes under their public names. Without heads: name those that the objective trains."""
