"""A plan as a picture: a chip's memory, and the three times that bound a step."""

from pathlib import Path
from typing import TYPE_CHECKING

from t5x_lite.cli.plan_tables import memory_unit
from t5x_lite.training.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_plan(name: str, plan: Plan, picture: Path) -> None:
    """Draws a plan into a PNG file."""
    figure = plan_figure(name, plan)
    temporary = picture.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    temporary.replace(picture)


def plan_figure(name: str, plan: Plan) -> "Figure":
    """A chip's memory, and the times of a step; of a plan that does not fit the memory alone."""
    # Without pyplot: no display, no global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    memory, *times = figure.subplots(1, 2, width_ratios=(3, 2)) if plan.fits else [figure.subplots()]
    figure.suptitle(f"{name} on {plan.topology}, mesh {_mesh(plan)}, remat {plan.experiment.remat}")
    _draw_memory(memory, plan)
    for axes in times:
        _draw_times(axes, plan)
    return figure


def _mesh(plan: Plan) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items() if size > 1) or "of one device"


def _draw_memory(axes, plan: Plan) -> None:
    memory, (unit, scale), left = plan.memory, memory_unit(plan), 0.0
    hbm = plan.topology.chip.hbm_bytes / scale
    parts = {
        "parameters": memory.parameters,
        "optimizer": memory.optimizer,
        "average, teacher, batch": memory.other,
        "activations, temporaries": memory.temporaries,
        "code": memory.code,
    }
    for what, num_bytes in parts.items():
        size = num_bytes / scale
        axes.barh([""], [size], left=left, height=0.5, label=f"{what}: {size:,.2f}")
        left += size
    # Below the legend, which has the upper part.
    axes.axvline(hbm, ymax=0.6, color="black", linestyle="--", label=f"memory of a chip: {hbm:,.0f}")
    verdict = (
        f"fits, {hbm - left:,.1f} {unit} are free" if plan.fits else f"{plan.missing / scale:,.1f} {unit} are missing"
    )
    axes.set(xlabel=unit, title=f"memory of a chip: {verdict}", xlim=(0, 1.05 * max(hbm, left)), ylim=(-0.4, 1.0))
    axes.set_yticks([])
    axes.legend(loc="upper center", ncols=2, frameon=False)


def _draw_times(axes, plan: Plan) -> None:
    names = {"compute": "matrix\nproducts", "hbm": "memory", "ici": "links between\nchips"}
    for key, what in names.items():
        milliseconds = plan.rooflines[key] * 1e3
        bars = axes.bar([what], [milliseconds], color="tab:red" if key == plan.bound else "tab:gray", width=0.6)
        axes.bar_label(bars, [f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"])
    axes.set(ylabel="ms a step, at least", title=f"at most {plan.mfu:.0%} MFU, {plan.tokens_per_second:,.0f} tokens/s")
    axes.margins(y=0.12)
