"""Token embedding and the projection back to the vocabulary, tied to it or not."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int


class Embedding(nn.Module):
    """A table ``[V, D]``: looks ids up, and (tied output) scores vectors against every row."""

    vocab_size: int
    embed_dim: int
    dtype: Any = jnp.float32
    embedding_init: Callable[..., Array] = nn.initializers.normal(1.0)

    def setup(self) -> None:
        init = nn.with_logical_partitioning(self.embedding_init, ("vocab", "embed"))
        self.embedding = self.param("embedding", init, (self.vocab_size, self.embed_dim), jnp.float32)

    def __call__(self, ids: Int[Array, "B L"]) -> Float[Array, "B L D"]:
        embedded = jnp.take(self.embedding.astype(self.dtype), ids, axis=0)
        return nn.with_logical_constraint(embedded, ("activation_batch", "activation_length", "activation_embed"))

    def attend(self, x: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        """Float32 logits of the tied output: the table's rows times `x`."""
        return vocabulary_logits(x, self.embedding.T, self.dtype)


class Unembedding(nn.Module):
    """The untied output: a kernel ``[D, V]`` of its own; gives float32 logits."""

    vocab_size: int
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        init = nn.with_logical_partitioning(self.kernel_init, ("embed", "vocab"))
        kernel = self.param("kernel", init, (x.shape[-1], self.vocab_size), jnp.float32)
        return vocabulary_logits(x, kernel, self.dtype)


def vocabulary_logits(x: Float[Array, "B L D"], kernel: Float[Array, "D V"], dtype: Any) -> Float[Array, "B L V"]:
    """Multiplies in `dtype` and accumulates in float32, since softmax and loss are taken in float32."""
    flat = x.reshape(-1, x.shape[-1]).astype(dtype)
    logits = jnp.matmul(flat, kernel.astype(dtype), preferred_element_type=jnp.float32)
    logits = logits.reshape(*x.shape[:-1], kernel.shape[-1])
    return nn.with_logical_constraint(logits, ("activation_batch", "activation_length", "activation_vocab"))
