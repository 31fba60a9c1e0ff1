"""Pictures of what goes on inside: attention, positions, corruption, learning curves. One file each.

Every `draw_*` takes plain arrays and gives a `Picture`: a matplotlib figure that shows itself in a notebook, without
pyplot and its global state, and saves itself with `save`. Names below are imported when they are first used, so that
matplotlib is loaded by those who draw.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_lite.pictures.attention import draw_attention, draw_attention_heads, draw_attention_layers
    from t5x_lite.pictures.corruption import draw_corruption
    from t5x_lite.pictures.drawing import Curve, Picture, draw_curves
    from t5x_lite.pictures.positions import RelativeBias, draw_positions, draw_relative_bias

__all__ = [
    "Curve",
    "Picture",
    "RelativeBias",
    "draw_attention",
    "draw_attention_heads",
    "draw_attention_layers",
    "draw_corruption",
    "draw_curves",
    "draw_positions",
    "draw_relative_bias",
]

_ROOMS = {
    "attention": ("draw_attention", "draw_attention_heads", "draw_attention_layers"),
    "corruption": ("draw_corruption",),
    "drawing": ("Curve", "Picture", "draw_curves"),
    "positions": ("RelativeBias", "draw_positions", "draw_relative_bias"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"t5x_lite.pictures.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
