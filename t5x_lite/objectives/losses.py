"""Losses per token, and their sums over what a batch asks for."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.objectives.base import Metrics
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss


def cross_entropy(
    logits: Float[Array, "*batch V"],
    targets: Int[Array, "*batch"],
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """(loss, negative log-likelihood) of each target in nats, in float32.

    The loss is the cross entropy against ``(1 - label_smoothing) one_hot + label_smoothing / V`` (Szegedy et al. 2016,
    section 7, which Vaswani et al. 2017, section 5.4, take with 0.1) plus ``z_loss * log(Z)^2``, which keeps the
    softmax's normaliser Z near one (Mesh TensorFlow).
    """
    logits = logits.astype(jnp.float32)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    # Compared, not looked up: where the vocabulary is cut, each device has the targets that lie in its part.
    ids = jax.lax.broadcasted_iota(targets.dtype, logits.shape, logits.ndim - 1)
    negative_log_likelihood = log_z - jnp.where(ids == targets[..., None], logits, 0.0).sum(axis=-1)
    loss = negative_log_likelihood
    if label_smoothing:
        loss = (1.0 - label_smoothing) * loss + label_smoothing * (log_z - logits.mean(axis=-1))
    if z_loss:
        loss += z_loss * log_z**2
    return loss, negative_log_likelihood


def most_likely(logits: Float[Array, "*batch V"]) -> Int[Array, "*batch"]:
    """The first of the highest, as `argmax` has it: XLA's CPU backend does these two passes in a fifth of its time.

    >>> most_likely(jnp.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])).tolist()
    [1, 0]
    """
    ids = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    highest = logits.max(axis=-1, keepdims=True)
    return jnp.where(logits == highest, ids, logits.shape[-1] - 1).min(axis=-1)


def weighted_loss(
    logits: Float[Array, "B L V"],
    targets: Int[Array, "B L"],
    weights: Float[Array, "B L"],
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
    """(sum, weight, metrics) of the cross entropy over a batch, from logits that something else needs too.

    Metrics: `loss` is the summed negative log-likelihood without smoothing and z-loss, so that runs with and without
    them compare; `accuracy` counts the targets that are the most likely token.
    """
    loss, negative_log_likelihood = cross_entropy(logits, targets, label_smoothing=label_smoothing, z_loss=z_loss)
    correct = most_likely(logits) == targets
    metrics = {"loss": (negative_log_likelihood * weights).sum(), "accuracy": (correct * weights).sum()}
    return (loss * weights).sum(), weights.sum(), metrics


def text_to_text_loss(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    targets: Int[Array, "B L"],
    key: Key[Array, ""] | None,
    *,
    pad_id: int,
    eos_id: int,
    rows_valid: Bool[Array, "B"] | None = None,
    inputs_valid: Bool[Array, "B M"] | None = None,
    inputs_segments: Int[Array, "B M"] | None = None,
    decoder_segments: Int[Array, "B L"] | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
    """(sum, weight, metrics), as `weighted_loss` has them, of any model that writes text, teacher forced.

    Counted are all targets that are not padding, in all valid rows.

    Args:
      module: an encoder-decoder or a decoder, which reads inputs and targets as one sequence.
      inputs: each row closed by EOS; where they are packed, each text.
      targets: closed in the same way, padding behind.
      key: drives dropout; None means deterministic.
      rows_valid: rows that count; None means all.
      inputs_valid: where the inputs are not padding; None means everywhere.
      inputs_segments, decoder_segments: of packed rows, for encoder-decoders: see `segments_of`.
    """
    inputs, inputs_valid = inputs_for(module, inputs, inputs_valid)
    segments = {"inputs_segments": inputs_segments, "decoder_segments": decoder_segments}
    start_id = module.config.decoder_start_id(pad_id=pad_id, eos_id=eos_id)
    scores = module.apply(
        {"params": params},
        inputs,
        shift_right(targets, start_id, decoder_segments),
        inputs_valid=inputs_valid,
        **{name: value for name, value in segments.items() if value is not None},
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
        method="scores",
    )
    weights = not_padding(targets, pad_id, eos_id).astype(jnp.float32)
    if rows_valid is not None:
        weights *= rows_valid[:, None]
    return vocabulary_loss(scores, targets, weights, label_smoothing=label_smoothing, z_loss=z_loss)


def shift_right(
    targets: Int[Array, "B L"], start_id: int, segments: Int[Array, "B L"] | None = None
) -> Int[Array, "B L"]:
    """The decoder's inputs: at each position the target before it, `start_id` in front of the row or of each segment.

    >>> shift_right(jnp.array([[7, 8, 1]]), 0).tolist()
    [[0, 7, 8]]
    >>> shift_right(jnp.array([[7, 8, 1, 9, 1]]), 0, jnp.array([[1, 1, 1, 2, 2]])).tolist()
    [[0, 7, 8, 0, 9]]
    """
    before = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)
    if segments is None:
        return before
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(begins, start_id, before)


def inputs_for(
    module: nn.Module, inputs: Int[Array, "B M"], inputs_valid: Bool[Array, "B M"] | None
) -> tuple[Int[Array, "B _"], Bool[Array, "B _"] | None]:
    """(inputs, where they are not padding) as the model takes them.

    A decoder reads the EOS of its inputs as its first decoder input, so for one it is left out here.
    """
    if module.config.architecture != "decoder":
        return inputs, inputs_valid
    if inputs_valid is None:
        return inputs[:, :-1], None
    from_here_on = jnp.cumsum(inputs_valid[:, ::-1], axis=1)[:, ::-1]
    return inputs[:, :-1], (inputs_valid & (from_here_on > 1))[:, :-1]


def not_padding(ids: Int[Array, "B L"], pad_id: int, eos_id: int) -> Bool[Array, "B L"]:
    """Where the ids are not padding. Where one id serves as both, as GPT-2's does, the first of those behind is EOS.

    >>> not_padding(jnp.array([[7, 9, 7, 9, 9]]), 9, 9).astype(int).tolist()
    [[1, 1, 1, 1, 0]]
    """
    if pad_id != eos_id:
        return ids != pad_id
    is_text = jnp.pad(ids != pad_id, ((0, 0), (1, 0)), constant_values=True)
    return jax.lax.cummax(is_text.astype(jnp.int32), axis=1, reverse=True)[:, :-1] == 1


def segments_of(ids: Int[Array, "L"], pad_id: int, eos_id: int) -> Int[Array, "L"]:
    """The texts of a packed row, counted from 1, each up to its EOS; 0 for the padding behind them.

    >>> segments_of(jnp.array([7, 8, 1, 9, 1, 0]), 0, 1).tolist()
    [1, 1, 1, 2, 2, 0]
    """
    ends = (ids == eos_id).astype(jnp.int32)
    return jnp.where(ids == pad_id, 0, jnp.cumsum(ends) - ends + 1)
