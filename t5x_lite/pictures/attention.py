"""Attention masks of an objective's rows, and attention weights to read, to draw and as an HTML page."""

import base64
import html
import json
import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path, write_atomically
from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.transformer import Stack
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.objectives.base import Features, Objective

_ORDER = ("generator", "discriminator", "encoder", "decoder", "cross")


def attention_masks(
    objective: Objective, model: ModelConfig, features: Features
) -> dict[str, Bool[np.ndarray, "B L M"]]:
    """For each kind of attention, true where a query [L] may attend to a key [M].

    The kinds are `encoder` (or `generator` and `discriminator`), `decoder` and `cross`. The masks are those that the
    objective's loss gives to the layers of the model.
    """
    module = model.build()

    def masks(features: Features) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = {}

        def watch(run: Any, arguments: tuple, options: dict, call: nn.module.InterceptorContext) -> Any:
            stack = call.module
            if not (isinstance(stack, Stack) and call.method_name == "__call__"):
                return run(*arguments, **options)
            x, context = arguments

            def keep(name: str, mask: Mask | None, memory_length: int) -> None:
                seen = None if mask is None else mask.dense(x.shape[1], memory_length)
                shape = (*x.shape[:2], memory_length)
                found.setdefault(name, jnp.broadcast_to(True if seen is None else seen[:, 0], shape))

            # T5's stacks can share their layers, and are then one module.
            name = "encoder" if stack.has_memory and context.memory is None else stack.path[0]
            keep(name, context.self_mask, x.shape[1])
            if context.memory is not None:
                keep("cross", context.memory_mask, context.memory.shape[1])
            return x

        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nn.unbox(abstract_params(model)))
        with nn.intercept_methods(watch):
            objective.loss(module, params, features, None)
        return found

    # Compiled, so that only the masks are computed and neither the parameters nor the loss.
    found = jax.device_get(jax.jit(masks)(features))
    return {kind: found[kind] for kind in sorted(found, key=_ORDER.index)}


_MOST = 24_000_000  # weights: a browser holds each in a byte, and a page keeps it in less
_MOST_IN_NOTEBOOK = 2_000_000
_PAGE_BYTES = 4_900_000
_STEPS = (128, 32, 8, 4)
"""Of a row's largest weight; the finest whose weights fit into `_PAGE_BYTES`. With 128 a weight takes a bit less than
with 255 where attention is spread, and where it is sharp most weights are 0 and take next to nothing."""


@dataclass(frozen=True, repr=False)
class AttentionMap:
    """The attention of each token of one side to each of the other, in every layer and head of a stack."""

    kind: str
    """`self` of an encoder, `causal` or `prefix` of a decoder; `encoder`, `decoder` and `cross` of an encoder-decoder;
    `discriminator` and `generator` of ELECTRA's pair."""
    queries: Sequence[str]
    """The tokens that attend."""
    keys: Sequence[str]
    """The tokens that they attend to."""
    weights: Float[np.ndarray, "N H L M"]
    """Each row sums to one."""

    def __repr__(self) -> str:
        heads = f"{self.num_layers} layers of {self.num_heads} heads"
        return f"{self.kind}: {heads}, {len(self.queries)} tokens look at {len(self.keys)}"

    @property
    def num_layers(self) -> int:
        return self.weights.shape[0]

    @property
    def num_heads(self) -> int:
        return self.weights.shape[1]

    def plot(self, layer: int | None = None, head: int | None = None, *, model: str = "") -> Any:
        """A `Picture` of one head of one layer; without a head of all the layer's, without either of the whole stack.

        Both count from 0, as in `weights[layer, head]`; of a head alone all layers are shown, and what is the only head
        of the only layer, as of a recurrent model, needs no choice. The title begins with `model`. Raises `InputError`
        for a layer or a head out of range.
        """
        from t5x_lite.pictures import drawing  # here, since it loads matplotlib

        self.check(layer, head)
        given = {name: n for name, n in (("layer", layer), ("head", head)) if n is not None}
        title = ", ".join([f"{self.kind} attention", *(f"{name} {n}" for name, n in given.items())])
        title = f"{model}: {title}" if model else title
        if len(given) == 2 or self.num_layers == self.num_heads == 1:
            return drawing.draw_attention(self.weights[layer or 0, head or 0], self.queries, self.keys, title)
        if not given:
            return drawing.draw_attention_layers(self.weights, title)
        several, weights = ("layer", self.weights[:, head]) if layer is None else ("head", self.weights[layer])
        names = [f"{several} {n}" for n in range(len(weights))]
        return drawing.draw_attention_heads(weights, self.queries, self.keys, names, title)

    def check(self, layer: int | None, head: int | None) -> None:
        """Raises `InputError` for a layer or a head out of range."""
        for name, number, count in (("layer", layer, self.num_layers), ("head", head, self.num_heads)):
            if number is not None and not 0 <= number < count:
                raise InputError(f"{name}={number} is not one of the {self.kind} attention's; choose 0 to {count - 1}")


