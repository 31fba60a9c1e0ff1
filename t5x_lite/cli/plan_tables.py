"""A plan as tables for people, as JSON for programs, and as a picture."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.plan import Plan
from t5x_lite.planning.prices import Price, run_cost

EXPECTED = {"operations": "operations", "kernels": "kernels of attention", "exposed": "links that nothing hides"}
"""What the parts of the expected time are."""
ROOFLINES = {"compute": "matrix products", "hbm": "memory", "ici": "links between chips", "dcn": "network of slices"}
"""What bounds the time of a step; the last bounds that of several slices alone."""


def print_plan(console: Console, name: str, plan: Plan) -> None:
    """Prints what is planned, a chip's memory and, where it is enough, collectives and times."""
    experiment, topology = plan.experiment, plan.topology
    mesh = ", ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    parts = f" in {experiment.accumulation} parts" if experiment.accumulation > 1 else ""
    unit, count = plan.throughput
    amount = f", {count:,} tokens" if unit == "tokens" else ""
    shown: list[Any] = [
        f"{name} on {topology}: {_counted(topology.num_chips, 'chip')}, {_counted(topology.num_hosts, 'host')}; "
        f"mesh {mesh}; remat {experiment.remat}\n"
        f"{plan.num_params:,} parameters; a step of {experiment.batch_size:,} rows{parts}{amount}\n",
        memory_table(plan),
    ]
    if plan.fits:
        numbers = (Column(name, justify="right") for name in ("among", "count", "MB a chip", "ms"))
        collectives = Table("collective", *numbers, "largest input", box=None)
        for each in plan.cost.collectives:
            among = f"{each.group_size:,} slices" if each.network == "dcn" else f"{each.group_size:,}"
            amounts = f"{each.num_bytes / 1e6:,.1f}", f"{each.seconds * 1e3:,.2f}"
            collectives.add_row(each.kind, among, f"{each.count:,}", *amounts, each.largest)
        times = Table("a step at least", Column("ms", justify="right"), box=None)
        for name, seconds in plan.rooflines.items():
            times.add_row(f"{name}: {ROOFLINES[name]}", _milliseconds(seconds))
        compiled = plan.cost.flops * topology.num_chips
        figures = (
            f"\nmodel FLOPs {plan.model_flops:.3e} a step, compiled {compiled:.3e} "
            f"({compiled / plan.model_flops:.2f} times)\n"
            f"at most {plan.mfu:.1%} MFU and {plan.per_second:,.0f} {unit}/s, bound by {plan.bound}\n"
            f"expected {plan.expected_mfu:.1%} MFU and {plan.expected_per_second:,.0f} {unit}/s, "
            f"{plan.expected_seconds * 1e3:,.1f} ms a step"
        )
        if more := plan.cost.expected.data_round:
            figures += f"\nand {more * 1e3:,.2f} ms more for each further round of loops whose length the data decide"
        expected = Table("a step as the compiler expects it", Column("ms", justify="right"), box=None)
        for name, what in EXPECTED.items():
            what = what.replace("links", "links and network") if topology.num_slices > 1 else what
            expected.add_row(what, _milliseconds(getattr(plan.cost.expected, name)))
        shown += ["", collectives, "", times, "", expected, figures]
    for part in (*shown, f"compiled in {plan.compile_seconds:.0f} s"):
        console.print(part, highlight=False, markup=False, soft_wrap=True)


def memory_table(plan: Plan) -> Table:
    """A chip's memory, and whether it is enough."""
    unit, size = memory_unit(plan)
    table = Table("memory of a chip", Column(unit, justify="right"), box=None)
    for what, num_bytes in memory_by_use(plan).items():
        table.add_row(what, f"{num_bytes / size:,.2f}")
    verdict = "fits" if plan.fits else f"does not fit: {plan.missing / size:,.2f} {unit} are missing"
    hbm = f"{plan.topology.chip.hbm_bytes / size:,.0f}"
    table.add_row(f"together, of {hbm}: {verdict}", f"{plan.memory.total / size:,.2f}")
    return table


def memory_by_use(plan: Plan) -> dict[str, int]:
    memory = plan.memory
    return {
        "parameters": memory.parameters,
        "optimizer": memory.optimizer,
        "average, teacher, batch": memory.other,
        "activations, temporaries" if plan.fits else "all else": memory.temporaries,
        "code": memory.code,
    }


def memory_unit(plan: Plan) -> tuple[str, int]:
    """The unit of a chip's memory, and its bytes: MiB for models of less than one GiB."""
    return ("GiB", GIB) if plan.memory.total >= GIB else ("MiB", 2**20)


