"""`inspect CONFIG`: what a run would do, before it does it."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util
from rich.console import Console
from rich.table import Table

from t5x_lite.cli.arguments import ExperimentOptions, load_config, parse, take_config
from t5x_lite.cli.own_data import with_data
from t5x_lite.cli.rows import describe_row, legend
from t5x_lite.cli.schedule import draw, save
from t5x_lite.data import TokenStore
from t5x_lite.models import abstract_params, num_params
from t5x_lite.parallel import logical_axes
from t5x_lite.pictures.places import check_place
from t5x_lite.training.evaluation import held_out_features
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.layer_rates import rate_factors
from t5x_lite.training.preparation import Prepared, prepare

PROG = "t5x-lite inspect"
USAGE = f"""usage: {PROG} CONFIG [options]

Prints the parameters with shapes and logical axes, the learning rate over the run, how much text there is and how much
of its rows is padding, the shapes of a batch, and three real rows as the model sees them. Tokenizes the text first if
that has not been done.

  --schedule FILE.png    draw the learning rate into a picture too
  --corruption FILE.png  draw the rows, before and after, with the masks of the attention

and the options of train, without --workdir: "{PROG} CONFIG --help" lists them."""


@dataclass(frozen=True)
class Inspect:
    """Show what the config describes, with these fields of the experiment changed."""

    experiment: ExperimentOptions
    text: tuple[str, ...] = ()
    """Files, globs or folders (.txt, .jsonl, .gz) to take the rows from instead of the config's source."""
    pairs: tuple[str, ...] = ()
    """The same for objectives on pairs: .tsv or .jsonl, and their .gz, read as the config reads its own."""
    held_out_pairs: tuple[str, ...] = ()
    """Pairs to evaluate on, instead of a part of the others."""
    examples: tuple[str, ...] = ()
    """Files with the examples of a task, like those of the config."""
    held_out_examples: tuple[str, ...] = ()
    """Examples to evaluate on."""
    schedule: str = ""
    """A PNG file to draw the learning rate into."""
    corruption: str = ""
    """A PNG file to draw the three rows into, before and after, and the masks of the attention."""


def run(arguments: list[str]) -> None:
    config, arguments = take_config(arguments, PROG, USAGE)
    command = parse(Inspect, arguments, prog=f"{PROG} {config}", default=Inspect(load_config(config)))
    experiment = with_data(
        command.experiment,
        text=command.text,
        pairs=command.pairs,
        held_out_pairs=command.held_out_pairs,
        examples=command.examples,
        held_out_examples=command.held_out_examples,
    )
    if command.corruption:
        check_place(Path(command.corruption).expanduser(), "corruption")
    console = Console()
    console.print(parameter_table(experiment))
    console.print(f"{num_params(experiment.model):,} parameters\n", highlight=False)
    schedule = experiment.optimizer.schedule
    console.print(draw(schedule, experiment.steps) + "\n", markup=False, highlight=False, soft_wrap=True)
    if command.schedule:
        save(schedule, experiment.steps, Path(command.schedule).expanduser())
    prepared = prepare(experiment, console)
    store, features = prepared.store, held_out_features(prepared.objective, prepared.store.train, 3)
    console.print(store_table(store), "")
    console.print(batch_table(experiment, features))
    if "positions" in features:
        console.print("\n", legend(), sep="")
    labels = experiment.data.source.classes or ()
    for row in range(len(features["inputs"])):
        one = {name: values[row] for name, values in features.items()}
        for name, text in describe_row(store.tokenizer, store.train[row], one, store.format, labels):
            console.print(f"\n[bold]row {row}[/bold]  {name}" if name == "raw" else f"[bold]{name}[/bold]")
            console.print(text)
    if command.corruption:
        _draw_rows(prepared, experiment, Path(command.corruption).expanduser())


def _draw_rows(prepared: Prepared, experiment: Experiment, picture: Path) -> None:
    # Imported here: matplotlib is needed for the picture alone.
    from t5x_lite.pictures import draw_corruption

    rows = np.stack([prepared.store.train[row] for row in range(min(3, len(prepared.store.train)))])
    draw_corruption(prepared.objective, prepared.store.tokenizer, rows, model=experiment.model).save(picture)


def parameter_table(experiment: Experiment) -> Table:
    """Every parameter: path, shape, logical axes, count; and its share of the learning rate where not all have it."""
    table = Table("parameter", "shape", "logical axes", box=None)
    table.add_column("count", justify="right")
    boxed = abstract_params(experiment.model)
    axes = jax.tree.leaves(logical_axes(boxed), is_leaf=lambda node: isinstance(node, tuple))
    leaves = jax.tree_util.tree_leaves_with_path(nn.unbox(boxed))
    rates = _rates(experiment)
    if rates:
        table.add_column("learning rate", justify="right")
    for (path, leaf), names in zip(leaves, axes, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        rate = [rates[name]] if rates else []
        table.add_row(name, " x ".join(map(str, leaf.shape)), ", ".join(names), f"{leaf.size:,}", *rate)
    return table


def _rates(experiment: Experiment) -> dict[str, str]:
    """By parameter, what its learning rate is multiplied by, from the lowest layer to the highest; empty where all have
    the same."""
    boxed, optimizer = abstract_params(experiment.model), experiment.optimizer
    axes = logical_axes(boxed)
    trained = optimizer.trained(axes)
    if trained.is_whole and optimizer.layerwise_decay == 1.0:
        return {}
    factors = rate_factors(axes, nn.unbox(boxed), optimizer.layerwise_decay)

    def spell(path: str, factor: np.ndarray) -> str:
        first = trained.frozen_layers_of(path)
        if first is None:
            return "frozen"
        below = [f"{first} frozen"] if first else []
        ends = sorted({float(value) for value in np.ravel(factor)[first:]})
        return ", ".join([*below, " to ".join(f"x {value:.3g}" for value in dict.fromkeys((ends[0], ends[-1])))])

    return {path: spell(path, factor) for path, factor in traverse_util.flatten_dict(factors, sep="/").items()}


def store_table(store: TokenStore) -> Table:
    """What the splits are made of, and how much of their rows is padding, so far as the store has counted it."""
    what = store.format.unit
    table = Table("split", box=None)
    for column in (what, "tokens", "rows", "padding", *([f"{what} a row"] if what == "pairs" else [])):
        table.add_column(column, justify="right")
    for split, figures in store.figures.items():
        used = figures.documents - figures.skipped_documents
        cells = (f"{figures.documents:,}", f"{figures.tokens:,}", f"{figures.rows:,}", f"{figures.padding:.1%}")
        table.add_row(split.replace("_", "-"), *cells, *([f"{used / figures.rows:.2f}"] if what == "pairs" else []))
    return table


def batch_table(experiment: Experiment, features: dict) -> Table:
    """Every array of a batch: name, shape, type."""
    table = Table("batch", "shape", "type", box=None)
    table.add_row("raw", f"{experiment.batch_size} x {experiment.objective.raw_length}", "int32")
    for name, value in features.items():
        table.add_row(name, " x ".join(map(str, (experiment.batch_size, *value.shape[1:]))), str(value.dtype))
    return table
