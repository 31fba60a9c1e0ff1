"""Attention masks of an objective's rows, and attention weights as an HTML page; neither loads matplotlib."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Bool, Float

from t5x_lite.errors import InputError
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


Maps = Mapping[str, tuple[Float[np.ndarray, "N H L M"], Sequence[str], Sequence[str]]]
"""(weights, the tokens that look, those looked at) of each kind of attention."""

_MOST = 24_000_000
"""Weights of a page, which keeps each in 2.7 bytes."""
_SLOT = "{{attention}}"


def attention_page(maps: Maps, *, kind: str | None = None, layer: int = 0, head: int = 0) -> str:
    """The page, which begins with this kind, layer and head; `InputError` where it would be too large for a browser."""
    number = sum(weights.size for weights, _, _ in maps.values())
    if number > _MOST:
        raise InputError(
            f"the page would hold {number:,} weights, and browsers open {_MOST:,}; give a shorter text, or draw some "
            "of the heads with plot"
        )
    kinds = [
        {
            "kind": kind,
            "queries": list(queries),
            "keys": list(keys),
            "shape": list(weights.shape),
            "weights": _packed(weights),
        }
        for kind, (weights, queries, keys) in maps.items()
    ]
    start = {"kind": 0 if kind is None else list(maps).index(kind), "layer": layer, "head": head}
    template = (files(__package__) / "attention_page.html").read_text(encoding="utf-8")
    return template.replace(_SLOT, _inside_script({"start": start, "kinds": kinds}))


def framed(maps: Maps) -> str:
    """The page as a part of another one, such as a notebook, whose scripts and styles it neither sees nor touches."""
    tokens = max(max(len(queries), len(keys)) for _, queries, keys in maps.values())
    layers = max(len(weights) for weights, _, _ in maps.values())
    height = min(640, 160 + max(22 * tokens, 44 * layers + 60))  # more is scrolled
    page = attention_page(maps)
    return (
        f'<iframe title="attention" sandbox="allow-scripts" srcdoc="{html.escape(page)}" '
        f'style="width:100%;height:{height}px;border:1px solid #8884;border-radius:6px"></iframe>'
    )


def _packed(weights: Float[np.ndarray, "N H L M"]) -> str:
    """Weights in steps of 1/65535, as the base64 of little-endian 16-bit numbers."""
    return base64.b64encode(np.round(np.clip(weights, 0.0, 1.0) * 65535).astype("<u2").tobytes()).decode()


def _inside_script(value: object) -> str:
    r"""JSON that no token can break out of: a browser ends the script at the first `</script`.

    >>> _inside_script(["</script><!--", "a & b"])
    '["\\u003c/script\\u003e\\u003c!--","a \\u0026 b"]'
    """
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
