"""Which tokens may look at which, in the rows of an objective as a model reads them."""

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
from matplotlib.colors import PowerNorm

from t5x_lite.errors import InputError
from t5x_lite.layers.masks import Mask
from t5x_lite.layers.transformer import Context, Stack
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.objectives.base import Features, Objective
from t5x_lite.pictures.drawing import Picture

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


_COLORS = "Blues"
_CELL = 0.24  # inches of a token
_MOST_CELLS = 64
"""Tokens up to which each has its own label."""
_MOST_SMALL_CELLS = 40
"""The same where several heads share the picture."""
_LONGEST = 18
"""Characters of a label."""


def draw_attention(
    weights: Float[np.ndarray, "L M"], queries: Sequence[str], keys: Sequence[str], title: str = ""
) -> Picture:
    """One head: a row for each query, a column for each key, dark where the query looks."""
    width, height = (max(2.4, _CELL * min(len(side), _MOST_CELLS)) for side in (keys, queries))
    label = 0.085 * max(len(_short(token)) for token in (*queries, *keys))
    picture = Picture(figsize=(width + label + 1.1, height + label + 0.7), layout="constrained")
    axes = picture.subplots()
    image = _show(axes, weights)
    _label(axes, queries, keys)
    axes.set(ylabel="looks", xlabel="at")
    if title:
        axes.set_title(title)
    picture.colorbar(image, ax=axes, label="weight", shrink=min(1.0, 2.4 / height), aspect=12)
    return picture


def draw_attention_heads(
    weights: Float[np.ndarray, "T L M"],
    queries: Sequence[str],
    keys: Sequence[str],
    names: Sequence[str],
    title: str = "",
) -> Picture:
    """Some heads side by side, up to four in a row, each under its name; with tokens where they are few."""
    count, length, memory_length = weights.shape
    columns = min(4, count)
    labelled = max(length, memory_length) <= _MOST_SMALL_CELLS
    label = 0.075 * max(len(_short(token)) for token in (*queries, *keys)) if labelled else 0.0
    cell = 0.17 if labelled else 2.4 / max(length, memory_length)
    width, height = (max(1.0, cell * size) + label + 0.15 for size in (memory_length, length))
    rows = -(-count // columns)
    picture = Picture(figsize=(0.4 + columns * width, 0.5 + rows * (height + 0.25)), layout="constrained")
    table = picture.subplots(rows, columns, squeeze=False).ravel()
    for axes, of_head, name in zip(table, weights, names, strict=False):
        _show(axes, of_head)
        axes.set_title(name, fontsize=9)
        if labelled:
            _label(axes, queries, keys, size=7)
        else:
            axes.set(xticks=[], yticks=[])
    for axes in table[count:]:
        axes.set_axis_off()
    if title:
        picture.suptitle(title)
    return picture


def draw_attention_layers(weights: Float[np.ndarray, "N H L M"], title: str = "") -> Picture:
    """All heads of all layers as small maps: a row for each layer, a column for each head."""
    num_layers, num_heads, length, memory_length = weights.shape
    width = 1.0 if num_heads <= 16 else 0.6
    height = width * min(max(length / memory_length, 0.3), 3.0)
    size = 0.8 + num_heads * width, 0.9 + num_layers * (height + 0.04)
    picture = Picture(figsize=(max(size[0], 3.0), size[1]), layout="constrained")
    table = picture.subplots(num_layers, num_heads, squeeze=False)
    for layer, head in np.ndindex(num_layers, num_heads):
        axes = table[layer, head]
        _show(axes, weights[layer, head])
        axes.set(xticks=[], yticks=[])
        if layer == 0:
            axes.set_title(f"head {head}" if head == 0 else str(head), fontsize=8)
        if head == 0:
            axes.set_ylabel(f"layer {layer}" if layer == 0 else str(layer), fontsize=8)
    if title:
        picture.suptitle(title)
    return picture


def _show(axes: Any, weights: Float[np.ndarray, "L M"]) -> Any:
    # By the square root, since in long texts all weights are small.
    # Cells are shown as they are, or averaged where there are more of them than pixels.
    norm = PowerNorm(0.5, vmin=0.0, vmax=1.0)
    smooth = "nearest" if max(weights.shape) <= _MOST_CELLS else "antialiased"
    return axes.imshow(weights, cmap=_COLORS, norm=norm, aspect="auto", interpolation=smooth)


def _label(axes: Any, queries: Sequence[str], keys: Sequence[str], size: float = 8.0) -> None:
    """Tokens beside the rows and below the columns; of long texts every second one, third one, ..."""
    for side, tokens in ((axes.yaxis, queries), (axes.xaxis, keys)):
        places = range(0, len(tokens), -(-len(tokens) // _MOST_CELLS))
        # parse_math: a token with two dollars is no formula.
        side.set_ticks(places, [_short(tokens[place]) for place in places], fontsize=size, parse_math=False)
    for text in axes.get_xticklabels():
        text.set(rotation=90)
    axes.tick_params(length=2, pad=2)


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…"


Maps = Mapping[str, tuple[Float[np.ndarray, "N H L M"], Sequence[str], Sequence[str]]]
"""(weights, the tokens that look, those looked at) of each kind of attention."""

_MOST = 24_000_000
"""Weights of a page, which keeps each in 2.7 bytes."""
_PLACE = "{{attention}}"


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
    return template.replace(_PLACE, _inside_script({"start": start, "kinds": kinds}))


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
