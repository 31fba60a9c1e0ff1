"""Heads, which turn a model's output into float32 logits, for pretraining and for tasks.

Those that score the vocabulary give what the logits are made of (`LazyLogits`).
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Shaped

from t5x_lite.layers.attention import Attention
from t5x_lite.layers.dense import ACTIVATIONS, Dense, Dropout, FeedForward, LayerConfig, make_norm
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import all_gather_fsdp

_INIT = nn.initializers.truncated_normal(0.02)

SPAN_POSITIONS = 20
"""Offsets in a span that SpanBERT distinguishes; those beyond share the last one."""
SPAN_POSITION_DIM = 200
"""Width of the embedding of such an offset."""


class Transform(nn.Module):
    """norm(activation(x kernel + bias)): the layer between an encoder and its predictions."""

    features: int
    activation: str = "gelu"
    norm_epsilon: float = 1e-12
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B P I"]) -> Float[Array, "B P O"]:
        x = Dense(self.features, ("hidden", "embed"), True, self.dtype, _INIT, name="dense")(x)
        x = ACTIVATIONS[self.activation](x)
        return make_norm("layer", epsilon=self.norm_epsilon, dtype=self.dtype, name="norm")(x)


class MaskedLMHead(nn.Module):
    """Scores of the token at a position (Devlin et al. 2019, section 3.1, with the transform of the released code)."""

    vocab_size: int
    features: int
    activation: str = "gelu"
    norm_epsilon: float = 1e-12
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B P D"], table: Float[Array, "V E"] | None) -> LazyLogits:
        """`table` is the token embedding that the output is tied to, or None; `features` is the width of either."""
        transform = Transform(self.features, self.activation, self.norm_epsilon, self.dtype, name="transform")
        return Unembedding(self.vocab_size, self.dtype, _INIT, True, name="scores")(transform(hidden), table)


class SpanBoundaryHead(MaskedLMHead):
    """Scores of a token in a span, from the span's two neighbours and the position in it (Joshi et al. 2020, 3.2)."""

    @nn.compact
    def __call__(
        self,
        left: Float[Array, "B P D"],
        right: Float[Array, "B P D"],
        offsets: Int[Array, "B P"],
        table: Float[Array, "V E"] | None,
    ) -> LazyLogits:
        """`offsets` count from 0 at the span's first token; see `SPAN_POSITIONS`."""
        position = Embedding(
            SPAN_POSITIONS, SPAN_POSITION_DIM, self.dtype, _INIT, ("positions", "hidden"), name="position"
        )
        x = jnp.concatenate([left, right, position(offsets.clip(max=SPAN_POSITIONS - 1))], axis=-1)
        for name, features in (("first", left.shape[-1]), ("second", self.features)):
            x = Transform(features, self.activation, self.norm_epsilon, self.dtype, name=name)(x)
        return Unembedding(self.vocab_size, self.dtype, _INIT, True, name="scores")(x, table)


class Pooler(nn.Module):
    """One vector for a row: tanh of a dense layer on its first position (Devlin et al. 2019, section 3.1)."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B D"]:
        dense = Dense(hidden.shape[-1], ("hidden", "embed"), True, self.dtype, _INIT, name="dense")
        return jnp.tanh(dense(hidden[:, 0]))


class AttentionPooler(nn.Module):
    """One vector for a row: what a learned query attends to, and a feed-forward layer on it (Zhai et al. 2022, section
    3.4; Lee et al. 2019, section 3.2)."""

    config: LayerConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B L D"], *, deterministic: bool = True) -> Float[Array, "B D"]:
        width = hidden.shape[-1]
        # Of the same deviation as Xavier's uniform one of a matrix [1, D].
        init = nn.initializers.normal((2 / (1 + width)) ** 0.5)
        query = all_gather_fsdp(parameter(self, "query", init, ("embed",), (width,)), ("embed",), self.dtype)
        attention = Attention(self.config, self.dtype, name="attention")
        x = jnp.broadcast_to(query, (len(hidden), 1, width))
        x = attention(x, attention.project(hidden), deterministic=deterministic)
        c = self.config
        y = make_norm(c.norm, epsilon=c.norm_epsilon, dtype=self.dtype, name="feed_forward_norm")(x)
        y = FeedForward(self.config, self.dtype, name="feed_forward")(y, deterministic=deterministic)
        return (x + y)[:, 0]


class SentencePairHead(nn.Module):
    """Whether the second segment follows the first (class 0) or not (Devlin et al. 2019, Lan et al. 2020, 3.1)."""

    @nn.compact
    def __call__(self, pooled: Float[Array, "B D"]) -> Float[Array, "B 2"]:
        return Dense(2, ("embed", "classes"), True, jnp.float32, _INIT, name="dense")(pooled)


class Classifier(nn.Module):
    """Logits from the vectors of rows or tokens: `scores(dropout(x))` (Devlin et al. 2019, sections 4.1, 4.2 and 5.3).

    With an activation another dense layer comes before that: `scores(dropout(activation(dense(x))))`, as RoBERTa,
    ELECTRA and DistilBERT have it instead of a pretrained pooler, and ELECTRA for the tokens that were replaced.
    """

    num_logits: int
    activation: str = ""
    """Of the dense layer before the scores; empty: there is none."""
    drops_first: bool = False
    """Dropout before the dense layer too."""
    dropout_rate: float = 0.1
    dtype: Any = jnp.float32
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*batch D"], *, deterministic: bool = True) -> Float[Array, "*batch C"]:
        dropout = Dropout(self.dropout_rate)
        if self.activation:
            x = dropout(x, deterministic=deterministic or not self.drops_first)
            x = Dense(x.shape[-1], ("hidden", "embed"), True, self.dtype, _INIT, name="dense")(x)
            x = ACTIVATIONS[self.activation](x)
        scores = Dense(self.num_logits, ("embed", "classes"), self.use_bias, jnp.float32, _INIT, name="scores")
        return scores(dropout(x, deterministic=deterministic))


class SpanClassifier(nn.Module):
    """Logits of the two ends of an answer from `norm(x + feed_forward(x))`, as the published BigBird has it."""

    config: LayerConfig
    dropout_rate: float = 0.1
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"], *, deterministic: bool = True) -> Float[Array, "B L 2"]:
        c, dropout = self.config, Dropout(self.dropout_rate)
        y = dropout(x, deterministic=deterministic)
        y = FeedForward(c, self.dtype, name="feed_forward")(y, deterministic=deterministic)
        y = dropout(y, deterministic=deterministic)
        x = make_norm(c.norm, epsilon=c.norm_epsilon, dtype=self.dtype, name="norm")(x + y)
        return Dense(2, ("embed", "classes"), True, jnp.float32, _INIT, name="scores")(x)


def at_end(x: Shaped[Array, "B L *_"], valid: Bool[Array, "B L"] | None) -> Shaped[Array, "B *_"]:
    """The element of each row at its last position that is not padding; `valid` None means that there is none.

    >>> at_end(jnp.array([[7, 8, 0], [0, 8, 9]]), jnp.array([[True, True, False], [False, True, True]])).tolist()
    [8, 9]
    """
    if valid is None:
        return x[:, -1]
    last = jnp.where(valid, jnp.arange(valid.shape[1])[None], 0).max(axis=1)
    return jnp.take_along_axis(x, last.reshape(-1, *(1,) * (x.ndim - 1)), axis=1)[:, 0]
