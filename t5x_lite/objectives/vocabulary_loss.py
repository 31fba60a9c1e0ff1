"""The loss over a vocabulary, fused with the projection onto it: logits of some of the tokens, never of all at once.

The loss is linear in its cotangent, so the forward pass computes the gradient too: each chunk of logits is multiplied
back at once, and nothing of it is kept or computed again.

Dimension letters as everywhere, and: N tokens of a device, C tokens of a chunk; on a mesh V is a device's shard of the
vocabulary.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped

from t5x_lite.kernels.cpu import sum_rows
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.layers.adaptive import AdaptiveScores
from t5x_lite.layers.dense import embedding_lookup
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.objectives.base import Loss
from t5x_lite.parallel.partitioning import gradients_together, is_sharded, sum_over_tokens

CHUNK_TOKENS = 1024
"""Tokens of a chunk at most. Each chunk reads and writes the gradient of the kernel, which by bytes and operations of a
TPU v5p takes 150 / CHUNK_TOKENS of the time that is spent on the rest; no TPU has timed it."""
CHUNK_BYTES = 64 << 20
"""More tokens than these where their float32 logits take no more."""


def vocabulary_loss(
    scores: LazyLogits,
    targets: Int[Array, "B L"],
    weights: Float[Array, "B L"],
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    least_chunks: int = 2,
    skips: bool = False,
) -> Loss:
    """(sum, weight, metrics) over tokens, from `scores.dense()`, of which a chunk exists at a time.

    The loss of a token is the cross entropy against ``(1 - a) one_hot + a / V``, where a is `label_smoothing` (Szegedy
    et al. 2016, section 7, which Vaswani et al. 2017, section 5.4, take with 0.1) plus ``z_loss * log(Z)^2``, which
    keeps the softmax's normaliser Z near one (Mesh TensorFlow). Metrics: `loss` is the sum without smoothing and
    z-loss, so that runs with and without them compare; `accuracy` counts the targets that are the most likely token.

    The sum has a gradient, to the scores alone. With p the softmax, that of a token's logits is
    ``weight (p (1 + 2 z_loss log Z) - (1 - a) one_hot - a / V)``; it is multiplied in the `dtype` of the scores, as the
    logits are, and added up in float32.

    Args:
      scores: of each predicted token.
      targets: the tokens.
      weights: of the tokens in the sum; 0 leaves one out.
      least_chunks: of a device's tokens, where `CHUNK_TOKENS` does not need more. With two, their logits never exist
        all at once, but the gradient of the kernel is read and written once more, which costs a masked language model
        with its few tokens.
      skips: those of weight 0 cost next to nothing, of which there are many: the others come first, and chunks without
        any are passed over.
    """
    embed = scores.axes.index("embed")
    vocab_size = scores.kernel.shape[1 - embed]

    def own_sums(
        tokens: tuple[Array, Array, Array], kernel: Float[Array, "_ _"], bias: Array | None, shards: tuple[str, ...]
    ) -> "_Sums":
        hidden, targets, weights = tokens
        hidden = hidden.reshape(-1, hidden.shape[-1]).astype(scores.dtype)
        terms = _Terms(label_smoothing, z_loss, least_chunks, vocab_size, embed, shards, skips)
        targets, weights = targets.reshape(-1), weights.reshape(-1)
        if skips:
            order = jnp.argsort(weights == 0, stable=True)
            hidden, targets, weights = (x[order] for x in (hidden, targets, weights))
        return _sums(terms, hidden, kernel, bias, targets, weights)

    hidden, kernel = scores.hidden, scores.kernel
    if is_sharded("embed"):
        hidden, kernel = gradients_together(hidden, kernel)
    tokens = (hidden, targets, jax.lax.stop_gradient(weights))
    sums = sum_over_tokens(own_sums, tokens, kernel, scores.bias, axes=scores.axes, dtype=scores.dtype)
    likelihood, correct = jax.lax.stop_gradient((sums.likelihood, sums.correct))
    return sums.loss, weights.sum(), {"loss": likelihood, "accuracy": correct}


def token_loss(scores: LazyLogits | AdaptiveScores, targets: Int[Array, "B L"], weights: Float[Array, "B L"]) -> Loss:
    """`vocabulary_loss`, or `adaptive_loss` where the vocabulary is in clusters."""
    return (adaptive_loss if isinstance(scores, AdaptiveScores) else vocabulary_loss)(scores, targets, weights)


def adaptive_loss(scores: AdaptiveScores, targets: Int[Array, "B L"], weights: Float[Array, "B L"]) -> Loss:
    """(sum, weight, metrics) of `vocabulary_loss` over a vocabulary in clusters (Grave et al. 2017): of a token's
    cluster, and of the token in it, whose clusters the other tokens are not compared with.

    There is no accuracy, which would take all clusters of all tokens.
    """
    first = scores.cutoffs[0]
    cluster = sum((targets >= cutoff).astype(jnp.int32) for cutoff in scores.cutoffs)
    of_head = jnp.where(cluster == 0, targets, first + cluster - 1)
    total, weight, metrics = vocabulary_loss(scores.head, of_head, weights)
    loss = metrics["loss"]
    for n, start in enumerate(scores.cutoffs):
        there = cluster == n + 1
        own = jnp.where(there, targets - start, 0), jnp.where(there, weights, 0.0)
        in_cluster, _, of_cluster = vocabulary_loss(scores.clusters[n], *own, skips=True, least_chunks=16)
        total, loss = total + in_cluster, loss + of_cluster["loss"]
    return total, weight, {"loss": loss}


def log_uniform_ids(key: Key[Array, ""], draws: int, vocab_size: int) -> Int[Array, "S"]:
    """Ids of a vocabulary that is sorted by frequency, drawn in proportion to ``log((id + 2) / (id + 1))``, which is
    about Zipf's law, in order; some more than once."""
    # Of a uniform number u the id is floor((V + 1)^u) - 1.
    drawn = jnp.exp(jax.random.uniform(key, (draws,)) * math.log(vocab_size + 1.0))
    return jnp.sort(jnp.minimum(drawn.astype(jnp.int32) - 1, vocab_size - 1))


