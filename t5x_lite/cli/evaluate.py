"""`evaluate RUN`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import tyro
from rich.console import Console

from t5x_lite.cli.arguments import parse, with_text
from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.open_model import open_checkpoint, tokenizer_from_files
from t5x_lite.training.report import describe, held_out_figures, preparation
from t5x_lite.training.step import Program


@dataclass(frozen=True)
class Evaluate:
    """Loss, token accuracy and perplexity of a run on held-out text, beside the best model without context; and what
    else its objective asks: sentence pairs, span boundaries, replaced tokens."""

    run: tyro.conf.Positional[str]
    """The folder of a run, or of one of its checkpoints."""
    text: tuple[str, ...] = ()
    """Other text: files, globs or folders, of which all rows are used."""
    rows: int | None = None
    """Rows to evaluate on, at most; as in the run if not given."""
    json: bool = False
    """Print the figures as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Evaluate, arguments, prog="t5x-lite evaluate")
    if command.rows is not None and command.rows < 1:
        raise InputError(f"rows={command.rows} is too small; choose 1 or more")
    checkpoint = open_checkpoint(Path(command.run))
    experiment = with_text(checkpoint.experiment, command.text)
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    if tokenizer is None:
        raise InputError(f"{command.run} came without a tokenizer; evaluation of text needs one")
    with preparation(Console(stderr=True)) as progress:
        store = experiment.data.prepare(experiment.objective.row_format, tokenizer=tokenizer, progress=progress)
    rows = _AllRows(store.train, store.held_out) if command.text else store.held_out
    # On one device, whatever the run had: its batch need not be divided by the devices here.
    one_device = make_mesh(MeshShape(), jax.local_devices()[:1])
    program = Program(
        replace(experiment, mesh=MeshShape()), experiment.objective.for_vocabulary(tokenizer.vocabulary), one_device
    )
    params = jax.device_put(checkpoint.params, program.state_shardings.params)
    figures = held_out_figures(program, params, rows, tokenizer.vocabulary, command.rows or experiment.evaluation.rows)
    print(json.dumps(figures) if command.json else describe(figures))


class _AllRows:
    """Two splits, one after the other."""

    def __init__(self, first: object, second: object):
        self._splits = (first, second)

    def __len__(self) -> int:
        return sum(map(len, self._splits))

    def __getitem__(self, index: int) -> object:
        first, second = self._splits
        return first[index] if index < len(first) else second[index - len(first)]

    def __getitems__(self, indices: list[int]) -> list[object]:
        return [self[index] for index in indices]
