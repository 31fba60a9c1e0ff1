"""Per-token losses. They return one value an element; the caller weighs and sums."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.objectives.base import Metrics


def cross_entropy(
    logits: Float[Array, "*batch V"],
    targets: Int[Array, "*batch"],
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """(loss, negative log-likelihood) of each target in nats, in float32.

    The loss is the cross entropy against ``(1 - label_smoothing) one_hot + label_smoothing / V`` (Szegedy et al. 2016,
    section 7) plus ``z_loss * log(Z)^2``, which keeps the softmax's normaliser Z near one (Mesh TensorFlow).
    """
    logits = logits.astype(jnp.float32)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    negative_log_likelihood = log_z - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    loss = negative_log_likelihood
    if label_smoothing:
        loss = (1.0 - label_smoothing) * loss + label_smoothing * (log_z - logits.mean(axis=-1))
    if z_loss:
        loss += z_loss * log_z**2
    return loss, negative_log_likelihood


def shift_right(targets: Int[Array, "B L"], start_id: int) -> Int[Array, "B L"]:
    """The decoder's inputs: at each position the target before it, `start_id` in front.

    >>> shift_right(jnp.array([[7, 8, 1]]), 0).tolist()
    [[0, 7, 8]]
    """
    return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)


def encoder_decoder_loss(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    targets: Int[Array, "B L"],
    key: Key[Array, ""] | None,
    *,
    pad_id: int,
    rows_valid: Bool[Array, "B"] | None = None,
    inputs_valid: Bool[Array, "B M"] | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
    """(sum, weight, metrics) of a teacher-forced decoder over all targets that are no padding, in all valid rows.

    Metrics: `loss` is the summed negative log-likelihood without smoothing and z-loss, so that runs with and without
    them compare; `accuracy` counts the targets that are the most likely token.
    """
    logits = module.apply(
        {"params": params},
        inputs,
        shift_right(targets, pad_id),
        inputs_valid=inputs_valid,
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
    )
    weights = (targets != pad_id).astype(jnp.float32)
    if rows_valid is not None:
        weights *= rows_valid[:, None]
    loss, negative_log_likelihood = cross_entropy(logits, targets, label_smoothing=label_smoothing, z_loss=z_loss)
    correct = logits.argmax(axis=-1) == targets
    metrics = {"loss": (negative_log_likelihood * weights).sum(), "accuracy": (correct * weights).sum()}
    return (loss * weights).sum(), weights.sum(), metrics
