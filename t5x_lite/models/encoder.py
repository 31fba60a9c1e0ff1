"""The encoder that BERT and its descendants are: post-LN layers over embeddings, and the heads that pretrain them.

A family is a config: a file beside this one says what is particular to it and which sizes were published.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.dense import Activation, Dense, Dropout
from t5x_lite.layers.embedding import LazyLogits, TokenEmbeddings
from t5x_lite.layers.heads import (
    MaskedLMHead,
    Pooler,
    ReplacedTokenHead,
    RowHead,
    SentencePairHead,
    SpanBoundaryHead,
    TokenHead,
)
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.transformer import Context, LayerConfig, Remat, Stack
from t5x_lite.models.base import Architecture, Pretraining, TextConfig, check_heads, check_length
from t5x_lite.models.task_heads import TASK_HEADS, TokenHeads, check_head_names
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate

Head = Literal[
    "masked_lm",
    "sentence_pair",
    "span_boundary",
    "replaced_token",
    "classification",
    "multiple_choice",
    "tagging",
    "question_answering",
]
"""The heads of an encoder: the first four while it is pretrained, the others by tasks."""

_INIT = nn.initializers.truncated_normal(0.02)


@dataclass(frozen=True)
class EncoderConfig(TextConfig):
    """What all families have. What only some have is a field there, and a constant or a property here."""

    vocab_size: Positive = 30_522
    """Rows of the token embedding: the tokenizer's ids or more."""
    num_heads: Positive = 12
    """Attention heads a layer; each is embed_dim / num_heads wide."""
    embed_dim: Positive = 768
    """Width of the residual stream."""
    mlp_dim: Positive = 3072
    """Width of the feed-forward layer."""
    num_layers: Positive = 12
    max_length: Annotated[int, Range(ge=2)] = 512
    """Positions that can be used: the longest row."""
    activation: Activation = "gelu"
    """Of the feed-forward layer: gelu, gelu_tanh, relu, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings and residual branches."""
    attention_dropout_rate: Rate = 0.1
    """Dropout on attention weights."""
    norm_epsilon: NormEpsilon = 1e-12
    """Added to the variance in LayerNorm."""
    tied: bool = True
    """Predictions of tokens are scored by the token embedding; otherwise by a kernel of their own."""
    heads: tuple[Head, ...] = ()
    """What stands on the encoder: the heads that its objective trains."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.1
    """Dropout in the heads of tasks."""

    task_heads: ClassVar[tuple[str, ...]] = TASK_HEADS
    architecture: ClassVar[Architecture] = "encoder"
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings", "projection")
    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm",)
    """The heads that the family was pretrained with."""
    num_segments: ClassVar[int] = 0
    """Rows of the segment embedding."""
    pooler: ClassVar[bool] = False
    """A dense layer on the first position, for tasks on whole rows."""
    row_activation: ClassVar[str] = ""
    """Activation of the dense layer that heads on rows have instead of the pooler; empty: they have none."""
    drops_first: ClassVar[bool] = False
    """Whether such a head has dropout before its dense layer too."""
    pad_id: ClassVar[int | None] = None
    """The padding id, where positions count the other ids only: see `TokenEmbeddings`."""
    layers_share_parameters: ClassVar[bool] = False
    """All layers are one and the same."""

    @property
    def pretraining(self) -> Pretraining | None:
        if "masked_lm" not in self.heads:
            return None
        return "masked language model, next sentence" if "sentence_pair" in self.heads else "masked language model"

    @property
    def token_embed_dim(self) -> int:
        """Width of the embeddings, before they are projected to `embed_dim`."""
        return self.embed_dim

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer stands between the embeddings and the first layer."""
        return self.token_embed_dim != self.embed_dim

    @property
    def token_activation(self) -> str:
        """Activation in the heads that predict tokens."""
        return self.activation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self)
        check_head_names(self, (*self.known_heads, *self.task_heads))
        for head in self.heads:
            if self.reads_pooled(head) and not self.pooler:
                raise InputError(f"heads with {head!r} need pooler=True, which gives them one vector for a row")

    def reads_pooled(self, head: Head) -> bool:
        """Whether a head reads the pooler's vector, and not the encoder's output."""
        return head in ("sentence_pair", "classification", "multiple_choice") and not self.row_activation

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Encoder":
        return Encoder(self, dtype=dtype, remat=remat)

    def layer(self) -> LayerConfig:
        """The shape of a layer, initialised as BERT's."""
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.embed_dim // self.num_heads,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
            norm_first=False,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            query_init=_INIT,
            kernel_init=_INIT,
        )

    def embeddings(self, dtype: Any) -> TokenEmbeddings:
        """The module of the embeddings."""
        return TokenEmbeddings(
            vocab_size=self.vocab_size,
            embed_dim=self.token_embed_dim,
            max_length=self.max_length,
            num_segments=self.num_segments,
            pad_id=self.pad_id,
            norm_epsilon=self.norm_epsilon,
            dtype=dtype,
        )


