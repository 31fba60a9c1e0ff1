"""`inspect`: parameters, learning rate, batch shapes and real rows of a config."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from t5x_lite.cli.arguments import (
    DataOptions,
    ExperimentOptions,
    format_examples,
    load_config,
    parse,
    subcommand,
    take_config,
)
from t5x_lite.cli.image_tables import image_tables
from t5x_lite.cli.rows import describe_row, legend
from t5x_lite.columns import COLUMNS
from t5x_lite.data import Images, TokenStore
from t5x_lite.evaluation.predictions import held_out_features
from t5x_lite.files import check_output_path
from t5x_lite.models import abstract_params, num_params
from t5x_lite.optim.masks import rate_factors
from t5x_lite.optim.schedules import Schedule
from t5x_lite.parallel import logical_axes
from t5x_lite.runs.preparation import prepare
from t5x_lite.runs.records import print_line
from t5x_lite.training.experiment import Experiment

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST_STEPS = 1 << 20


def rates(schedule: Schedule, steps: int) -> tuple[Int[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """(steps, learning rates) of the updates 1 to `steps`; of very long runs a million of them, evenly spaced."""
    sampled = np.unique(np.linspace(1, steps, min(steps, _MOST_STEPS)).round().astype(np.int32))
    of_each = jax.jit(jax.vmap(lambda step: jnp.asarray(schedule.learning_rate(step), jnp.float32)))
    return sampled, np.asarray(of_each(sampled))


def draw(schedule: Schedule, steps: int, width: int = 60, height: int = 6) -> str:
    """The learning rate as bars, `width` characters for all steps; a bar is the highest rate in its stretch.

    >>> from t5x_lite.optim.schedules import LinearDecay
    >>> print(draw(LinearDecay(1e-3, warmup_steps=4, total_steps=13), 12, width=12, height=2))
    learning rate: 1.00e-03 at most, at step 4; 1.11e-04 at step 12
    1.0e-03 |  ▄█▆▄▃▁    |
            |▄███████▇▅▄▂|
             1         12
    """
    sampled, values = rates(schedule, steps)
    highest = np.zeros(min(width, steps))
    np.maximum.at(highest, (sampled - 1).astype(np.int64) * len(highest) // steps, values)
    peak = values.max()
    eighths = np.round(8 * height * highest / max(peak, 1e-30)).astype(int)
    label, last = f"{peak:.1e}", f"{steps:,}"
    lines = [
        f"learning rate: {peak:.2e} at most, at step {sampled[values.argmax()]:,}; {values[-1]:.2e} at step {steps:,}"
    ]
    for row in reversed(range(height)):
        bars = "".join(_BLOCKS[min(max(bar - 8 * row, 0), 8)] for bar in eighths)
        lines.append(f"{label if row == height - 1 else '':>{len(label)}} |{bars}|")
    axis = "1" + last.rjust(len(highest) - 1) if len(highest) > len(last) + 1 else f"1 to {last}"
    lines.append(" " * (len(label) + 2) + axis)
    return "\n".join(lines)


def save(schedule: Schedule, steps: int, picture: Path) -> None:
    """Draws the learning rate over the steps into a PNG file."""
    from t5x_lite.pictures.drawing import Picture  # here, since it loads matplotlib

    check_output_path(picture, "schedule")
    figure = Picture(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*rates(schedule, steps))
    axes.set(xlabel="step", ylabel="learning rate", title=type(schedule).__name__)
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.3)
    figure.save(picture)


PROG = "t5x-lite inspect"
EXAMPLES = (
    "inspect configs/bert_tiny.py --schedule rate.png --corruption rows.png",
    "inspect configs/t5_tiny.py --text sample_data/novel.txt --objective.noise-density 0.3",
    "inspect configs/vit_tiny.py --picture rows.png",
)
USAGE = f"""usage: {PROG} CONFIG [options]

