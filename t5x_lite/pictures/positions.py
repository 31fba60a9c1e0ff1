"""What tells a model where a token stands: vectors of positions, and T5's bias by distance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from t5x_lite.layers.positions import relative_position_buckets
from t5x_lite.pictures.drawing import Picture


@dataclass(frozen=True)
class RelativeBias:
    """T5's bias as it is learned: a number for each bucket of distances and each head."""

    buckets: Float[np.ndarray, "R H"]
    bidirectional: bool
    max_distance: int

    def by_distance(self, most: int) -> Float[np.ndarray, "H T"]:
        """The bias of each head at the distances -most .. most, key minus query; -most .. 0 for a causal stack."""
        relative = np.arange(-most, most + 1 if self.bidirectional else 1)
        found = relative_position_buckets(
            relative,
            bidirectional=self.bidirectional,
            num_buckets=len(self.buckets),
            max_distance=self.max_distance,
        )
        return self.buckets[found].T


def draw_positions(tables: Mapping[str, Float[np.ndarray, "P D"]]) -> Picture:
    """The vectors of the positions of each stack, and how alike they are: the cosine of every two."""
    picture = Picture(figsize=(10, 4.2 * len(tables)), layout="constrained")
    rows = picture.subplots(len(tables), 2, squeeze=False)
    for (name, table), (vectors, likeness) in zip(tables.items(), rows, strict=True):
        most = float(np.percentile(np.abs(table), 99.5)) or 1.0
        image = vectors.imshow(
            table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation=_filter(table.shape)
        )
        vectors.set(title=f"{name}: vectors", xlabel="feature", ylabel="position")
        picture.colorbar(image, ax=vectors)
        normed = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
        cosines = normed @ normed.T
        image = likeness.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1, interpolation=_filter(cosines.shape))
        likeness.set(title=f"{name}: cosine of two positions", xlabel="position", ylabel="position")
        picture.colorbar(image, ax=likeness)
    return picture


def draw_relative_bias(stacks: Mapping[str, RelativeBias]) -> Picture:
    """The bias of each head of each stack by distance, as lines and as a map; far distances are drawn close together,
    as the buckets are."""
    picture = Picture(figsize=(10, 4.0 * len(stacks)), layout="constrained")
    rows = picture.subplots(len(stacks), 2, squeeze=False)
    for (name, bias), (lines, grid) in zip(stacks.items(), rows, strict=True):
        most = bias.max_distance + max(2, bias.max_distance // 8)  # the end shows that all beyond is alike
        values = bias.by_distance(most)
        num_heads, distances = len(values), np.arange(-most, -most + values.shape[1])
        colors = _colors(num_heads)
        for head, of_head in enumerate(values):
            lines.plot(distances, of_head, drawstyle="steps-mid", color=colors[head], linewidth=1.2, label=str(head))
        lines.set(title=f"{name}: bias by distance", ylabel="added to the logits")
        lines.grid(alpha=0.3)
        if num_heads <= 16:
            lines.legend(title="head", loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, title_fontsize=8)
        highest = float(np.abs(values).max()) or 1.0
        edges = np.append(distances, distances[-1] + 1) - 0.5
        image = grid.pcolormesh(
            edges, np.arange(num_heads + 1) - 0.5, values, cmap="RdBu_r", vmin=-highest, vmax=highest
        )
        grid.invert_yaxis()
        grid.yaxis.get_major_locator().set_params(integer=True)
        grid.set(title=f"{name}: the same, head by head", ylabel="head")
        picture.colorbar(image, ax=grid)
        for axes in (lines, grid):
            _scale(axes, bias, most)
    return picture


def _scale(axes: Any, bias: RelativeBias, most: int) -> None:
    """Distances in proportion as far as each has a bucket of its own, logarithmic beyond."""
    exact = len(bias.buckets) // (4 if bias.bidirectional else 2)
    axes.set_xscale("symlog", linthresh=max(exact, 1), linscale=1.5)
    behind = sorted({-most, -exact, -max(exact // 2, 1)} | {-bias.max_distance // 4})
    ticks = [*behind, 0, *(-tick for tick in reversed(behind))] if bias.bidirectional else [*behind, 0]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="key minus query", xlim=(-most - 0.5, (most if bias.bidirectional else 0) + 0.5))


def _colors(count: int) -> np.ndarray:
    from matplotlib import colormaps

    return colormaps["tab10"](np.arange(count)) if count <= 10 else colormaps["viridis"](np.linspace(0, 0.95, count))


def _filter(shape: tuple[int, ...]) -> str:
    """Cells as they are, or averaged where there are more of them than pixels."""
    return "nearest" if max(shape) <= 400 else "antialiased"
