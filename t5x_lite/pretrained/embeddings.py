"""How a token's layers become one vector, and a text's tokens."""

from typing import Literal, get_args

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from t5x_lite.errors import InputError

NamedLayers = Literal["last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all", "mean"]
Layers = NamedLayers | int
"""The last layer's output, that of the one before, the sum or the concatenation of the last four, the sum of all layers
(Devlin et al. 2019, table 7), their mean, or the output of one layer: 1 is the first, 0 the embeddings, -1 the last."""

TABLE_7: tuple[Layers, ...] = (0, "second_to_last", "last", "sum_last_4", "concat_last_4", "sum_all")
"""The rows of the feature-based approach in that table, in its order; its weighted sums are plain ones here."""

Pooling = Literal["mean", "cls", "tokens"]
"""The mean of a text's tokens, special ones included; the vector of the first one ([CLS]); or one for each token."""


def check_layers(layers: Layers, num_layers: int) -> None:
    """Raises `InputError` for layers that a model of `num_layers` has not."""
    if isinstance(layers, int) and not isinstance(layers, bool):
        if not -num_layers - 1 <= layers <= num_layers:
            raise InputError(
                f"layers={layers} is no layer of this model; choose 0 (embeddings) to {num_layers}, or -1 for the last"
            )
    elif layers not in get_args(NamedLayers):
        raise InputError(f"layers={layers!r} is unknown; choose one of {', '.join(get_args(NamedLayers))}, or a number")
    elif layers in ("sum_last_4", "concat_last_4") and num_layers < 4:
        raise InputError(f"layers={layers!r} needs four layers and this model has {num_layers}; choose last or mean")
    elif layers == "second_to_last" and num_layers < 2:
        raise InputError("layers='second_to_last' needs two layers and this model has one; choose last, or 0")


def has_layers(layers: Layers, num_layers: int) -> bool:
    """Whether a model of `num_layers` has those of a choice."""
    try:
        check_layers(layers, num_layers)
    except InputError:
        return False
    return True


def check_pooling(pooling: Pooling) -> None:
    """Raises `InputError` for a way of pooling that there is not."""
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")


def choose_layers(outputs: Float[Array, "N1 B L D"], layers: Layers) -> Float[Array, "B L _"]:
    """One vector a token from the embeddings (the first of `outputs`) and the output of each layer behind it.

    `concat_last_4` gives 4 D features, the last layer's first; all others give D.
    """
    match layers:
        case "last":
            return outputs[-1]
        case "second_to_last":
            return outputs[-2]
        case "sum_last_4":
            return outputs[-4:].sum(axis=0)
        case "concat_last_4":
            return jnp.concatenate(outputs[:-5:-1], axis=-1)
        case "sum_all":
            return outputs[1:].sum(axis=0)
        case "mean":
            return outputs[1:].mean(axis=0)
    return outputs[layers]


def pool(
    vectors: Float[Array, "B L D"], valid: Bool[Array, "B L"], pooling: Pooling
) -> Float[Array, "B D"] | Float[Array, "B L D"]:
    """One vector a text: the mean over its tokens, padding left out, or the first; with "tokens" all as they are."""
    if pooling == "tokens":
        return vectors
    if pooling == "cls":
        return vectors[:, 0]
    weights = valid.astype(vectors.dtype)[..., None]
    return (vectors * weights).sum(axis=1) / weights.sum(axis=1)