class Encoder(TokenHeads):
    """Embeddings, a stack of layers, and the config's heads. Logits are float32 whatever `dtype` the layers compute in.

    `shared_embeddings` are used where there are any, in the place of embeddings of its own.
    """

    config: EncoderConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"
    shared_embeddings: TokenEmbeddings | None = None

    def setup(self) -> None:
        c = self.config
        self.embeddings = c.embeddings(self.dtype) if self.shared_embeddings is None else self.shared_embeddings
        self.dropout = Dropout(c.dropout_rate)
        if c.projects_embeddings:
            self.projection = Dense(c.embed_dim, ("hidden", "embed"), True, self.dtype, _INIT)
        self.encoder = Stack(
            c.layer(), c.num_layers, remat=self.remat, dtype=self.dtype, shared=c.layers_share_parameters
        )
        if c.pooler:
            self.pooler = Pooler(self.dtype)
        to_tokens = (c.vocab_size, c.token_embed_dim, c.token_activation, c.norm_epsilon, self.dtype)
        if "masked_lm" in c.heads:
            self.masked_lm = MaskedLMHead(*to_tokens)
        if "sentence_pair" in c.heads:
            self.sentence_pair = SentencePairHead()
        if "span_boundary" in c.heads:
            self.span_boundary = SpanBoundaryHead(*to_tokens)
        if "replaced_token" in c.heads:
            self.replaced_token = ReplacedTokenHead(c.activation, self.dtype)
        if "classification" in c.heads:
            self.classification = self._row_head("classification", c.num_classes)
        if "multiple_choice" in c.heads:
            self.multiple_choice = self._row_head("multiple_choice", 1)
        if "tagging" in c.heads:
            self.tagging = TokenHead(c.num_classes, c.head_dropout_rate)
        if "question_answering" in c.heads:
            # The two ends of an answer. The papers' code drops nothing here.
            self.question_answering = TokenHead(2, 0.0)

    def _row_head(self, head: Head, num_logits: int) -> RowHead:
        c = self.config
        activation = "" if c.reads_pooled(head) else c.row_activation
        return RowHead(num_logits, activation, c.drops_first, c.head_dropout_rate, self.dtype)

    def __call__(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> dict[str, Array]:
        """All that this encoder says of some rows.

        Args:
          inputs: ids.
          segments: the segment of each id; None means 0. Families without segments take no notice of it.
          inputs_valid: true where `inputs` is no padding; None means everywhere.
          deterministic: no dropout; otherwise the caller gives a key named `dropout`.

        Returns:
          `hidden` [B L D]; `pooled` [B D] if there is a pooler; for each head `<head>_logits`: `masked_lm_logits`
          [B L V], `sentence_pair_logits` [B 2], `replaced_token_logits` [B L], and `span_boundary_logits` [B L V]
          as if each position were a span with itself on either side; of tasks, `classification_logits` [B C],
          `multiple_choice_logits` [B], `tagging_logits` [B L C] and `question_answering_logits` [B L 2].
        """
        hidden = self.hidden_states(inputs, segments, inputs_valid=inputs_valid, deterministic=deterministic)
        results = {"hidden": hidden}
        if self.config.pooler:
            results["pooled"] = self.pooler(hidden)
        for head in self.config.heads:
            arguments = (hidden, hidden, jnp.zeros_like(inputs)) if head == "span_boundary" else (hidden,)
            options = {"deterministic": deterministic} if head in TASK_HEADS else {}
            results[f"{head}_logits"] = getattr(self, f"{head}_logits")(*arguments, **options)
        return results

    def hidden_states(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L D"]:
        """The last layer's output, which the heads stand on. Raises `InputError` for rows longer than `max_length`."""
        x = self._embed(inputs, segments, inputs_valid, deterministic)
        return self.encoder(x, _context(inputs_valid), deterministic=deterministic)

    def encode_layers(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "_ B L D"]:
        """num_layers + 1 of them: what the first layer reads (embeddings, normed, projected), and each one's output."""
        x = self._embed(inputs, segments, inputs_valid, deterministic)
        outputs = self.encoder.outputs(x, _context(inputs_valid), deterministic=deterministic)
        return jnp.concatenate([x[None], outputs])

    def masked_lm_logits(self, hidden: Float[Array, "B P D"]) -> Float[Array, "B P V"]:
        """Which token stands at each position of the encoder's output."""
        return self.masked_lm_scores(hidden).dense()

    def masked_lm_scores(self, hidden: Float[Array, "B P D"]) -> LazyLogits:
        """The same before it is multiplied out, as a loss takes it."""
        return self.masked_lm(hidden, self._table())

    def sentence_pair_logits(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B 2"]:
        """Whether the second segment follows the first, in that order (class 0), or not (class 1)."""
        return self.sentence_pair(self.pooler(hidden))

    def span_boundary_logits(
        self, left: Float[Array, "B P D"], right: Float[Array, "B P D"], offsets: Int[Array, "B P"]
    ) -> Float[Array, "B P V"]:
        """Which token stands in a span, `offsets` behind its first, from the encoder's output beside the span."""
        return self.span_boundary_scores(left, right, offsets).dense()

    def span_boundary_scores(
        self, left: Float[Array, "B P D"], right: Float[Array, "B P D"], offsets: Int[Array, "B P"]
    ) -> LazyLogits:
        """The same before it is multiplied out, as a loss takes it."""
        return self.span_boundary(left, right, offsets, self._table())

    def replaced_token_logits(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B L"]:
        """Positive where a token is thought not to be the original one."""
        return self.replaced_token(hidden)

    def classification_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B C"]:
        """Which class a row is of, from the encoder's output; with one class, the number that is predicted."""
        return self.classification(self._row_vector("classification", hidden), deterministic=deterministic)

    def multiple_choice_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B"]:
        """How well a row, which holds one choice, answers; the softmax is over the rows of a question."""
        vector = self._row_vector("multiple_choice", hidden)
        return self.multiple_choice(vector, deterministic=deterministic)[:, 0]

    def _row_vector(self, head: Head, hidden: Float[Array, "B L D"]) -> Float[Array, "B D"]:
        return self.pooler(hidden) if self.config.reads_pooled(head) else hidden[:, 0]

    def _embed(
        self,
        inputs: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None,
        inputs_valid: Bool[Array, "B L"] | None,
        deterministic: bool,
    ) -> Float[Array, "B L D"]:
        check_length(self.config, inputs.shape[1])
        x = self.dropout(self.embeddings(inputs, segments, inputs_valid), deterministic=deterministic)
        return self.projection(x) if self.config.projects_embeddings else x

    def _table(self) -> Float[Array, "V E"] | None:
        return self.embeddings.token.embedding if self.config.tied else None


def _context(inputs_valid: Bool[Array, "B L"] | None) -> Context:
    return Context(self_mask=Mask(inputs_valid))
