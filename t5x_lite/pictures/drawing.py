"""Pictures of arrays: learning curves, attention weights, positions, each a matplotlib figure without pyplot."""

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter

from t5x_lite.files import check_output_path, write_atomically
from t5x_lite.layers.positions import relative_position_buckets

_FALLBACKS = (
    *("DejaVu Sans", "Noto Sans"),
    # Chinese, Japanese, Korean
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK TC", "Noto Sans CJK KR", "Source Han Sans", "Droid Sans"),
    *("Noto Sans JP", "Noto Sans SC", "Noto Sans KR", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "IPAexGothic"),
    *("Hiragino Sans", "PingFang SC", "PingFang HK", "Heiti TC", "Apple SD Gothic Neo"),
    *("Yu Gothic", "Microsoft YaHei", "Microsoft JhengHei", "Malgun Gothic", "MS Gothic", "SimHei"),
    # Arabic, Hebrew, India, Thailand, ...
    *("Noto Sans Arabic", "Noto Naskh Arabic", "Geeza Pro", "Noto Sans Hebrew", "Noto Sans Armenian"),
    *("Noto Sans Georgian", "Noto Sans Ethiopic", "Noto Sans Devanagari", "Lohit Devanagari", "Kohinoor Devanagari"),
    *("Nirmala UI", "Mangal", "Noto Sans Bengali", "Noto Sans Gujarati", "Noto Sans Gurmukhi", "Noto Sans Kannada"),
    *("Noto Sans Malayalam", "Noto Sans Oriya", "Noto Sans Sinhala", "Noto Sans Tamil", "Noto Sans Telugu"),
    *("Noto Sans Thai", "Leelawadee UI", "Noto Sans Lao", "Noto Sans Khmer", "Noto Sans Myanmar", "Noto Sans Tibetan"),
    # Signs and emoji; matplotlib draws none that are in colour.
    *("Noto Sans Symbols", "Noto Sans Symbols2", "Noto Sans Math", "Noto Emoji", "Symbola", "Segoe UI Symbol"),
    *("Segoe UI Emoji", "Apple Symbols", "Arial Unicode MS", "Unifont"),
)


def use_fallback_fonts(figure: Figure) -> None:
    """Lets each text that is not plain ASCII take characters that its font lacks from others that are installed.

    Fonts that are not installed are left out, since matplotlib logs a warning for each.
    """
    installed = {font.name for font in fontManager.ttflist}
    fallbacks = [family for family in _FALLBACKS if family in installed]
    for text in figure.findobj(Text):
        if not text.get_text().isascii():
            families = text.get_fontfamily()
            text.set_fontfamily([*families, *(family for family in fallbacks if family not in families)])


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        warnings.filterwarnings("ignore", "Matplotlib currently does not support", UserWarning)
        yield


def text_width(text: str, **style: Any) -> float:
    """The width of a text in inches, with fallback fonts; `style` is that of `Figure.text`."""
    figure = Figure(dpi=100)
    drawn = figure.text(0, 0, text, **style)
    use_fallback_fonts(figure)
    with _without_glyph_warnings():
        return drawn.get_window_extent(RendererAgg(1, 1, figure.dpi)).width / figure.dpi


class Picture(Figure):
    """A figure that a notebook shows, whether pyplot was imported or not."""

    def draw(self, renderer: Any) -> None:
        """Draws the figure with fallback fonts; a character that no font has is drawn as a box."""
        use_fallback_fonts(self)
        with _without_glyph_warnings():
            super().draw(renderer)

    colors: int | None = None
    """How many colors its PNG files have, which makes those of photographs small; None for all."""

    def png(self, dpi: float = 120) -> bytes:
        """The picture as the content of a PNG file."""
        drawn = io.BytesIO()
        self.savefig(drawn, dpi=dpi, format="png")
        if self.colors is None:
            return drawn.getvalue()
        from PIL import Image

        smaller = io.BytesIO()
        # Without k-means a color is that of a box of Pillow's, and black text may be purple.
        Image.open(drawn).convert("RGB").quantize(self.colors, kmeans=1).save(smaller, "PNG", optimize=True)
        return smaller.getvalue()

    def save(self, path: str | Path, dpi: float = 120) -> None:
        """Writes a PNG file; `InputError` for a name that does not end in .png, or a folder that is missing."""
        path = Path(path).expanduser()
        check_output_path(path, "path")
        write_atomically(path, self.png(dpi))

    def _repr_png_(self) -> bytes:
        return self.png(dpi=100)


