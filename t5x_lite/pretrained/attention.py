"""Where a model looks: the attention weights of every layer and head for a text, to read and to draw."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path, write_atomically
from t5x_lite.pictures.attention import Maps, attention_page, framed
from t5x_lite.pretrained.batches import Batch, Row, row_batches

if TYPE_CHECKING:
    from t5x_lite.pictures import Picture

_MOST_IN_NOTEBOOK = 2_000_000  # weights: a notebook keeps each in about three bytes


@dataclass(frozen=True)
class AttentionMap:
    """How much each token of one side looks at each of the other, in every layer and head of a stack."""

    kind: str
    """`self` of an encoder, `causal` or `prefix` of a decoder; `encoder`, `decoder` and `cross` of an encoder-decoder;
    `discriminator` and `generator` of ELECTRA's pair."""
    queries: tuple[str, ...]
    """The tokens that look."""
    keys: tuple[str, ...]
    """The tokens that are looked at."""
    weights: Float[np.ndarray, "N H L M"]
    """Each row sums to one."""

    @property
    def num_layers(self) -> int:
        return self.weights.shape[0]

    @property
    def num_heads(self) -> int:
        return self.weights.shape[1]

    def plot(self, layer: int | None = None, head: int | None = None) -> "Picture":
        """One head of one layer with its tokens; without a head all of the layer, without either all of the stack.

        Both count from 0, as in `weights[layer, head]`; of a head alone all layers are shown. Raises `InputError` for a
        layer or a head that there is not.
        """
        from t5x_lite.pictures import draw_attention, draw_attention_heads, draw_attention_layers

        self.check(layer, head)
        if layer is None and head is None:
            return draw_attention_layers(self.weights, f"{self.kind} attention")
        if layer is None:
            names = [f"layer {n}" for n in range(self.num_layers)]
            return draw_attention_heads(
                self.weights[:, head], self.queries, self.keys, names, f"{self.kind} attention, head {head}"
            )
        if head is None:
            names = [f"head {h}" for h in range(self.num_heads)]
            return draw_attention_heads(
                self.weights[layer], self.queries, self.keys, names, f"{self.kind} attention, layer {layer}"
            )
        title = f"{self.kind} attention, layer {layer}, head {head}"
        return draw_attention(self.weights[layer, head], self.queries, self.keys, title)

    def check(self, layer: int | None, head: int | None) -> None:
        """Raises `InputError` for a layer or a head that there is not."""
        for name, number, count in (("layer", layer, self.num_layers), ("head", head, self.num_heads)):
            if number is not None and not 0 <= number < count:
                raise InputError(f"{name}={number} is not one of the {self.kind} attention's; choose 0 to {count - 1}")


@dataclass(frozen=True)
class AttentionMaps:
    """All the attention of a model over one text. In a notebook it shows itself as a page to click through."""

    maps: tuple[AttentionMap, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(one.kind for one in self.maps)

    def __getitem__(self, kind: str) -> AttentionMap:
        for one in self.maps:
            if one.kind == kind:
                return one
        raise InputError(f"kind={kind!r} is not an attention of this model; choose one of {', '.join(self.kinds)}")

    def plot(self, kind: str | None = None, layer: int | None = None, head: int | None = None) -> "Picture":
        """A picture of one kind of attention, the first unless `kind` says which: see `AttentionMap.plot`."""
        return (self.maps[0] if kind is None else self[kind]).plot(layer, head)

    def html(
        self,
        path: str | Path | None = None,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> str:
        """A page that a browser opens from the disk: choose layer and head, follow a token's lines.

        It needs nothing else and loads nothing. It is written to `path` where there is one, and begins with `kind`,
        `layer` and `head`. Raises `InputError` for so many weights that a browser would not open it.
        """
        if path is not None:
            path = Path(path).expanduser()
            check_output_path(path, "path", (".html",))
        first = self.maps[0] if kind is None else self[kind]
        first.check(layer, head)
        page = attention_page(
            self._by_kind,
            kind=first.kind,
            layer=layer or 0,
            head=head or 0,
        )
        if path is not None:
            write_atomically(path, page.encode())
        return page

    @property
    def _by_kind(self) -> Maps:
        return {one.kind: (one.weights, one.queries, one.keys) for one in self.maps}

    def _repr_html_(self) -> str:
        number = sum(one.weights.size for one in self.maps)
        if number > _MOST_IN_NOTEBOOK:
            return (
                f"<p>{number:,} attention weights are too many to keep in a notebook: write them to a page with "
                "<code>.html(&quot;page.html&quot;)</code>, or draw some with <code>.plot(kind, layer, head)</code>"
            )
        return framed(self._by_kind)


@partial(jax.jit, static_argnums=0)
def sown_weights(
    module: nn.Module, params: Any, *ids: Int[Array, "1 _"], inputs_valid: Bool[Array, "1 _"]
) -> dict[str, Any]:
    """The attention weights [N 1 H L M] of all stacks, as the layers sow them: `self` and, of a decoder, `cross`."""
    _, sown = module.apply({"params": params}, *ids, inputs_valid=inputs_valid, mutable=["intermediates"])
    return sown["intermediates"]


def self_weights(stack: dict[str, Any], call: int = -1) -> Float[Array, "N 1 H L L"]:
    """The self-attention that a stack sowed when it ran last, or when it ran for the `call`-th time."""
    return stack["layers"]["self_attention"]["weights"][call]


def cross_weights(stack: dict[str, Any]) -> Float[Array, "N 1 H L M"]:
    """The attention of a decoder to what the encoder gave."""
    return stack["layers"]["cross_attention"]["weights"][-1]


def make_map(
    kind: str, queries: tuple[str, ...], keys: tuple[str, ...], weights: Float[Array, "N 1 H L M"]
) -> AttentionMap:
    """A map of the tokens that there are; behind them `weights` has padding."""
    return AttentionMap(kind, queries, keys, np.asarray(weights)[:, 0, :, : len(queries), : len(keys)])


def padded_row(row: Row, pad_id: int, longest: int | None) -> Batch:
    """One row, padded behind so that few lengths are compiled, to no more than `longest`."""
    return next(batch for _, batch in row_batches([row], pad_id=pad_id, longest=longest))