def sampled_loss(
    scores: LazyLogits, targets: Int[Array, "B L"], weights: Float[Array, "B L"], drawn: Int[Array, "S"]
) -> Loss:
    """(sum, weight, metrics) of the cross entropy among the target and some other tokens (Jean et al. 2015, section 3).

    From each logit the logarithm of the probability that its token is drawn is taken: that is how likely each of them
    is to be the target, given that these are the ones (Bengio and Senecal 2008). A token that was drawn again, or that
    is the target, counts once.

    Args:
      scores: with the table [V D] as their kernel.
      drawn: by `log_uniform_ids`, for all tokens.
    """
    table, bias, dtype = scores.kernel, scores.bias, scores.dtype
    again = jnp.pad(drawn[1:] == drawn[:-1], (1, 0))

    def logits(vectors: Array, ids: Array, hidden: Array, form: str) -> Array:
        found = jnp.einsum(form, hidden.astype(dtype), vectors, preferred_element_type=jnp.float32)
        share = jnp.log1p(1.0 / (ids + 1.0)) / math.log(len(table) + 1.0)
        probability = -jnp.expm1(len(drawn) * jnp.log1p(-share))
        correction = (0.0 if bias is None else bias[ids]) - jnp.log(probability)
        return found + correction.reshape((1,) * (found.ndim - correction.ndim) + correction.shape)

    # The backward pass computes them again.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def losses(hidden: Array, of_targets: Array, of_drawn: Array) -> Float[Array, "B L"]:
        correct = logits(of_targets, targets, hidden, "BLD,BLD->BL")
        others = logits(of_drawn, drawn, hidden, "BLD,SD->BLS")
        left_out = (drawn[None, None] == targets[..., None]) | again[None, None]
        others = jnp.where(left_out, MASKED_LOGIT, others)
        return jnp.logaddexp(correct, jax.nn.logsumexp(others, axis=-1)) - correct

    of_targets = embedding_lookup(table, targets, scores.axes, dtype)
    of_drawn = embedding_lookup(table, drawn[None], scores.axes, dtype)[0]
    loss = (losses(scores.hidden, of_targets, of_drawn) * weights).sum()
    return loss, weights.sum(), {"loss": loss}


