"""Token embedding, alone or with positions and segments, and the projection back to the vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.layers.dense import PackedWeights, embedding_lookup, make_norm, multiply
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import constrain_sharding


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LazyLogits:
    """Logits of the vocabulary before they are multiplied out: `hidden kernel + bias`.

    A loss takes them a few tokens at a time (`objectives.vocabulary_loss`). The leaves may also be shapes or shardings.
    """

    hidden: Any
    """[B L D]."""
    kernel: Any
    """The parameter as it is: [D V], or [V D], the token table, where the output is tied to it."""
    bias: Any
    """[V], or None."""
    axes: tuple[str, str] = field(metadata={"static": True})
    """The kernel's logical axes: ("vocab", "embed") or ("embed", "vocab")."""
    dtype: Any = field(metadata={"static": True})
    """What is multiplied; sums are float32."""

    def dense(self) -> Float[Array, "B L V"]:
        """The float32 logits."""
        kernel = self.kernel if self.axes[0] == "embed" else self.kernel.T
        logits = vocabulary_logits(self.hidden, kernel, self.dtype)
        return logits if self.bias is None else logits + constrain_sharding(self.bias, "vocab")[None, None]


POSITION_AXES = ("positions", "embed")


class Embedding(nn.Module):
    """A table ``[V, D]`` of tokens, segments or positions: looks ids up, and scores vectors (tied output)."""

    vocab_size: int
    embed_dim: int
    dtype: Any = jnp.float32
    embedding_init: Callable[..., Array] = nn.initializers.normal(1.0)
    axes: tuple[str, str] = ("vocab", "embed")

    def setup(self) -> None:
        shape = (self.vocab_size, self.embed_dim)
        self.embedding = parameter(self, "embedding", self.embedding_init, self.axes, shape)

    def __call__(self, ids: Int[Array, "_ L"]) -> Float[Array, "_ L D"]:
        embedded = embedding_lookup(self.embedding, ids, self.axes, self.dtype)
        return constrain_sharding(embedded, "activation_batch", "activation_length", "activation_embed")

    def scores(self, x: Float[Array, "B L D"]) -> LazyLogits:
        """The tied output: the table's rows times `x`."""
        return LazyLogits(x, self.embedding, None, self.axes, self.dtype)

    def output_kernel(self) -> Float[Array, "D V"]:
        return self.embedding.T


class TokenEmbeddings(nn.Module):
    """What an encoder reads: the normed sum of token, position and segment embeddings (Devlin et al. 2019, figure 2).

    Position i is row i of its table; with `pad_id`, the n-th id (from 1) of a row that is not `pad_id` has row
    `pad_id + n`, as fairseq counts (RoBERTa), and the table has `pad_id + 1` rows more. Without segment rows there are
    no segments; a single row is that of every segment.
    """

    vocab_size: int
    embed_dim: int
    max_length: int
    num_segments: int = 2
    pad_id: int | None = None
    norm_epsilon: float = 1e-12
    dtype: Any = jnp.float32
    embedding_init: Callable[..., Array] = nn.initializers.truncated_normal(0.02)

    def setup(self) -> None:
        init, before = self.embedding_init, 0 if self.pad_id is None else self.pad_id + 1
        self.token = Embedding(self.vocab_size, self.embed_dim, self.dtype, init)
        self.position = Embedding(before + self.max_length, self.embed_dim, self.dtype, init, POSITION_AXES)
        if self.num_segments:
            self.segment = Embedding(self.num_segments, self.embed_dim, self.dtype, init, ("segments", "embed"))
        self.norm = make_norm("layer", epsilon=self.norm_epsilon, dtype=self.dtype)

    def __call__(
        self,
        ids: Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        valid: Bool[Array, "B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """The embeddings of `ids`, whose segments are all 0 if `segments` is None.

        Where `valid` is false, the row of the padding is read and not trained, as in fairseq and Transformers: a loss
        over all positions, such as where an answer begins, would train it.
        """
        token, position = self.token(ids), self.position(self._positions(ids))
        if valid is not None:
            token = jnp.where(valid[..., None], token, jax.lax.stop_gradient(token))
        if valid is not None and self.pad_id is not None:
            position = jnp.where(valid[..., None], position, jax.lax.stop_gradient(position))
        x = token + position
        if self.num_segments:
            one_for_all = segments is None or self.num_segments == 1
            x += self.segment(jnp.zeros_like(ids) if one_for_all else segments)
        return self.norm(x)

    def _positions(self, ids: Int[Array, "B L"]) -> Int[Array, "_ L"]:
        if self.pad_id is None:
            return jnp.arange(ids.shape[1])[None]
        counted = ids != self.pad_id
        return self.pad_id + jnp.where(counted, jnp.cumsum(counted, axis=1), 0)


class Unembedding(nn.Module):
    """Scores of the vocabulary by a kernel ``[D, V]``, or by the token table that the output is tied to."""

    vocab_size: int
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    use_bias: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"], table: Float[Array, "V D"] | None = None) -> LazyLogits:
        axes, kernel, bias = ("vocab", "embed"), table, None
        if kernel is None:
            axes = ("embed", "vocab")
            kernel = parameter(self, "kernel", self.kernel_init, axes, (x.shape[-1], self.vocab_size))
        if self.use_bias:
            bias = parameter(self, "bias", nn.initializers.zeros, ("vocab",), (self.vocab_size,))
        return LazyLogits(x, kernel, bias, axes, self.dtype)

    def output_kernel(self) -> Float[Array, "D V"]:
        """The kernel, of a module that has been called or was given its parameters."""
        return self.get_variable("params", "kernel")


def vocabulary_logits(
    x: Float[Array, "B L D"], kernel: Float[Array, "D V"] | PackedWeights, dtype: Any
) -> Float[Array, "B L V"]:
    """Multiplies in `dtype` and accumulates in float32, since softmax and loss are taken in float32."""
    x = constrain_sharding(x, "activation_batch", "activation_length", "activation_embed")
    logits = multiply(x, kernel, ("embed", "vocab"), dtype, preferred_element_type=jnp.float32)
    return constrain_sharding(logits, "activation_batch", "activation_length", "activation_vocab")
