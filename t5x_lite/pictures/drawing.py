"""A matplotlib figure without pyplot: no display, no global state."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from t5x_lite.pictures.output_files import check_output_path, write_atomically


class Picture(Figure):
    """A figure that a notebook shows, whether pyplot was imported or not."""

    def png(self, dpi: float = 120) -> bytes:
        """The picture as the content of a PNG file."""
        drawn = io.BytesIO()
        self.savefig(drawn, dpi=dpi, format="png")
        return drawn.getvalue()

    def save(self, path: str | Path, dpi: float = 120) -> None:
        """Writes a PNG file; `InputError` for a name that is none's, or a place that is none."""
        path = Path(path).expanduser()
        check_output_path(path, "path")
        write_atomically(path, self.png(dpi))

    def _repr_png_(self) -> bytes:
        return self.png(dpi=100)


@dataclass(frozen=True)
class Curve:
    """A figure of a run as it went."""

    run: str
    kind: str
    """`train` or `held_out`."""
    points: Sequence[tuple[float, float | None]]
    """(where on the axis, the figure); None, a figure that was not finite, leaves a gap."""


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
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if axes.get_xlim()[1] >= 1e6:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))  # 1.5 M
    axes.grid(alpha=0.3)
    many = len(axes.get_legend_handles_labels()[0]) > 8
    if many:
        picture.legend(loc="outside right upper", fontsize=8)
    else:
        axes.legend(fontsize=9)
    return picture