class _Sums(NamedTuple):
    loss: Float[Array, ""]
    likelihood: Float[Array, ""]
    correct: Float[Array, ""]


@dataclass(frozen=True)
class _Terms:
    """What is static about a loss."""

    label_smoothing: float
    z_loss: float
    least_chunks: int
    vocab_size: int
    embed: int
    shards: tuple[str, ...]
    """The axes of the mesh that shard the vocabulary."""
    skips: bool = False
    """Chunks of tokens without weight are passed over."""

    def over_shards(self, collective: Callable[[Any, tuple[str, ...]], Any], x: Any) -> Any:
        """`x` of all shards of the vocabulary together."""
        return collective(x, self.shards) if self.shards else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums(terms: _Terms, *inputs: Array | None) -> _Sums:
    return _sums_and_gradients(terms, *inputs, wanted=(False, False, False))[0]


def _forward(terms: _Terms, *inputs: Any) -> tuple[_Sums, tuple[Array | None, ...]]:
    wanted = tuple(x is not None and x.perturbed for x in inputs[:3])
    values = (None if x is None else x.value for x in inputs)
    return _sums_and_gradients(terms, *values, wanted=wanted)


def _backward(terms: _Terms, gradients: tuple[Array | None, ...], cotangents: _Sums) -> tuple[Array | None, ...]:
    scaled = (None if g is None else (g * cotangents.loss).astype(g.dtype) for g in gradients)
    return *scaled, None, None


_sums.defvjp(_forward, _backward, symbolic_zeros=True)


