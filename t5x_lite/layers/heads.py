"""What stands on an encoder: heads that turn its output into float32 logits, for pretraining and for tasks.

Those that score the vocabulary give what the logits are made of (`LazyLogits`).
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Shaped

from t5x_lite.layers.dense import ACTIVATIONS, Dense, Dropout, make_norm
from t5x_lite.layers.embedding import Embedding, LazyLogits

_INIT = nn.initializers.truncated_normal(0.02)

SPAN_POSITIONS = 20
"""Offsets in a span that SpanBERT tells apart; those beyond share the last one."""
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


class TokenScores(nn.Module):
    """A score for every id of the vocabulary: x times the token table, or times a kernel of its own, plus a bias."""

    vocab_size: int
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = _INIT

    @nn.compact
    def __call__(self, x: Float[Array, "B P E"], table: Float[Array, "V E"] | None) -> LazyLogits:
        """`table` is the token embedding that the output is tied to; None means a kernel."""
        if table is None:
            axes = ("embed", "vocab")
            init = nn.with_logical_partitioning(self.kernel_init, axes)
            kernel = self.param("kernel", init, (x.shape[-1], self.vocab_size), jnp.float32)
        else:
            axes, kernel = ("vocab", "embed"), table
        bias_init = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
        bias = self.param("bias", bias_init, (self.vocab_size,), jnp.float32)
        return LazyLogits(x, kernel, bias, axes, self.dtype)


class MaskedLMHead(nn.Module):
    """Which token stands at a position (Devlin et al. 2019, section 3.1, with the transform of the released code)."""

    vocab_size: int
    features: int
    activation: str = "gelu"
    norm_epsilon: float = 1e-12
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B P D"], table: Float[Array, "V E"] | None) -> LazyLogits:
        """`features` is the width of `table`, or of the kernel in its place; see `TokenScores`."""
        transform = Transform(self.features, self.activation, self.norm_epsilon, self.dtype, name="transform")
        return TokenScores(self.vocab_size, self.dtype, name="scores")(transform(hidden), table)


class SpanBoundaryHead(nn.Module):
    """Which token stands in a span, given the span's two neighbours and the position in it (Joshi et al. 2020, 3.2)."""

    vocab_size: int
    features: int
    activation: str = "gelu"
    norm_epsilon: float = 1e-12
    dtype: Any = jnp.float32

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
        return TokenScores(self.vocab_size, self.dtype, name="scores")(x, table)


class Pooler(nn.Module):
    """One vector for a row: tanh of a dense layer on its first position (Devlin et al. 2019, section 3.1)."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B D"]:
        return jnp.tanh(
            Dense(hidden.shape[-1], ("hidden", "embed"), True, self.dtype, _INIT, name="dense")(hidden[:, 0])
        )


class SentencePairHead(nn.Module):
    """Whether the second segment follows the first (class 0) or not (Devlin et al. 2019, Lan et al. 2020, 3.1)."""

    @nn.compact
    def __call__(self, pooled: Float[Array, "B D"]) -> Float[Array, "B 2"]:
        return Dense(2, ("embed", "classes"), True, jnp.float32, _INIT, name="dense")(pooled)


class ReplacedTokenHead(nn.Module):
    """The logit that a token is not the original one (Clark et al. 2020, section 2, and the released code)."""

    activation: str = "gelu"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B L"]:
        x = Dense(hidden.shape[-1], ("hidden", "embed"), True, self.dtype, _INIT, name="dense")(hidden)
        scores = Dense(1, ("embed", "classes"), True, jnp.float32, _INIT, name="scores")
        return scores(ACTIVATIONS[self.activation](x))[..., 0]


class RowHead(nn.Module):
    """Logits of a row, from one vector for it: `scores(dropout(x))`, for tasks on whole rows (Devlin et al. 2019, 4.1).

    With an activation another dense layer stands before that: `scores(dropout(activation(dense(x))))`, as RoBERTa,
    ELECTRA and DistilBERT have it instead of a pooler that was pretrained.
    """

    num_logits: int
    activation: str = ""
    """Of the dense layer before the scores; empty: there is none."""
    drops_first: bool = False
    """Dropout before the dense layer too."""
    dropout_rate: float = 0.1
    dtype: Any = jnp.float32
    use_bias: bool = True
    """Whether the scores have one; GPT's classes have none."""

    @nn.compact
    def __call__(self, x: Float[Array, "B D"], *, deterministic: bool = True) -> Float[Array, "B C"]:
        dropout = Dropout(self.dropout_rate)
        if self.activation:
            x = dropout(x, deterministic=deterministic or not self.drops_first)
            x = Dense(x.shape[-1], ("hidden", "embed"), True, self.dtype, _INIT, name="dense")(x)
            x = ACTIVATIONS[self.activation](x)
        scores = Dense(self.num_logits, ("embed", "classes"), self.use_bias, jnp.float32, _INIT, name="scores")
        return scores(dropout(x, deterministic=deterministic))


class TokenHead(nn.Module):
    """Logits of every token: `scores(dropout(x))` (Devlin et al. 2019, sections 4.2 and 5.3)."""

    num_logits: int
    dropout_rate: float = 0.1

    @nn.compact
    def __call__(self, hidden: Float[Array, "B L D"], *, deterministic: bool = True) -> Float[Array, "B L C"]:
        x = Dropout(self.dropout_rate)(hidden, deterministic=deterministic)
        return Dense(self.num_logits, ("embed", "classes"), True, jnp.float32, _INIT, name="scores")(x)


def at_end(x: Shaped[Array, "B L *_"], valid: Bool[Array, "B L"] | None) -> Shaped[Array, "B *_"]:
    """What stands at the last position of each row that is not padding; `valid` None means that there is none.

    >>> at_end(jnp.array([[7, 8, 0], [0, 8, 9]]), jnp.array([[True, True, False], [False, True, True]])).tolist()
    [8, 9]
    """
    if valid is None:
        return x[:, -1]
    last = jnp.where(valid, jnp.arange(valid.shape[1])[None], 0).max(axis=1)
    return jnp.take_along_axis(x, last.reshape(-1, *(1,) * (x.ndim - 1)), axis=1)[:, 0]