@dataclass(frozen=True)
class Curve:
    """A figure of a run over its steps."""

    run: str
    kind: str
    """`train` or `held_out`."""
    points: Sequence[tuple[float, float | None]]
    """(position on the axis, the figure); None, a figure that was not finite, leaves a gap."""


def draw_curves(
    curves: Sequence[Curve], *, xlabel: str, ylabel: str, baselines: Mapping[str, float] | None = None, title: str = ""
) -> Picture:
    """Each run has a colour; its train figures are a thin line, its held-out ones a line with dots.

    `baselines` are figures to beat, as dotted lines.
    """
    picture = Picture(figsize=(8, 4.5), layout="constrained")
    axes = picture.subplots()
    runs = list(dict.fromkeys(curve.run for curve in curves))
    for curve in curves:
        points = [(x, float("nan") if y is None else y) for x, y in curve.points]
        held_out = curve.kind == "held_out"
        kind = curve.kind.replace("_", "-")
        axes.plot(
            *zip(*points, strict=True),
            "o-" if held_out else ".-" if len(points) < 3 else "-",
            color=f"C{runs.index(curve.run) % 10}",
            alpha=1.0 if held_out else 0.55,
            linewidth=1.8 if held_out else 1.2,
            markersize=4,
            label=f"{curve.run}, {kind}" if len(runs) > 1 else kind,
        )
    for name, value in (baselines or {}).items():
        axes.axhline(value, linestyle=":", color="gray", label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(wrap_title(title, 6.5), parse_math=False)
    if axes.get_xlim()[1] >= 1e6:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))  # 1.5 M
    axes.grid(alpha=0.3)
    if len(axes.get_legend_handles_labels()[0]) > 8:
        legend = picture.legend(loc="outside right upper", fontsize=8)
    else:
        legend = axes.legend(fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return picture


_MOST_CELLS = 64  # tokens up to which each has its own label, and 40 where several heads share the picture
_LONGEST = 18  # characters of a label


def draw_attention(
    weights: Float[np.ndarray, "L M"], queries: Sequence[str], keys: Sequence[str], title: str = ""
) -> Picture:
    """One head: a row for each query, a column for each key, dark where the query looks."""
    width, height = (max(2.4, 0.24 * min(len(side), _MOST_CELLS)) for side in (keys, queries))
    label = 0.085 * max(len(_short(token)) for token in (*queries, *keys))
    picture = Picture(figsize=(width + label + 1.1, height + label + 0.7), layout="constrained")
    axes = picture.subplots()
    image = _show(axes, weights)
    _label(axes, queries, keys)
    axes.set(ylabel="looks", xlabel="at")
    axes.set_title(wrap_title(title, width + label), parse_math=False)
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
    labelled = max(length, memory_length) <= 40
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
    picture.suptitle(wrap_title(title, picture.get_figwidth() - 0.4), parse_math=False)
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
    picture.suptitle(wrap_title(title, picture.get_figwidth() - 0.4), parse_math=False)
    return picture


def wrap_title(title: str, inches: float) -> str:
    """A title in lines that fit a width; a character is a tenth of an inch wide."""
    return textwrap.fill(title, max(int(10 * inches), 24))


def _show(axes: Any, weights: Float[np.ndarray, "L M"]) -> Any:
    norm = PowerNorm(0.5, vmin=0.0, vmax=1.0)  # the square root, since in long texts all weights are small
    return axes.imshow(weights, cmap="Blues", norm=norm, aspect="auto", interpolation=_filter(weights, _MOST_CELLS))


def _label(axes: Any, queries: Sequence[str], keys: Sequence[str], size: float = 8.0) -> None:
    """Tokens beside the rows and below the columns; of long texts every second one, third one, ..."""
    for side, tokens in ((axes.yaxis, queries), (axes.xaxis, keys)):
        labelled = range(0, len(tokens), -(-len(tokens) // _MOST_CELLS))
        # parse_math: a token with two dollars is not a formula.
        side.set_ticks(labelled, [_short(tokens[index]) for index in labelled], fontsize=size, parse_math=False)
    for text in axes.get_xticklabels():
        text.set(rotation=90)
    axes.tick_params(length=2, pad=2)


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…"


@dataclass(frozen=True)
class RelativeBias:
    """T5's bias as it is learned: a number for each bucket of distances and each head."""

    buckets: Float[np.ndarray, "R H"]
    bidirectional: bool
    max_distance: int

    def by_distance(self, most: int) -> Float[np.ndarray, "H T"]:
        """The bias of each head at the distances -most .. most, key minus query; -most .. 0 for a causal stack."""
        relative = np.arange(-most, most + 1 if self.bidirectional else 1)
        options = {"num_buckets": len(self.buckets), "max_distance": self.max_distance}
        return self.buckets[relative_position_buckets(relative, bidirectional=self.bidirectional, **options)].T


def draw_positions(tables: Mapping[str, Float[np.ndarray, "P D"]], title: str = "") -> Picture:
    """The vectors of the positions of each stack, and how alike they are: the cosine of every two."""
    picture = Picture(figsize=(10, 0.3 + 4.2 * len(tables)), layout="constrained")
    picture.suptitle(wrap_title(title, 9), parse_math=False)
    rows = picture.subplots(len(tables), 2, squeeze=False)
    for (name, table), (vectors, likeness) in zip(tables.items(), rows, strict=True):
        most = float(np.percentile(np.abs(table), 99.5)) or 1.0
        image = vectors.imshow(
            table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation=_filter(table, 400)
        )
        vectors.set(title=f"{name}: vectors", xlabel="feature", ylabel="position")
        picture.colorbar(image, ax=vectors)
        normed = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
        cosines = normed @ normed.T
        image = likeness.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1, interpolation=_filter(cosines, 400))
        likeness.set(title=f"{name}: cosine of two positions", xlabel="position", ylabel="position")
        picture.colorbar(image, ax=likeness)
        for axis in (vectors.yaxis, likeness.xaxis, likeness.yaxis):
            axis.get_major_locator().set_params(integer=True)
    return picture


def draw_relative_bias(stacks: Mapping[str, RelativeBias], title: str = "") -> Picture:
    """The bias of each head of each stack by distance, as lines and as a map; far distances are drawn close together,
    as the buckets are."""
    picture = Picture(figsize=(10, 0.3 + 4.0 * len(stacks)), layout="constrained")
    picture.suptitle(wrap_title(title, 9), parse_math=False)
    rows = picture.subplots(len(stacks), 2, squeeze=False)
    for (name, bias), (lines, grid) in zip(stacks.items(), rows, strict=True):
        most = bias.max_distance + max(2, bias.max_distance // 8)  # the end shows that all beyond is alike
        values = bias.by_distance(most)
        num_heads, distances = len(values), np.arange(-most, -most + values.shape[1])
        shades = np.linspace(0, 0.95, num_heads)
        colors = colormaps["tab10"](np.arange(num_heads)) if num_heads <= 10 else colormaps["viridis"](shades)
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
        # Distances in proportion as far as each has a bucket, logarithmic beyond.
        exact = len(bias.buckets) // (4 if bias.bidirectional else 2)
        ticks = sorted({-most, -exact, -max(exact // 2, 1), -bias.max_distance // 4, 0})
        ticks += [-tick for tick in reversed(ticks[:-1])] if bias.bidirectional else []
        for axes in (lines, grid):
            axes.set_xscale("symlog", linthresh=max(exact, 1), linscale=1.5)
            axes.set_xticks(ticks, list(map(str, ticks)))
            axes.set_xticks([], minor=True)
            axes.set(xlabel="key minus query", xlim=(-most - 0.5, (most if bias.bidirectional else 0) + 0.5))
    return picture


def _filter(values: Float[np.ndarray, "L M"], most: int) -> str:
    """Cells as they are, or averaged where there are more than `most` and so perhaps more than pixels."""
    return "nearest" if max(values.shape) <= most else "antialiased"


_GRID = 7.5  # inches that the pictures of a grid are wide, all together


def draw_images(images: Mapping[str, UInt8[np.ndarray, "H W C"]], title: str = "") -> Picture:
    """Pictures of one size side by side, each under its name."""
    height, width, _ = next(iter(images.values())).shape
    scale = min(3.0 / width, 4.0 / height)
    picture = Picture(figsize=(len(images) * (scale * width + 0.1), scale * height + 0.7), layout="constrained")
    for axes, (name, image) in zip(picture.subplots(1, len(images), squeeze=False)[0], images.items(), strict=True):
        _show_image(axes, image)
        axes.set_title(name, fontsize=10)
    picture.suptitle(wrap_title(title, picture.get_figwidth()), fontsize=10, parse_math=False)
    return picture


class Tile(NamedTuple):
    """A picture of a grid."""

    image: UInt8[np.ndarray, "H W C"]
    caption: str = ""
    """Of lines below it."""
    size: tuple[float, float] | None = None
    """The height and width that its proportions are, where those of `image` are not."""
    boxes: tuple["LabeledBox", ...] = ()
    """In pixels of `image`."""


def draw_image_grid(rows: Sequence[Sequence[Tile]], columns: Sequence[str], title: str = "") -> Picture:
    """Rows of pictures, as many in each, under the names of the columns; with 64 colors."""
    shapes = [tile.size or tile.image.shape[:2] for tiles in rows for tile in tiles]
    # In inches, as all sizes here. Pictures of other proportions are centered in their boxes.
    width = min(1.5, _GRID / len(columns))
    height = width * min(max(height / width for height, width in shapes), 1.5)
    below = [0.05 + 0.14 * max(tile.caption.count("\n") + bool(tile.caption) for tile in tiles) for tiles in rows]
    across, down = len(columns) * (width + 0.08) + 0.08, len(rows) * (height + 0.06) + sum(below) + 0.6
    picture = Picture(figsize=(across, down))
    picture.colors = 256
    colors = _group_colors([box for tiles in rows for tile in tiles for box in tile.boxes])
    title = textwrap.shorten(title, int(11 * across), placeholder=" …")
    picture.text(0.5, 1 - 0.2 / down, title, ha="center", va="center", fontsize=10, parse_math=False)
    top = 0.56
    for tiles, caption_height in zip(rows, below, strict=True):
        for number, tile in enumerate(tiles):
            left = 0.08 + number * (width + 0.08)
            axes = picture.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))
            _show_image(axes, tile.image)
            _add_boxes(axes, tile.image, tile.boxes, colors, line_width=0.8)
            if tile.size:
                # Of a pixel, the height by the width.
                axes.set_aspect(tile.size[0] / tile.image.shape[0] * tile.image.shape[1] / tile.size[1])
            center = (left + width / 2) / across
            if tiles is rows[0]:
                picture.text(center, 1 - 0.45 / down, columns[number], ha="center", va="center", fontsize=9)
            beneath = 1 - (top + height + 0.04) / down
            picture.text(center, beneath, tile.caption, ha="center", va="top", fontsize=7.5, parse_math=False)
        top += height + 0.06 + caption_height
    return picture


def draw_rollout(image: UInt8[np.ndarray, "H W C"], weights: Float[np.ndarray, "h w"], title: str = "") -> Picture:
    """A picture, and beside it the weights of its patches laid over it, bright where they are large."""
    height, width, _ = image.shape
    scale = min(3.6 / width, 4.0 / height)
    picture = Picture(figsize=(2 * (scale * width + 0.1) + 0.9, scale * height + 0.7), layout="constrained")
    original, laid_over = picture.subplots(1, 2)
    _show_image(original, image)
    original.set_title("original", fontsize=10)
    _show_image(laid_over, np.repeat(image.mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2))
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    # Cells as they are: a smooth map would show more than there is.
    shown = laid_over.imshow(weights, cmap="inferno", alpha=0.6, vmin=0, extent=extent, interpolation="nearest")
    laid_over.set_title("attention rollout", fontsize=10)
    picture.colorbar(shown, ax=laid_over, label="weight", shrink=0.8)
    picture.suptitle(wrap_title(title, picture.get_figwidth()), fontsize=10, parse_math=False)
    return picture


class LabeledBox(NamedTuple):
    """A box to draw."""

    box: tuple[float, float, float, float]
    """Left, top, right, bottom, in pixels."""
    caption: str = ""
    group: str = ""
    """Boxes of one group have one color."""


def draw_boxes(image: UInt8[np.ndarray, "H W C"], boxes: Sequence[LabeledBox], title: str = "") -> Picture:
    """A picture with boxes and what they are."""
    height, width, _ = image.shape
    scale = min(8.0 / width, 6.0 / height)
    picture = Picture(figsize=(max(scale * width, 2.0) + 0.2, scale * height + 0.6), layout="constrained")
    axes = picture.subplots()
    _show_image(axes, image)
    _add_boxes(axes, image, boxes, _group_colors(boxes))
    picture.suptitle(wrap_title(title, picture.get_figwidth()), fontsize=10, parse_math=False)
    return picture


_MOST_OBJECTS = 12


def draw_box_attention(
    image: UInt8[np.ndarray, "H W C"], boxes: Sequence[LabeledBox], weights: Float[np.ndarray, "N h w"], title: str = ""
) -> Picture:
    """A picture for each box, the first twelve, with the weights that belong to it laid over it, bright where they are
    large."""
    height, width, _ = image.shape
    boxes, colors = boxes[:_MOST_OBJECTS], _group_colors(boxes)
    columns = min(len(boxes), 4)
    rows = -(-len(boxes) // columns)
    across = 2.4
    down = across * min(height / width, 2.0)
    picture = Picture(figsize=(columns * (across + 0.1), rows * (down + 0.3) + 0.5), layout="constrained")
    table = picture.subplots(rows, columns, squeeze=False).ravel()
    grey = np.repeat(image.mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2)
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    for axes, box, of_box in zip(table, boxes, weights, strict=False):
        _show_image(axes, grey)
        axes.imshow(of_box, cmap="inferno", alpha=0.6, vmin=0, extent=extent, interpolation="nearest")
        _add_boxes(axes, image, [box._replace(caption="")], colors)
        axes.set_title(box.caption, fontsize=9, parse_math=False)
    for axes in table[len(boxes) :]:
        axes.set_axis_off()
    picture.suptitle(wrap_title(title, picture.get_figwidth()), fontsize=10, parse_math=False)
    return picture


def _group_colors(boxes: Sequence[LabeledBox]) -> dict[str, Any]:
    groups = dict.fromkeys(box.group for box in boxes)
    return {group: colormaps["tab10"](number % 10) for number, group in enumerate(groups)}


def _add_boxes(
    axes: Any,
    image: UInt8[np.ndarray, "H W C"],
    boxes: Sequence[LabeledBox],
    colors: Mapping[str, Any],
    line_width: float = 1.5,
) -> None:
    height, width, _ = image.shape
    # Lines are at the sides of pixels, whose centers are whole numbers.
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    for (left, top, right, bottom), caption, group in reversed(boxes):
        color = colors[group]
        axes.add_patch(
            Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, color=color, lw=line_width)
        )
        if caption:
            place = {"color": "white", "fontsize": 7, "va": "bottom", "clip_on": True, "parse_math": False}
            x, y = min(max(left, 0.0), width - 1.0), min(max(top, 0.05 * height), height - 1.0)
            axes.text(x, y, caption, bbox={"facecolor": color, "edgecolor": "none", "pad": 1.0}, **place)


def _show_image(axes: Any, image: UInt8[np.ndarray, "H W C"]) -> None:
    grey = {"cmap": "gray", "vmin": 0, "vmax": 255} if image.shape[2] == 1 else {}
    smooth = "nearest" if max(image.shape) <= 200 else "antialiased"
    axes.imshow(image[..., 0] if grey else image, interpolation=smooth, **grey)
    axes.set_axis_off()