def ranking(plans: list[Plan]) -> Table:
    """Settings side by side, in their order."""
    # Times are in ms; a row has to fit a window of 80 columns.
    several = any(plan.topology.num_slices > 1 for plan in plans)
    last = ("ici", "dcn", "expected", "MFU") if several else ("ici", "expected", "MFU, at most")
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("GiB", "compute ms", "hbm", *last)]
    table = Table("mesh, remat", *numbers, box=None)
    for plan in plans:
        mesh = " ".join(f"{axis}={size}" for axis, size in plan.mesh.items() if size > 1) or "one device"
        figures = (
            [
                *map(_milliseconds, plan.rooflines.values()),
                _milliseconds(plan.expected_seconds),
                f"{plan.expected_mfu:.1%}" if several else f"{plan.expected_mfu:.1%}, {plan.mfu:.1%}",
            ]
            if plan.fits
            else [*[""] * (len(numbers) - 2), f"{plan.missing / GIB:,.1f} missing"]
        )
        experiment = plan.experiment
        parts = f" {experiment.accumulation} parts" if experiment.accumulation > 1 else ""
        table.add_row(f"{mesh} {experiment.remat}{parts}", f"{plan.memory.total / GIB:,.1f}", *figures)
    return table


def describe(plan: Plan) -> str:
    """What a plan found, in a line."""
    if not plan.fits:
        return f"does not fit: {plan.missing / GIB:,.1f} GiB are missing"
    size = f"{plan.memory.total / GIB:,.1f} GiB a chip"
    times = f"{_milliseconds(plan.seconds)} ms a step at least, {_milliseconds(plan.expected_seconds)} expected"
    return f"{times}, {plan.expected_mfu:.1%} MFU, {size}"


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan in seconds, bytes and operations of a chip; the model's operations and the tokens are of all chips."""
    topology, experiment = plan.topology, plan.experiment
    figures: dict[str, Any] = {
        "topology": topology.name,
        "slices": topology.num_slices,
        "chips": topology.num_chips,
        "hosts": topology.num_hosts,
        "mesh": plan.mesh,
        "remat": experiment.remat,
        "batch_size": experiment.batch_size,
        "accumulation": experiment.accumulation,
        plan.throughput[0]: plan.throughput[1],
        "parameters": plan.num_params,
        "fits": plan.fits,
        "missing_bytes": plan.missing,
        "hbm_bytes": topology.chip.hbm_bytes,
        "memory_bytes": asdict(plan.memory) | {"total": plan.memory.total},
        "model_flops": plan.model_flops,
        "compile_seconds": plan.compile_seconds,
    }
    if plan.cost is None:
        return figures
    return figures | {
        "compiled_flops": plan.cost.flops,
        "hbm_traffic_bytes": plan.cost.memory_traffic,
        "collectives": [asdict(collective) for collective in plan.cost.collectives],
        "seconds": plan.rooflines,
        "bound": plan.bound,
        "mfu": plan.mfu,
        f"{plan.throughput[0]}_per_second": plan.per_second,
        "expected_seconds": asdict(plan.cost.expected) | {"total": plan.expected_seconds},
        "expected_mfu": plan.expected_mfu,
        f"expected_{plan.throughput[0]}_per_second": plan.expected_per_second,
    }


def step_seconds(plan: Plan) -> dict[str, float]:
    """Seconds that a step takes, by what is known of it; of a plan that fits."""
    return {"at least": plan.seconds, "expected": plan.expected_seconds}


def print_costs(console: Console, plan: Plan, price: Price | None) -> None:
    """Prints the days and dollars of the config's whole run; of a plan that fits."""
    steps, chips = plan.experiment.steps, plan.topology.num_chips
    numbers = (Column(name, justify="right") for name in ("days", "chip-hours", *(("dollars",) if price else ())))
    table = Table(f"the whole run: {steps:,} steps", *numbers, box=None)
    for name, seconds in step_seconds(plan).items():
        cost = run_cost(seconds, steps, chips, price)
        table.add_row(name, *(_amount(n) for n in (cost.days, cost.chip_hours, cost.dollars) if n is not None))
    chip = plan.topology.chip.name
    remark = (
        f"at {price.dollars:,.2f} dollars of a chip for an hour ({price.what})"
        if price
        else f"no list price of {chip} is known; --price 1.2 says what a chip costs for an hour"
    )
    for part in ("", table, f"{remark}; evaluation, checkpoints and restarts come on top"):
        console.print(part, highlight=False, markup=False, soft_wrap=True)


