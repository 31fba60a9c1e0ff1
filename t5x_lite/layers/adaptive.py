"""Adaptive input and output embeddings: rare tokens have narrower vectors, and are scored within their cluster.

Grave et al. 2017 (the softmax), Baevski and Auli 2019 (the inputs), as Transformer-XL has them (Dai et al. 2019).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.layers.dense import embedding_lookup
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import constrain_sharding

TABLE_AXES = ("vocab", "embed")
NARROW_TABLE_AXES = ("vocab", "hidden")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdaptiveScores:
    """Scores of a vocabulary in clusters before they are multiplied out.

    The first ones are those of the frequent tokens, and after them of each other cluster; of a token there the log
    probability is that of its cluster plus that of the token in it.
    """

    head: LazyLogits
    """Of the tokens below the first cutoff, then of the clusters."""
    clusters: tuple[LazyLogits, ...]
    """Of each cluster's tokens."""
    cutoffs: tuple[int, ...] = field(metadata={"static": True})
    """The first id of each cluster."""

    def dense(self) -> Float[Array, "B L V"]:
        """The float32 log probabilities."""
        head = jax.nn.log_softmax(self.head.dense(), axis=-1)
        first = self.cutoffs[0]
        tails = [
            head[..., first + n, None] + jax.nn.log_softmax(cluster.dense(), axis=-1)
            for n, cluster in enumerate(self.clusters)
        ]
        return jnp.concatenate([head[..., :first], *tails], axis=-1)


class AdaptiveEmbedding(nn.Module):
    """Tables of clusters of a vocabulary that is sorted by frequency, and the output that is tied to them.

    Cluster n, from 0, has vectors of embed_dim / div_value^n features, which a matrix projects to embed_dim; the output
    projects back by the same matrix, and for the most frequent tokens by one of its own. Where all are embed_dim wide
    there are no such matrices.
    """

    vocab_size: int
    embed_dim: int
    cutoffs: tuple[int, ...]
    div_value: int = 1
    dtype: Any = jnp.float32
    embedding_init: Callable[..., Array] = nn.initializers.normal(0.02)
    projection_init: Callable[..., Array] = nn.initializers.normal(0.01)

    def setup(self) -> None:
        ends, tables, projections = (0, *self.cutoffs, self.vocab_size), [], []
        for n, (start, end) in enumerate(pairwise(ends)):
            width = self.embed_dim // self.div_value**n
            shape = (end - start, width)
            tables.append(parameter(self, f"embedding_{n}", self.embedding_init, self._axes(n), shape))
            if self.div_value > 1:
                axes = ("hidden", "embed") if n else ("embed", "mlp")
                shape = (width, self.embed_dim)
                projections.append(parameter(self, f"projection_{n}", self.projection_init, axes, shape))
        self.tables, self.projections = tables, projections
        if self.div_value > 1:
            axes, shape = ("embed", "mlp"), (self.embed_dim,) * 2
            self.output_projection = parameter(self, "output_projection", self.projection_init, axes, shape)
        zeros = nn.initializers.zeros
        self.biases = [
            parameter(self, f"bias_{n}", zeros, ("vocab",), (end - start,))
            for n, (start, end) in enumerate(pairwise(ends))
        ]
        if self.cutoffs:
            shape = (len(self.cutoffs), self.embed_dim)
            self.cluster = parameter(self, "cluster", self.embedding_init, ("classes", "embed"), shape)
            self.cluster_bias = parameter(self, "cluster_bias", zeros, ("classes",), shape[:1])

    def __call__(self, ids: Int[Array, "_ L"]) -> Float[Array, "_ L D"]:
        """The vectors of `ids`."""
        total: Any = None
        for n, (start, end) in enumerate(pairwise((0, *self.cutoffs, self.vocab_size))):
            there = (start <= ids) & (ids < end)
            rows = embedding_lookup(self.tables[n], jnp.where(there, ids - start, 0), self._axes(n), self.dtype)
            vectors = jnp.where(there[..., None], rows, 0)
            if self.projections:
                vectors @= self._matrix(self.projections[n])
            total = vectors if total is None else total + vectors
        return constrain_sharding(total, "activation_batch", "activation_length", "activation_embed")

    def scores(self, x: Float[Array, "B L D"]) -> LazyLogits | AdaptiveScores:
        """Those of all tokens; without cutoffs one softmax over them."""
        hidden = [x] * len(self.tables)
        if self.projections:
            back = [self.output_projection.T, *(projection.T for projection in self.projections[1:])]
            hidden = [x @ self._matrix(matrix) for matrix in back]
        each = [
            LazyLogits(h, table, bias, TABLE_AXES, self.dtype)
            for h, table, bias in zip(hidden, self.tables, self.biases, strict=True)
        ]
        if not self.cutoffs:
            return each[0]
        kernel = jnp.concatenate([self.tables[0], self.cluster])
        bias = jnp.concatenate([self.biases[0], self.cluster_bias])
        head = LazyLogits(hidden[0], kernel, bias, ("classes", "embed"), self.dtype)
        return AdaptiveScores(head, tuple(each[1:]), self.cutoffs)

    def _axes(self, cluster: int) -> tuple[str, str]:
        return NARROW_TABLE_AXES if cluster and self.div_value > 1 else TABLE_AXES

    def _matrix(self, projection: Float[Array, "I O"]) -> Float[Array, "I O"]:
        return constrain_sharding(projection.astype(self.dtype), None, None)
