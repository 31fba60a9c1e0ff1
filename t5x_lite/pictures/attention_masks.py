"""Which tokens may look at which, in the rows of an objective as a model reads them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Bool

from t5x_lite.layers.masks import Mask
from t5x_lite.layers.transformer import Context, Stack
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.objectives.base import Features, Objective

_ORDER = ("generator", "discriminator", "encoder", "decoder", "cross")


def attention_masks(
    objective: Objective, model: ModelConfig, features: Features
) -> dict[str, Bool[np.ndarray, "B L M"]]:
    """For each kind of attention, true where a query [L] may look at a key [M].

    The kinds are `encoder` (or `generator` and `discriminator`), `decoder` and `cross`. They are what the model's own
    layers are given when the objective asks for its loss, whose layers and numbers are left out.
    """
    module = model.build()

    def masks(features: Features) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = {}

        def watch(run: Any, arguments: tuple, options: dict, call: nn.module.InterceptorContext) -> Any:
            if not (isinstance(call.module, Stack) and call.method_name == "__call__"):
                return run(*arguments, **options)
            x, context = arguments
            for kind, mask in _masks(call.module, x, context).items():
                found.setdefault(kind, mask)
            return x

        shapes = nn.unbox(abstract_params(model))
        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        with nn.intercept_methods(watch):
            objective.loss(module, params, features, None)
        return found

    # Compiled, since all but the masks, the parameters among it, is then never computed.
    found = jax.device_get(jax.jit(masks)(features))
    return {kind: found[kind] for kind in sorted(found, key=_ORDER.index)}


def _masks(stack: Stack, x: jax.Array, context: Context) -> dict[str, jax.Array]:
    batch_size, length = x.shape[:2]

    def whole(mask: Mask | None, memory_length: int) -> jax.Array:
        shape = (batch_size, length, memory_length)
        seen = None if mask is None else mask.dense(length, memory_length)
        return jnp.ones(shape, bool) if seen is None else jnp.broadcast_to(seen[:, 0], shape)

    # T5's stacks can share their layers, and are then one module.
    name = "encoder" if stack.has_memory and context.memory is None else stack.path[0]
    found = {name: whole(context.self_mask, length)}
    if context.memory is not None:
        found["cross"] = whole(context.memory_mask, context.memory.shape[1])
    return found
