"""Attention as a page for a browser: one file, which loads nothing. What it looks like is in attention_page.html."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np
from jaxtyping import Float

from t5x_lite.errors import InputError

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
