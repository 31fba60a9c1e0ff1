"""Pictures of attention, positions, corruption and learning curves.

Every `draw_*` takes plain arrays and returns a `Picture`: a matplotlib figure that shows itself in a notebook, without
pyplot and its global state, and that `save` writes to a file. The names below are imported on first use, so that
matplotlib is loaded only by code that draws.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_lite.pictures.corruption import draw_corruption
    from t5x_lite.pictures.drawing import (
        Curve,
        Picture,
        RelativeBias,
        draw_attention,
        draw_attention_heads,
        draw_attention_layers,
        draw_curves,
        draw_positions,
        draw_relative_bias,
    )

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


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "corruption" if name == "draw_corruption" else "drawing"
        return getattr(importlib.import_module(f"t5x_lite.pictures.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