def _sums_and_gradients(
    terms: _Terms,
    hidden: Float[Array, "N D"],
    kernel: Float[Array, "_ _"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "N"],
    weights: Float[Array, "N"],
    *,
    wanted: tuple[bool, bool, bool],
) -> tuple[_Sums, tuple[Array | None, ...]]:
    """The sums, and the gradients of the loss to hidden, kernel and bias so far as they are `wanted`."""
    embed, matrix = terms.embed, kernel.astype(hidden.dtype)

    def step(added: tuple[Array | None, ...], chunk: tuple[Array, Array, Array]) -> tuple[Any, Any]:
        if not terms.skips:
            return chunk_sums(added, chunk)
        x, _, weights = chunk

        def no_sums() -> tuple[Any, Any]:
            # Of what varies over the devices as the sums do.
            zeros = _Sums(*3 * (jnp.zeros_like(weights).sum(),))
            to_hidden = jnp.zeros_like(x) + jnp.zeros_like(matrix)[0, 0] if wanted[0] else None
            return added, (zeros, to_hidden)

        return jax.lax.cond((weights != 0).any(), lambda: chunk_sums(added, chunk), no_sums)

    def chunk_sums(added: tuple[Array | None, ...], chunk: tuple[Array, Array, Array]) -> tuple[Any, Any]:
        x, targets, weights = chunk
        logits = _product(x, 1, matrix, embed)
        if bias is not None:
            logits += bias[None]
        sums, to_logits = _of_chunk(terms, logits, targets, weights, with_gradient=any(wanted))
        to_kernel, to_bias = added
        if wanted[2]:
            to_bias += sum_rows(to_logits)
        if any(wanted[:2]):
            to_logits = to_logits.astype(x.dtype)
        if wanted[1]:
            to_kernel += _product(x, 0, to_logits, 0) if embed == 0 else _product(to_logits, 0, x, 0)
        to_hidden = _product(to_logits, 1, matrix, 1 - embed).astype(x.dtype) if wanted[0] else None
        return (to_kernel, to_bias), (sums, to_hidden)

    begin = tuple(
        jnp.zeros_like(x, dtype=jnp.float32) if is_wanted else None
        for x, is_wanted in zip((kernel, bias), wanted[1:], strict=True)
    )
    (num_tokens, width), vocab_size = hidden.shape, kernel.shape[1 - embed]
    num_chunks = max(terms.least_chunks, -(-num_tokens // max(CHUNK_TOKENS, CHUNK_BYTES // (4 * vocab_size))))
    chunks = tuple(_chunks(x, num_chunks) for x in (hidden, targets, weights))
    (to_kernel, to_bias), (sums, to_hidden) = jax.lax.scan(step, begin, chunks)
    if wanted[0]:
        to_hidden = to_hidden.reshape(-1, width)[:num_tokens]
        # Each device has the gradient from its shard of the vocabulary.
        to_hidden = terms.over_shards(jax.lax.psum, to_hidden)
    if wanted[1]:
        to_kernel = to_kernel.astype(kernel.dtype)
    return jax.tree.map(jnp.sum, sums), (to_hidden, to_kernel, to_bias)


def _of_chunk(
    terms: _Terms,
    logits: Float[Array, "C V"],
    targets: Int[Array, "C"],
    weights: Float[Array, "C"],
    *,
    with_gradient: bool,
) -> tuple[_Sums, Float[Array, "C V"] | None]:
    """The sums of a chunk, and the gradient of its loss to its logits."""
    smoothing, vocab_size = terms.label_smoothing, terms.vocab_size
    ids = jax.lax.broadcasted_iota(targets.dtype, logits.shape, 1)
    if terms.shards:
        ids += jax.lax.axis_index(terms.shards) * logits.shape[1]
    is_target = ids == targets[:, None]
    highest = terms.over_shards(jax.lax.pmax, logits.max(axis=1))
    powers = jnp.exp(logits - highest[:, None])
    added = (powers.sum(axis=1), jnp.where(is_target, logits, 0.0).sum(axis=1))
    if smoothing:
        added = (*added, logits.sum(axis=1))
    normaliser, of_target, *of_all = terms.over_shards(jax.lax.psum, added)
    # The first of the highest, as argmax has it, which is slow in XLA's CPU backend.
    answer = terms.over_shards(jax.lax.pmin, jnp.where(logits == highest[:, None], ids, vocab_size).min(axis=1))
    log_z = highest + jnp.log(normaliser)
    loss = likelihood = log_z - of_target
    if smoothing:
        loss = (1.0 - smoothing) * loss + smoothing * (log_z - of_all[0] / vocab_size)
    slope = jnp.ones_like(log_z)
    if terms.z_loss:
        loss += terms.z_loss * log_z**2
        slope += 2.0 * terms.z_loss * log_z
    sums = _Sums(*((x * weights).sum() for x in (loss, likelihood, answer == targets)))
    if not with_gradient:
        return sums, None
    gradient = powers * (weights * slope / normaliser)[:, None]
    gradient -= jnp.where(is_target, ((1.0 - smoothing) * weights)[:, None], 0.0)
    if smoothing:
        gradient -= (smoothing / vocab_size * weights)[:, None]
    return sums, gradient


def _product(left: Float[Array, "_ _"], left_axis: int, right: Float[Array, "_ _"], right_axis: int) -> Array:
    """The product over an axis of each, added up in float32; nothing is transposed before."""
    axes = (((left_axis,), (right_axis,)), ((), ()))
    return jax.lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)


def _chunks(x: Shaped[Array, "N *_"], num_chunks: int) -> Shaped[Array, "{num_chunks} C *_"]:
    """Chunks of one size, filled up with zeros."""
    size = -(-x.shape[0] // num_chunks)
    padding = [(0, num_chunks * size - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding).reshape(num_chunks, size, *x.shape[1:])
