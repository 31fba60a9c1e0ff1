"""A study of scaling: curves, profiles, optima, residuals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter

from t5x_lite.pictures.drawing import Picture
from t5x_lite.scaling.study import Study


def draw_study(study: Study, budgets: Sequence[float] = ()) -> Picture:
    """Six panels: the loss over compute with its frontier, the loss over size, IsoFLOP profiles, the best size over
    compute by approach, residuals of L(N, D), and what the half of less compute predicts of the other.

    Args:
      study: of `fit_study`.
      budgets: amounts of compute up to which the laws are drawn.
    """
    picture = Picture(figsize=(14, 8), layout="constrained")
    panels = picture.subplots(2, 3).ravel()
    sizes = study.measurements.parameters
    norm = LogNorm(sizes.min(), max(sizes.max(), sizes.min() * 1.01))
    draws = (_draw_curves, _draw_sizes, _draw_profiles, _draw_optima, _draw_residuals, _draw_extrapolation)
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes, study, norm, budgets)
        axes.grid(alpha=0.3)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                if high < 10 * low:  # a log axis of less than a decade has no powers of ten to write
                    axis.set_major_locator(MaxNLocator(5))
                    axis.set_major_formatter(EngFormatter(sep=" "))
                axis.set_minor_formatter(NullFormatter())
    colors = picture.colorbar(_colors(norm), ax=panels.tolist(), shrink=0.6, aspect=30)
    colors.set_label("parameters N")
    return picture


def _colors(norm: LogNorm) -> Any:
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(norm, colormaps["viridis"])


def _color(norm: LogNorm, size: Any) -> Any:
    return colormaps["viridis"](norm(size))


def _draw_curves(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    all_of = study.measurements
    names = np.array(all_of.run)
    is_curve = len(set(all_of.run)) < len(all_of)
    for name in dict.fromkeys(all_of.run) if is_curve else ():
        curve = all_of.take(np.flatnonzero(names == name))
        axes.plot(curve.flops, curve.loss, "-", color=_color(norm, curve.parameters[0]), alpha=0.6, linewidth=1)
    ends = all_of.ends()
    axes.scatter(ends.flops, ends.loss, c=_color(norm, ends.parameters), s=14, zorder=3)
    if study.frontier is not None:
        law = study.frontier.law
        flops = np.geomspace(all_of.flops.min(), max([all_of.flops.max(), *budgets]), 50)
        axes.plot(flops, law.loss(flops, flops, flops), "--", color="black", label="L(C)")
    if study.chinchilla is not None:
        flops = np.geomspace(ends.flops.min(), max([ends.flops.max(), *budgets]), 50)
        lowest = [study.chinchilla.law.optimum(value, study.cost).loss for value in flops]
        axes.plot(flops, lowest, ":", color="crimson", label="lowest L(N, D)")
    axes.set(xscale="log", yscale="log", xlabel="compute C (FLOPs)", ylabel="loss (nats)", title="loss by compute")
    _legend(axes)


def _draw_sizes(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    ends = study.measurements.ends()
    axes.set(xscale="log", yscale="log", xlabel="tokens D", ylabel="loss (nats)", title="loss by tokens and size")
    if study.chinchilla is None:
        axes.scatter(ends.tokens, ends.loss, c=_color(norm, ends.parameters), s=14)
        return
    names = np.round(np.log(ends.parameters), 2)
    many = len(np.unique(names)) > 12
    tokens = np.geomspace(ends.tokens.min(), ends.tokens.max(), 50)
    shown = np.geomspace(ends.parameters.min(), ends.parameters.max(), 6) if many else np.exp(np.unique(names))
    for size in shown:
        line = study.chinchilla.law.loss(np.full(50, size), tokens, tokens)
        axes.plot(tokens, line, "-", color=_color(norm, size), linewidth=1)
    axes.scatter(ends.tokens, ends.loss, c=_color(norm, ends.parameters), s=14, zorder=3)
    axes.plot([], [], "-", color="gray", label="L(N, D), approach 3")
    _legend(axes)


def _draw_profiles(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    axes.set(xscale="log", xlabel="parameters N", ylabel="loss (nats)", title="approach 2: profiles of equal compute")
    if study.profiles is None:
        reason = "at no two amounts of compute\nthe best size lies between others"
        axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", color="gray")
        axes.set(xscale="linear", xticks=[], yticks=[])
        return
    for index, profile in enumerate(study.profiles.profiles):
        color = f"C{index % 10}"
        sizes = np.geomspace(profile.parameters.min(), profile.parameters.max(), 50)
        axes.plot(sizes, np.polyval(profile.parabola, np.log(sizes)), "-", color=color, linewidth=1)
        axes.plot(profile.parameters, profile.loss, ".", color=color, label=f"{profile.flops:.2g}")
        axes.plot(*profile.optimum, "*", color=color, markersize=11)
    axes.legend(fontsize=7, title="FLOPs", title_fontsize=7, ncols=2)


def _draw_optima(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    ends = study.measurements.ends()
    axes.set(xscale="log", yscale="log", xlabel="compute C (FLOPs)", ylabel="best N", title="best size by compute")
    flops = np.geomspace(ends.flops.min(), max([ends.flops.max(), *budgets]), 20)
    axes.axvspan(ends.flops.min(), ends.flops.max(), color="gray", alpha=0.1, label="trained")
    found = [study.optima(value) for value in flops]
    for index, name in enumerate(found[0]):
        low, high = np.array([one[name][1]("parameters") for one in found]).T
        axes.plot(flops, [one[name][0].parameters for one in found], color=f"C{index}", label=name)
        if np.isfinite(low).all():
            axes.fill_between(flops, low, high, color=f"C{index}", alpha=0.15)
    _legend(axes)


def _draw_residuals(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    axes.set(xscale="log", xlabel="compute C (FLOPs)", ylabel="measured over predicted - 1 (%)")
    axes.set_title("residuals of L(N, D)")
    if (fit := study.chinchilla) is None:
        return
    ends = fit.measurements
    axes.axhline(0, color="black", linewidth=0.8)
    axes.scatter(ends.flops, 100 * np.expm1(fit.residuals), c=_color(norm, ends.parameters), s=14)


def _draw_extrapolation(axes: Any, study: Study, norm: LogNorm, budgets: Sequence[float]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="predicted loss", ylabel="measured loss", title="from half the runs")
    if (half := study.extrapolation) is None:
        return
    for part, marker, label in ((half.fitted, "o", "fitted: less compute"), (half.predicted, "^", "predicted: more")):
        colors = _color(norm, part.parameters)
        axes.scatter(half.law.predict(part), part.loss, c=colors, marker=marker, s=16, label=label)
    least, most = study.measurements.ends().loss.min(), study.measurements.ends().loss.max()
    axes.plot([least, most], [least, most], color="black", linewidth=0.8)
    _legend(axes)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