@dataclass(frozen=True, repr=False)
class AttentionMaps:
    """All the attention of a model over one text. A notebook shows it as a page with a choice of layer and head."""

    maps: tuple[AttentionMap, ...]
    model: str = ""
    """The model's name, for titles."""
    text: str = ""
    """What the model reads."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.maps))

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(one.kind for one in self.maps)

    def __getitem__(self, kind: str | None) -> AttentionMap:
        """The map of a kind; the first for None."""
        for one in self.maps:
            if kind in (None, one.kind):
                return one
        raise InputError(f"kind={kind!r} is not an attention of this model; choose one of {', '.join(self.kinds)}")

    def plot(self, kind: str | None = None, layer: int | None = None, head: int | None = None) -> Any:
        """A `Picture` of one kind of attention, by default the first: see `AttentionMap.plot`."""
        return self[kind].plot(layer, head, model=self.model)

    def html(
        self,
        path: str | Path | None = None,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> str:
        """A page that a browser opens from the disk: choose layer and head, follow a token's lines.

        It loads nothing else, is written to `path` where that is given, and begins with `kind`, `layer` and `head`
        unless its address says otherwise (`#kind=self&layer=1&head=2`). Weights are shown to 1/256 of the largest of
        their row, or as coarsely as to 1/8 where the page would exceed 5 MB. Raises `InputError` for more weights than
        a browser opens.
        """
        if path is not None:
            path = Path(path).expanduser()
            check_output_path(path, "path", (".html",))
        self[kind].check(layer, head)
        if self._num_weights > _MOST:
            raise InputError(
                f"the page would hold {self._num_weights:,} weights, and browsers open {_MOST:,}; give a shorter text, "
                "or draw some of the heads with plot"
            )
        steps, packed = _pack(self.maps)
        kinds = [
            {
                "kind": one.kind,
                "queries": list(one.queries),
                "keys": list(one.keys),
                "shape": list(one.weights.shape),
                "num_steps": steps,
                "weights": weights,
            }
            for one, weights in zip(self.maps, packed, strict=True)
        ]
        start = {"kind": self.kinds.index(self[kind].kind), "layer": layer or 0, "head": head or 0}
        template = (files(__package__) / "attention_page.html").read_text(encoding="utf-8")
        heading = f"Attention of {self.model}" if self.model else "Attention"
        title = f"{heading}: {textwrap.shorten(self.text, 80, placeholder=' ...')}" if self.text else heading
        values = {
            "title": html.escape(title),
            "heading": html.escape(heading),
            "text": html.escape(self.text),
            "attention": _inside_script({"start": start, "kinds": kinds}),
        }
        # In one pass, so that a text with {{title}} in it stays as it is.
        page = re.sub(r"\{\{(title|heading|text|attention)\}\}", lambda found: values[found[1]], template)
        if path is not None:
            write_atomically(path, page)
        return page

    def _repr_html_(self) -> str:
        """The page in a frame, whose scripts and styles neither see nor touch the notebook's."""
        if self._num_weights > _MOST_IN_NOTEBOOK:
            return (
                f"<p>{self._num_weights:,} attention weights are too many to keep in a notebook: write them to a page "
                "with <code>.html(&quot;page.html&quot;)</code>, or draw some with "
                "<code>.plot(kind, layer, head)</code>"
            )
        tokens = max(len(side) for one in self.maps for side in (one.queries, one.keys))
        height = min(640, 160 + max(22 * tokens, 44 * max(one.num_layers for one in self.maps) + 60))  # more scrolls
        return (
            f'<iframe title="attention" sandbox="allow-scripts" srcdoc="{html.escape(self.html())}" '
            f'style="width:100%;height:{height}px;border:1px solid #8884;border-radius:6px"></iframe>'
        )

    @property
    def _num_weights(self) -> int:
        return sum(one.weights.size for one in self.maps)


@partial(jax.jit, static_argnums=0)
def sown_weights(
    module: nn.Module, params: Any, *ids: Int[jax.Array, "B _"], inputs_valid: Bool[jax.Array, "B _"]
) -> dict[str, Any]:
    """By stack, the weights [N B H L M] of its `self_attention` and, in a decoder, `cross_attention`."""
    _, sown = module.apply({"params": params}, *ids, inputs_valid=inputs_valid, mutable=["intermediates"])
    return sown["intermediates"]


def make_map(
    kind: str,
    queries: Sequence[str],
    keys: Sequence[str],
    stack: Mapping[str, Any],
    layer: str = "self_attention",
    *,
    call: int = -1,
    start: int = 0,
) -> AttentionMap:
    """The map of the weights of one text that a stack sowed when it ran last, or when it ran for the `call`-th time.

    The tokens stand at positions `start` and following; the others are padding.
    """
    weights = np.asarray(stack["layers"][layer]["weights"][call])[:, 0, :, start:, start:]
    return AttentionMap(kind, queries, keys, weights[..., : len(queries), : len(keys)])


def _pack(maps: Sequence[AttentionMap]) -> tuple[int, list[str]]:
    """The steps that the largest weight of each row is divided into, and the weights of each map, deflated, in base64.

    They are of each row its largest weight (float32), then of each weight its steps: it is off by half a step at most.
    """
    for count in _STEPS:
        packed = []
        for one in maps:
            weights = one.weights.astype(np.float32)
            largest = weights.max(axis=-1, keepdims=True).astype("<f4")
            steps = np.round(count * weights / np.maximum(largest, 1e-30)).clip(0, count).astype(np.uint8)
            # Runs of a step are all that repeats: a search for other matches takes ten times as long, and finds few.
            packer = zlib.compressobj(strategy=zlib.Z_RLE)
            deflated = packer.compress(largest.tobytes() + steps.tobytes()) + packer.flush()
            packed.append(base64.b64encode(deflated).decode())
        if sum(map(len, packed)) <= _PAGE_BYTES:
            break
    return count, packed


def _inside_script(value: object) -> str:
    r"""JSON that no token breaks out of: a browser ends the script at the first `</script`.

    >>> _inside_script(["</script><!--", "a & b"])
    '["\\u003c/script\\u003e\\u003c!--","a \\u0026 b"]'
    """
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
