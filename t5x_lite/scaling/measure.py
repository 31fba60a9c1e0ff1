"""What runs of several sizes reached, from their folders or from a table of another's."""

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from flax import linen as nn

from t5x_lite.data.records.formats import TABLE_ENDINGS, JsonlFiles, TableFiles
from t5x_lite.data.records.input_files import JSON_ENDINGS
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig, abstract_params, num_params
from t5x_lite.planning.plan import objective_without_text
from t5x_lite.runs.recorded import RecordedRun, open_run, short_names
from t5x_lite.scaling.laws import Measurements
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.flops import step_flops

Count = Literal["total", "non_embedding"]
"""What N counts: all parameters (Hoffmann et al. 2022), or those outside the vocabulary's and the positions' tables
(Kaplan et al. 2020, section 2.1)."""
COLUMNS = {
    "parameters": ("parameters", "params", "n", "model size"),
    "tokens": ("tokens", "training tokens", "d"),
    "flops": ("flops", "flop", "training flop", "training flops", "c"),
    "loss": ("loss", "l"),
    "run": ("run", "name"),
}
"""What a table may call them, in capitals or not."""


def count_parameters(model: ModelConfig, count: Count = "total") -> int:
    """N of an architecture."""
    if count == "total":
        return num_params(model)
    leaves = jax.tree.leaves(abstract_params(model), is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned))
    tables = [leaf for leaf in leaves if {"vocab", "positions"} & set(leaf.names)]
    return num_params(model) - sum(math.prod(leaf.value.shape) for leaf in tables)


def training_flops(experiment: Experiment) -> int:
    """Floating-point operations of one step, counted as `train` counts them."""
    return step_flops(experiment.model, objective_without_text(experiment), experiment.batch_size)


def read_runs(folders: Sequence[str], count: Count = "total") -> Measurements:
    """The held-out losses of runs along their training.

    Args:
      folders: those of the runs.
      count: what N counts.

    Raises:
      InputError: a folder is not that of a run, has no held-out loss, or the runs' losses are not comparable.
    """
    return measure_runs([open_run(one, name) for one, name in zip(folders, short_names(folders), strict=True)], count)


def measure_runs(runs: Sequence[RecordedRun], count: Count = "total") -> Measurements:
    """See `read_runs`."""
    entries: list[tuple[float, float, float, float, str]] = []
    units: dict[Any, str] = {}
    for run in runs:
        if run.experiment is None:
            raise InputError(
                f"{run.name} was trained with classes that are not imported, so that its size is not known; name their "
                "file by --import"
            )
        losses = run.points("loss", "held_out", "step")
        finite = [(step, loss) for step, loss in losses if step and loss is not None and loss > 0]
        if not finite:
            raise InputError(f"{run.name} has no held-out loss yet; let it train, with evaluation.every above 0")
        unit, number = run.experiment.objective.layout.throughput(run.experiment.batch_size)
        units[type(run.experiment.objective).__name__, unit] = run.name
        size, flops = count_parameters(run.experiment.model, count), training_flops(run.experiment)
        entries += [(size, step * number, step * flops, loss, run.name) for step, loss in dict(finite).items()]
    tokenizers = {repr(run.experiment.data.tokenizer): run.name for run in runs}
    if len(tokenizers) > 1:
        raise InputError(
            f"the losses of {' and '.join(tokenizers.values())} are of tokens of other tokenizers; fit them apart"
        )
    if len(units) > 1:
        message = " and ".join(f"{name} has {objective} on {unit}" for (objective, unit), name in units.items())
        raise InputError(f"the runs' losses are of different kinds: {message}; fit them apart")
    return _from_entries(entries)


def read_table(path: str) -> Measurements:
    """Measurements in a .csv, .tsv or .jsonl with the columns parameters, tokens or flops or both, and loss.

    Of tokens and flops one may be missing: then C = 6 N D. A column `run` names the runs; without it each row is one.
    The names that `COLUMNS` lists stand for them too, such as Model Size and Training FLOP. Rows without a number in
    one of the columns are left out.

    Raises:
      InputError: a column is missing, or fewer than two rows remain.
    """
    is_json = path.lower().endswith(JSON_ENDINGS)
    rows = [record.fields for record in (JsonlFiles if is_json else TableFiles)((path,))]
    known = {name.strip().lower(): name for row in rows for name in row}
    columns = {
        column: next((known[name] for name in names if name in known), None) for column, names in COLUMNS.items()
    }
    missing = [column for column in ("parameters", "loss") if columns[column] is None]
    if columns["tokens"] is None and columns["flops"] is None:
        missing.append("tokens or flops")
    if missing:
        raise InputError(f"{path} has no column {' and no column '.join(missing)}; name the columns in its first line")
    entries = []
    for number, row in enumerate(rows, start=1):
        values = {}
        for column in ("parameters", "tokens", "flops", "loss"):
            with contextlib.suppress(TypeError, ValueError):
                values[column] = float(row.get(columns[column]))
        size, loss = values.get("parameters", math.nan), values.get("loss", math.nan)
        tokens, flops = values.get("tokens", math.nan), values.get("flops", math.nan)
        if columns["tokens"] is None:
            tokens = flops / (6 * size) if size else math.nan
        if columns["flops"] is None:
            flops = 6 * size * tokens
        if all(0 < value < math.inf for value in (size, tokens, flops, loss)):
            name = str(row.get(columns["run"]) or number) if columns["run"] else str(number)
            entries.append((size, tokens, flops, loss, name))
    if len(entries) < 2:
        raise InputError(f"{path} has {len(entries)} rows of positive numbers; give a table of several runs")
    return _from_entries(entries)


def read_measurements(paths: Sequence[str], count: Count = "total") -> Measurements:
    """Those of a table, or of the folders of runs."""
    tables = [path for path in paths if path.lower().endswith((*TABLE_ENDINGS, *JSON_ENDINGS))]
    if not tables:
        return read_runs(paths, count)
    if len(paths) > 1:
        raise InputError(
            f"{tables[0]} is a table, and {len(paths)} inputs are given; give one table, or folders of runs"
        )
    return read_table(tables[0])


def _from_entries(entries: Iterable[tuple[float, float, float, float, str]]) -> Measurements:
    *arrays, run = zip(*entries, strict=True)
    return Measurements(*(np.array(array, float) for array in arrays), run=run)