def costs_json(plan: Plan, price: Price | None) -> dict[str, Any]:
    """The days and dollars of the config's whole run; nothing of a plan that does not fit."""
    if not plan.fits:
        return {}
    steps, chips = plan.experiment.steps, plan.topology.num_chips
    costs = {
        name.replace(" ", "_"): asdict(run_cost(seconds, steps, chips, price))
        for name, seconds in step_seconds(plan).items()
    }
    return {"run": {"steps": steps, "price": None if price is None else asdict(price)} | costs}


def _amount(number: float) -> str:
    """
    >>> _amount(23_456.7), _amount(3.21), _amount(0.0312), _amount(1e-6)
    ('23,457', '3.2', '0.03', 'under 0.01')
    """
    if number < 0.01:
        return "under 0.01"
    return f"{number:,.0f}" if number >= 100 else f"{number:,.1f}" if number >= 1 else f"{number:.2f}"


def _milliseconds(seconds: float) -> str:
    """
    >>> _milliseconds(14.3803), _milliseconds(0.00093), _milliseconds(1.23e-6)
    ('14,380.3', '0.93', '0.0012')
    """
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.1f}" if milliseconds >= 10 else f"{milliseconds:.2g}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number > 1 else ''}"


if TYPE_CHECKING:
    from t5x_lite.pictures.drawing import Picture


def draw_plan(name: str, plan: Plan) -> "Picture":
    """A chip's memory by use, and the times of a step; of a plan that does not fit the memory alone."""
    from t5x_lite.pictures.drawing import Picture, wrap_title  # here, since it loads matplotlib

    width = 10.0 if plan.fits else 6.5
    figure = Picture(figsize=(width, 3.4), layout="constrained")
    memory, *times = figure.subplots(1, 2, width_ratios=(3, 2)) if plan.fits else [figure.subplots()]
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items() if size > 1) or "of one device"
    title = f"{name} on {plan.topology}, mesh {mesh}, remat {plan.experiment.remat}"
    figure.suptitle(wrap_title(title, width - 0.5), parse_math=False)
    _draw_memory(memory, plan)
    for axes in times:
        names = {"compute": "matrix\nproducts", "hbm": "memory", "ici": "links\nbetween\nchips", "dcn": "network"}
        colors = dict.fromkeys(names, "tab:gray") | {plan.bound: "tab:red"}
        bars = [(names[key], seconds, colors[key]) for key, seconds in plan.rooflines.items()]
        for what, seconds, color in (*bars, ("expected", plan.expected_seconds, "tab:blue")):
            axes.bar_label(axes.bar([what], [seconds * 1e3], color=color, width=0.6), [_milliseconds(seconds)])
        axes.set(ylabel="ms a step, at least, and expected")
        title = f"{plan.expected_mfu:.0%} MFU expected, at most {plan.mfu:.0%}"
        axes.set_title(f"{title}; {plan.expected_per_second:,.0f} {plan.throughput[0]}/s expected", fontsize=10)
        axes.margins(y=0.12)
    return figure


def _draw_memory(axes: Any, plan: Plan) -> None:
    """A bar for each use that takes memory, and one for all, red where it is beyond what the chip has."""
    (unit, scale), total = memory_unit(plan), plan.memory.total
    hbm = plan.topology.chip.hbm_bytes / scale
    sizes = {what: num_bytes / scale for what, num_bytes in memory_by_use(plan).items() if num_bytes >= 0.002 * total}
    bars = axes.barh([*sizes], [*sizes.values()], color="tab:blue", height=0.65)
    axes.bar_label(bars, [f"{size:,.2f}" for size in sizes.values()], padding=3)
    together = total / scale
    axes.barh(["together"], [min(together, hbm)], color="tab:gray", height=0.65)
    bars = axes.barh(["together"], [max(together - hbm, 0.0)], left=min(together, hbm), color="tab:red", height=0.65)
    axes.bar_label(bars, [f"{together:,.2f}"], padding=3)
    most = together
    if together > 0.2 * hbm:  # else the line would leave the bars no room
        axes.axvline(hbm, color="black", linestyle="--", linewidth=1)
        most = max(together, hbm)
    axes.set(xlabel=unit, xlim=(0, 1.17 * most))
    axes.invert_yaxis()
    room = hbm - together if plan.fits else plan.missing / scale
    verdict = (
        f"{room:,.1f} {unit} of {hbm:,.0f} are free" if plan.fits else f"{room:,.1f} {unit} more than its {hbm:,.0f}"
    )
    axes.set_title(f"memory of a chip: {verdict}", fontsize=10)
