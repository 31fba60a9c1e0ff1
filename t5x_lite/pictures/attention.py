"""Attention weights as heat maps: one head with its tokens, or many side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.colors import PowerNorm

from t5x_lite.pictures.picture import Picture

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