Prints the parameters with shapes and logical axes, the learning rate over the run, how much text there is and how much
of its rows is padding (of pictures the classes and the sizes), the shapes of a batch, and three real rows as the model
sees them. Tokenizes the text first if that has not been done.

  --schedule FILE.png    draw the learning rate into a picture too
  --corruption FILE.png  draw the rows, before and after, with the masks of the attention
  --picture FILE.png     draw rows of pictures, each beside some augmented copies, with their classes

and the options of train, without --workdir: "{PROG} CONFIG --help" lists them.

{format_examples(EXAMPLES)}"""


@dataclass(frozen=True)
class Inspect(DataOptions):
    """Show what the config describes, with these fields of the experiment changed."""

    experiment: ExperimentOptions
    schedule: str = ""
    """A PNG file to draw the learning rate into."""
    corruption: str = ""
    """A PNG file to draw the three rows into, before and after, and the masks of the attention."""
    picture: str = ""
    """A PNG file to draw rows of pictures into, each beside some augmented copies, with their classes."""


@subcommand
def inspect(arguments: list[str]) -> None:
    """inspect CONFIG [options]: parameters, learning rate, batch shapes, and three real rows"""
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Inspect(load_config(config))
    command = parse(Inspect, arguments, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
    experiment = command.apply(command.experiment)
    if command.corruption:
        check_output_path(Path(command.corruption).expanduser(), "corruption")
    if command.picture:
        # Here, since it loads matplotlib.
        from t5x_lite.pictures.augmentation import check_augments, draw_augmentation

        check_output_path(Path(command.picture).expanduser(), "picture")
        check_augments(experiment.objective)
    console = Console()
    console.print(parameter_table(experiment))
    print_line(console, f"{num_params(experiment.model):,} parameters\n")
    schedule = experiment.optimizer.schedule
    print_line(console, draw(schedule, experiment.steps) + "\n")
    if command.schedule:
        save(schedule, experiment.steps, Path(command.schedule).expanduser())
    prepared = prepare(experiment, console)
    with prepared.store as store:
        features = held_out_features(prepared.objective, store.rows_to_show, 3)
        rows = [store.rows_to_show[number] for number in range(len(next(iter(features.values()))))]
        labels = store.classes or experiment.data.source.classes or ()
        if command.picture:
            objective, model = prepared.objective, experiment.model
            options = {"model": model, "tokenizer": store.tokenizer, "seed": experiment.seed}
            picture = draw_augmentation(objective, store.rows_to_show, labels, **options)
            picture.save(Path(command.picture).expanduser())
    for table in image_tables(store) if isinstance(store.layout, Images) else [store_table(store)]:
        console.print(table, "")
    console.print(batch_table(experiment, features))
    if "positions" in features:
        console.print("\n", legend(), sep="")
    for number, row in enumerate(rows):
        one = {name: values[number] for name, values in features.items()}
        for name, text in describe_row(store.tokenizer, row, one, store.layout, labels):
            title = Text.assemble((f"\nrow {number}", "bold"), f"  {name}") if name == "row" else Text(name, "bold")
            console.print(title)
            console.print(text, width=min(console.width, COLUMNS))
    if command.corruption:
        from t5x_lite.pictures.corruption import draw_corruption  # here, since it loads matplotlib

        picture = draw_corruption(prepared.objective, store.tokenizer, rows, model=experiment.model)
        picture.save(Path(command.corruption).expanduser())


def parameter_table(experiment: Experiment) -> Table:
    """Every parameter in the tree of its modules: shape, logical axes, count; and the factor of its learning rate where
    not all are 1."""
    boxed, optimizer = abstract_params(experiment.model), experiment.effective_optimizer
    axes, params = logical_axes(boxed), nn.unbox(boxed)
    trained, decay = optimizer.trained(axes), optimizer.layerwise_decay
    of_layers = (decay, experiment.model.below_layers, optimizer.layerwise_offset)
    found = rate_factors(axes, params, *of_layers, optimizer.rates)
    factors = traverse_util.flatten_dict(found, sep="/")

    def format_factors(path: str) -> str:
        first = trained.frozen_layers_of(path)
        if first is None:
            return "frozen"
        low, high = np.ravel(factors[path])[first:].min(), np.ravel(factors[path])[first:].max()
        span = f"x {low:.3g}" if low == high else f"x {low:.3g} to x {high:.3g}"
        return f"{first} frozen, {span}" if first else span

    has_rates = not trained.is_whole or decay != 1.0 or bool(optimizer.rates)
    numbers = ("count", "learning rate") if has_rates else ("count",)
    columns = (Column(name, justify="right") for name in numbers)
    # The axes, of several words, are what wraps.
    whole = (Column(name, no_wrap=True, overflow="fold") for name in ("parameter", "shape"))
    table = Table(*whole, Column("logical axes", overflow="fold"), *columns, box=None)
    named_axes = jax.tree.leaves(axes, is_leaf=lambda node: isinstance(node, tuple))
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): (leaf, names)
        for (path, leaf), names in zip(jax.tree_util.tree_leaves_with_path(params), named_axes, strict=True)
    }
    for line, name in tree_lines(list(leaves)):
        if name is None:
            table.add_row(Text(line))
            continue
        leaf, names = leaves[name]
        shape, logical = " x ".join(map(str, leaf.shape)), ", ".join(axis or "-" for axis in names)
        table.add_row(Text(line), shape, logical, f"{leaf.size:,}", *([format_factors(name)] if has_rates else []))
    return table


def tree_lines(paths: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Paths as an indented tree: (line, path), the path None for a line that only has others below it.

    >>> paths = ["encoder/layers/key/kernel", "encoder/layers/query/kernel", "encoder/norm/scale", "output/kernel"]
    >>> print(*(line for line, _ in tree_lines(paths)), sep="\\n")
    encoder
      layers
        key/kernel
        query/kernel
      norm/scale
    output/kernel
    """

    def lines(paths: list[tuple[tuple[str, ...], str]], indent: str) -> Iterator[tuple[str, str | None]]:
        for first, group in groupby(paths, key=lambda path: path[0][0]):
            below = [(parts[1:], path) for parts, path in group]
            shared = first
            while len({parts[:1] for parts, _ in below}) == 1 and below[0][0]:
                shared = f"{shared}/{below[0][0][0]}"
                below = [(parts[1:], path) for parts, path in below]
            if len(below) == 1:
                yield indent + shared, below[0][1]
            else:
                yield indent + shared, None
                yield from lines(below, indent + "  ")

    return lines([(tuple(path.split("/")), path) for path in paths], "")


def store_table(store: TokenStore) -> Table:
    """Size and padding of the splits, as far as the store has counted them."""
    what = store.layout.unit_name
    columns = [what, "tokens", "rows", "padding", *([f"{what} a row"] if what == "pairs" else [])]
    table = Table("split", *(Column(name, justify="right") for name in columns), box=None)
    for split, figures in store.figures.items():
        used = figures.documents - figures.skipped_documents
        cells = [f"{figures.documents:,}", f"{figures.tokens:,}", f"{figures.rows:,}", f"{figures.padding:.1%}"]
        cells += [f"{used / figures.rows:.2f}"] if what == "pairs" else []
        table.add_row(split.replace("_", "-"), *cells)
    return table


def batch_table(experiment: Experiment, features: dict) -> Table:
    table = Table("batch", "shape", "type", box=None)
    arrays = {f"row: {name}": (column.shape, column.dtype) for name, column in experiment.objective.layout.spec.items()}
    arrays |= {name: (value.shape[1:], value.dtype) for name, value in features.items()}
    for name, (shape, dtype) in arrays.items():
        table.add_row(Text(name), " x ".join(map(str, (experiment.batch_size, *shape))), str(np.dtype(dtype)))
    return table
