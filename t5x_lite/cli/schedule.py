"""Pictures of a learning rate over a run: in the terminal, and as a file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from t5x_lite.pictures.places import check_place
from t5x_lite.training.schedules import Schedule

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST_STEPS = 1 << 20


def rates(schedule: Schedule, steps: int) -> tuple[Int[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """(steps, learning rates) of the updates 1 to `steps`; of very long runs a million of them, evenly spread."""
    asked = np.unique(np.linspace(1, steps, min(steps, _MOST_STEPS)).round().astype(np.int32))
    of_each = jax.jit(jax.vmap(lambda step: jnp.asarray(schedule.learning_rate(step), jnp.float32)))
    return asked, np.asarray(of_each(asked))


def draw(schedule: Schedule, steps: int, width: int = 60, height: int = 6) -> str:
    """The learning rate as bars, `width` characters for all steps; a bar is the highest rate in its stretch.

    >>> from t5x_lite.training.schedules import LinearDecay
    >>> print(draw(LinearDecay(1e-3, warmup_steps=4, total_steps=13), 12, width=12, height=2))
    learning rate: 1.00e-03 at most, at step 4; 1.11e-04 at step 12
    1.0e-03 |  ▄█▆▄▃▁    |
            |▄███████▇▅▄▂|
             1         12
    """
    asked, values = rates(schedule, steps)
    highest = np.zeros(min(width, steps))
    np.maximum.at(highest, (asked - 1).astype(np.int64) * len(highest) // steps, values)
    peak = values.max()
    eighths = np.round(8 * height * highest / max(peak, 1e-30)).astype(int)
    label, last = f"{peak:.1e}", f"{steps:,}"
    lines = [
        f"learning rate: {peak:.2e} at most, at step {asked[values.argmax()]:,}; {values[-1]:.2e} at step {steps:,}"
    ]
    for row in reversed(range(height)):
        bars = "".join(_BLOCKS[min(max(bar - 8 * row, 0), 8)] for bar in eighths)
        lines.append(f"{label if row == height - 1 else '':>{len(label)}} |{bars}|")
    axis = "1" + last.rjust(len(highest) - 1) if len(highest) > len(last) + 1 else f"1 to {last}"
    lines.append(" " * (len(label) + 2) + axis)
    return "\n".join(lines)


def save(schedule: Schedule, steps: int, picture: Path) -> None:
    """Draws the learning rate over the steps into a PNG file; `InputError` where there is no place for one."""
    # Without pyplot: no display, no global state.
    from matplotlib.figure import Figure

    check_place(picture, "schedule")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*rates(schedule, steps))
    axes.set(xlabel="step", ylabel="learning rate", title=type(schedule).__name__)
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.3)
    temporary = picture.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    temporary.replace(picture)
