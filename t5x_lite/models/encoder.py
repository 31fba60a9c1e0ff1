"""The encoder that BERT and its descendants are, and T5's alone: layers over embeddings, and pretraining heads.

A family is a config: its file in this folder has what is particular to it, and the published sizes.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.dense import Activation, Dense, Dropout, LayerConfig
from t5x_lite.layers.embedding import POSITION_AXES, LazyLogits, TokenEmbeddings
from t5x_lite.layers.heads import Classifier, MaskedLMHead, Pooler, SentencePairHead, SpanBoundaryHead
from t5x_lite.layers.linformer import Linformer
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.positions import RelativePositionBias
from t5x_lite.layers.transformer import Context, Remat, Stack
from t5x_lite.models.base import TASK_HEADS, Hidden, Ids, Positions, Pretraining, TaskHead, TextConfig, TextModel, Valid
from t5x_lite.parallel.partitioning import all_gather_fsdp
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NormEpsilon, Positive, Range, Rate

Head = Literal["masked_lm", "sentence_pair", "span_boundary", "replaced_token", TaskHead]
"""The heads of an encoder: of pretraining, and of tasks."""

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
    """Of the feed-forward layer: gelu, gelu_tanh, quick_gelu, relu, silu or tanh."""
    dropout_rate: Rate = 0.1
    """Dropout on embeddings and residual branches."""
    attention_dropout_rate: Rate = 0.1
    """Dropout on attention weights."""
    attention: Linformer | BigBird | None = None
    """What tokens attend to each other by; None: every token to all others."""
    norm_epsilon: NormEpsilon = 1e-12
    """Added to the variance in LayerNorm."""
    tied: bool = True
    """Predictions of tokens are scored by the token embedding; otherwise by a kernel of their own."""
    heads: tuple[Head, ...] = ()
    """Heads that read the encoder's output: those that its objective trains."""
    num_classes: Positive = 2
    """Logits of the heads classification (1: a number is predicted) and tagging."""
    head_dropout_rate: Rate = 0.1
    """Dropout in the heads of tasks."""

    task_heads: ClassVar[tuple[str, ...]] = TASK_HEADS
    architecture: ClassVar[str] = "encoder"
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings", "projection", "global_tokens")
    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm",)
    texts_begin_with_cls: ClassVar[bool] = True
    positions: ClassVar[Positions] = "learned"
    """Vectors added to the embeddings, or T5's bias of the attention."""
    output_dropout_rate: ClassVar[float] = 0.0
    """Dropout on the last layer's output."""
    layers_share_parameters: ClassVar[bool] = False
    """All layers have one set of parameters."""

    # Fields of some families, documented there.
    num_segments: ClassVar[int] = 0
    pooler: ClassVar[bool] = False
    pad_id: ClassVar[int | None] = None

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
    def num_global_tokens(self) -> int:
        """Learned vectors in front of the first layer's input."""
        return self.attention.num_global_tokens if isinstance(self.attention, BigBird) else 0

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer projects the embeddings for the first layer."""
        return self.token_embed_dim != self.embed_dim

    @property
    def token_activation(self) -> str:
        """Activation in the heads that predict tokens."""
        return self.activation

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention is not None and self.positions == "relative":
            raise InputError(
                f"attention={self.attention} has no place for relative positions; set it to None, or choose a model "
                "with learned positions, such as a BertConfig"
            )
        if isinstance(self.attention, Linformer) and self.attention.projected_length > self.max_length:
            raise InputError(
                f"attention.projected_length={self.attention.projected_length} exceeds max_length={self.max_length}; "
                "choose it as large at most"
            )
        for head in self.heads:
            if self.reads_pooled(head) and not self.pooler:
                raise InputError(f"heads with {head!r} need pooler=True, which gives them one vector for a row")

    def reads_pooled(self, head: str) -> bool:
        return head in ("sentence_pair", "classification", "multiple_choice") and not self.row_activation

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        if vocabulary.cls_last:
            raise InputError(
                f"model is a {type(self).__name__}, whose heads read a [CLS] that begins a row, and the tokenizer's "
                "ends it; choose another layout than 'xlnet', or an XLNetConfig"
            )

    def layer(self) -> LayerConfig:
        return replace(super().layer(), attention=self.attention, max_length=self.max_length)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Encoder":
        return Encoder(self, dtype=dtype, remat=remat)

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return _INIT

    def embeddings(self, dtype: Any) -> nn.Module:
        """What the tokens are read by; its embedding of the tokens is called `token`."""
        sizes = (self.vocab_size, self.token_embed_dim, self.max_length, self.num_segments)
        return TokenEmbeddings(*sizes, self.pad_id, self.norm_epsilon, dtype)


class Encoder(TextModel):
    """Embeddings, a stack of layers, and the config's heads. Logits are float32 whatever `dtype` the layers compute in.

    `shared_embeddings`, where there are any, replace embeddings of its own.
    """

    config: EncoderConfig
    shared_embeddings: TokenEmbeddings | None = None

    def setup(self) -> None:
        c = self.config
        self.embeddings = c.embeddings(self.dtype) if self.shared_embeddings is None else self.shared_embeddings
        layer = c.layer()
        self.dropout = Dropout(c.dropout_rate, layer.positions_share_dropout)
        self.output_dropout = Dropout(c.output_dropout_rate, layer.positions_share_dropout)
        if c.positions == "relative":
            self.position_bias = RelativePositionBias(c.num_heads, True, c.relative_buckets, c.relative_max_distance)
        if c.projects_embeddings:
            self.projection = Dense(c.embed_dim, ("hidden", "embed"), True, self.dtype, _INIT)
        self.encoder = Stack(layer, c.num_layers, remat=self.remat, dtype=self.dtype, shared=c.layers_share_parameters)
        if c.num_global_tokens:
            shape = (c.num_global_tokens, c.embed_dim)
            self.global_tokens = parameter(self, "global_tokens", _INIT, POSITION_AXES, shape)
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
            self.replaced_token = Classifier(1, c.activation, dropout_rate=0.0, dtype=self.dtype)
        self.setup_task_heads()

    def __call__(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> dict[str, Array]:
        """All outputs for some rows.

        Args:
          inputs: ids.
          segments: the segment of each id; None means 0. Families without segments ignore it.
          inputs_valid: true where `inputs` is not padding; None means everywhere.
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
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Hidden:
        """The last layer's output, which the heads read. Raises `InputError` for rows longer than `max_length`."""
        x = self._embed(inputs, segments, inputs_valid, deterministic)
        x, context = self._with_global_tokens(x), self._context(inputs, inputs_valid)
        hidden = self.encoder(x, context, deterministic=deterministic)[:, self.config.num_global_tokens :]
        return self.output_dropout(hidden, deterministic=deterministic)

    def encode_layers(
        self, inputs: Ids, segments: Ids | None = None, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "_ B L D"]:
        """What the first layer reads (embeddings, normed, projected), and the output of each, the last as in
        `hidden_states`: num_layers + 1 arrays."""
        x = self._embed(inputs, segments, inputs_valid, deterministic)
        context = self._context(inputs, inputs_valid)
        outputs = self.encoder.outputs(self._with_global_tokens(x), context, deterministic=deterministic)
        outputs = outputs[:, :, self.config.num_global_tokens :]
        if self.encoder.config.norm_first:
            outputs = outputs.at[-1].set(self.encoder.final_norm(outputs[-1]))
        return jnp.concatenate([x[None], outputs])

    def masked_lm_logits(self, hidden: Float[Array, "B P D"]) -> Float[Array, "B P V"]:
        """The logits of the token at each position of the encoder's output."""
        return self.masked_lm_scores(hidden).dense()

    def masked_lm_scores(self, hidden: Float[Array, "B P D"]) -> LazyLogits:
        """The same before it is multiplied out, as a loss takes it."""
        return self.masked_lm(hidden, self._table())

    def sentence_pair_logits(self, hidden: Hidden) -> Float[Array, "B 2"]:
        """Whether the second segment follows the first, in that order (class 0), or not (class 1)."""
        return self.sentence_pair(self.pooler(hidden))

    def span_boundary_logits(
        self, left: Float[Array, "B P D"], right: Float[Array, "B P D"], offsets: Int[Array, "B P"]
    ) -> Float[Array, "B P V"]:
        """The logits of the token `offsets` after the first of a span, from the encoder's output beside the span."""
        return self.span_boundary_scores(left, right, offsets).dense()

    def span_boundary_scores(
        self, left: Float[Array, "B P D"], right: Float[Array, "B P D"], offsets: Int[Array, "B P"]
    ) -> LazyLogits:
        """The same before it is multiplied out, as a loss takes it."""
        return self.span_boundary(left, right, offsets, self._table())

    def replaced_token_logits(self, hidden: Hidden) -> Float[Array, "B L"]:
        """Positive where a token is predicted not to be the original one (Clark et al. 2020, section 2)."""
        return self.replaced_token(hidden)[..., 0]

    def row_vector(self, head: TaskHead, hidden: Hidden, inputs_valid: Valid) -> Float[Array, "B D"]:
        """The vector of a row that a head reads: the pooler's, or that of the first token."""
        return self.pooler(hidden) if self.config.reads_pooled(head) else hidden[:, 0]

    def _context(self, inputs: Ids, inputs_valid: Valid) -> Context:
        length = inputs.shape[1]
        bias = self.position_bias(length, length) if self.config.positions == "relative" else None
        if inputs_valid is not None:
            inputs_valid = jnp.pad(inputs_valid, ((0, 0), (self.config.num_global_tokens, 0)), constant_values=True)
        return Context(bias, Mask(inputs_valid))

    def _with_global_tokens(self, x: Hidden) -> Float[Array, "B G D"]:
        """What the first layer reads, the global tokens in front."""
        if not self.config.num_global_tokens:
            return x
        tokens = all_gather_fsdp(self.global_tokens, POSITION_AXES, x.dtype)
        return jnp.concatenate([jnp.broadcast_to(tokens, (len(x), *tokens.shape)), x], axis=1)

    def _embed(self, inputs: Ids, segments: Ids | None, inputs_valid: Valid, deterministic: bool) -> Hidden:
        self.config.check_length(inputs.shape[1])
        x = self.dropout(self.embeddings(inputs, segments, inputs_valid), deterministic=deterministic)
        return self.projection(x) if self.config.projects_embeddings else x

    def _table(self) -> Float[Array, "V E"] | None:
        return self.embeddings.token.embedding if self.config.tied else None
