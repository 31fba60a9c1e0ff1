"""What an encoder in a notebook is asked to compute: functions of its module and parameters, compiled by shape."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.models import ElectraPair
from t5x_lite.pretrained.embeddings import Layers, Pooling, choose_layers, pool


def _encoder_of(module: nn.Module) -> nn.Module:
    return module.discriminator if isinstance(module, ElectraPair) else module


def _language_model_of(module: nn.Module) -> nn.Module:
    return module.generator if isinstance(module, ElectraPair) else module


@partial(jax.jit, static_argnums=0)
def all_outputs(
    module: nn.Module, params: Any, inputs: Int[Array, "B L"], segments: Int[Array, "B L"], valid: Bool[Array, "B L"]
) -> dict[str, Any]:
    return module.apply({"params": params}, inputs, segments, inputs_valid=valid)


@partial(jax.jit, static_argnums=(0, 7))
def best_tokens(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B L"],
    segments: Int[Array, "B L"],
    valid: Bool[Array, "B L"],
    positions: Int[Array, "B P"],
    allowed: Bool[Array, "V"],
    top_k: int,
) -> tuple[Int[Array, "B P K"], Float[Array, "B P K"]]:
    """(ids, probabilities) of the likeliest of the allowed tokens at some positions of each row."""

    def logits(module: nn.Module) -> Float[Array, "B P V"]:
        model = _language_model_of(module)
        hidden = model.encode(inputs, segments, inputs_valid=valid)
        return model.masked_lm_logits(jnp.take_along_axis(hidden, positions[..., None], axis=1))

    probabilities = jax.nn.softmax(module.apply({"params": params}, method=logits))
    best, ids = jax.lax.top_k(jnp.where(allowed[None, None], probabilities, -1.0), top_k)
    return ids, best


@partial(jax.jit, static_argnums=(0, 5, 6))
def text_vectors(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B L"],
    segments: Int[Array, "B L"],
    valid: Bool[Array, "B L"],
    layers: Layers,
    pooling: Pooling,
) -> Float[Array, "B D"] | Float[Array, "B L D"]:
    def outputs(module: nn.Module) -> Float[Array, "N1 B L D"]:
        return _encoder_of(module).encode_layers(inputs, segments, inputs_valid=valid)

    return pool(choose_layers(module.apply({"params": params}, method=outputs), layers), valid, pooling)


@partial(jax.jit, static_argnums=0)
def replacement_probabilities(
    module: nn.Module, params: Any, inputs: Int[Array, "B L"], segments: Int[Array, "B L"], valid: Bool[Array, "B L"]
) -> Float[Array, "B L"]:
    def probabilities(module: nn.Module) -> Float[Array, "B L"]:
        model = _encoder_of(module)
        return jax.nn.sigmoid(model.replaced_token_logits(model.encode(inputs, segments, inputs_valid=valid)))

    return module.apply({"params": params}, method=probabilities)


@partial(jax.jit, static_argnums=0)
def class_probabilities(
    module: nn.Module, params: Any, inputs: Int[Array, "B L"], segments: Int[Array, "B L"], valid: Bool[Array, "B L"]
) -> Float[Array, "B C"]:
    def probabilities(module: nn.Module) -> Float[Array, "B C"]:
        model = _encoder_of(module)
        return jax.nn.softmax(model.classification_logits(model.encode(inputs, segments, inputs_valid=valid)))

    return module.apply({"params": params}, method=probabilities)
