"""What a run shows to people: progress, the loss curve, held-out figures, fill-ins, the batch of a failed step."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from t5x_lite.columns import wrap_lines
from t5x_lite.data import TokenStore, batches
from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator
from t5x_lite.evaluation.figures import describe, held_out_figures, held_out_intervals, loss_unit
from t5x_lite.evaluation.predictions import format_samples, held_out_samples
from t5x_lite.files import write_atomically
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.parallel import hosts
from t5x_lite.pictures import model_title
from t5x_lite.runs.checkpoints import write_model
from t5x_lite.runs.goodput import count_goodput, read_times
from t5x_lite.runs.records import print_line, read_records
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training.step import Program, TrainState


@contextmanager
def preparation(console: Console) -> Iterator[Callable[[str, float | None], None]]:
    """A bar for the stages of `Data.prepare`: call it with the stage and the share done, None if that is not known."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(stage: str, share: float | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=None if share is None else 1.0)
                if not console.is_terminal:
                    print_line(console, stage)
            bar.update(tasks[stage], total=None if share is None else 1.0, completed=share or 0.0)

        yield progress


def finish(
    held_out: Evaluator | MixtureEvaluator, params: Any, store: TokenStore, workdir: epath.Path, console: Console
) -> None:
    """Writes and prints the end of a run: held-out figures beside those of guessing, of tasks with
    intervals; answers; the loss curve."""
    scores = held_out.evaluate(params)
    figures = held_out_figures(held_out, scores)
    program = held_out.program
    if scores.predictions and isinstance(program.objective, TaskObjective):
        figures |= {"intervals": held_out_intervals({"": scores})}
    samples = held_out_samples(program, params, store)
    if not hosts.is_first():
        return
    write_atomically(workdir / "held_out.json", json.dumps(figures, indent=2) + "\n")
    text = format_samples(program, store, samples)
    write_atomically(workdir / "samples.txt", text)
    plot_losses(workdir / "metrics.jsonl", workdir / "loss.png", held_out)
    pictures = [row for row in map(program.objective.sample_pictures, samples) if row]
    if pictures:
        draw_samples(pictures, workdir / "samples.png", model_title(workdir.name, program.experiment.model))
    print_line(console, "\n" + wrap_lines(text))
    print_line(console, describe(figures, scores.metrics))
    written = "loss.png, samples.txt, samples.png" if pictures else "loss.png, samples.txt"
    print_line(console, f"{workdir}: checkpoints, {written}, metrics.jsonl, tensorboard")


def print_goodput(workdir: epath.Path, console: Console) -> None:
    """Prints where the time of a run went, over all its processes."""
    if hosts.is_first() and (goodput := count_goodput(read_times(workdir))):
        print_line(console, goodput.describe())


def draw_samples(rows: Sequence[Mapping[str, np.ndarray]], picture: epath.Path, title: str) -> None:
    """Draws pictures of held-out rows, a row for each: see `Objective.sample_pictures`."""
    from t5x_lite.pictures.drawing import Tile, draw_image_grid  # here, since it loads matplotlib

    tiles = [[Tile(image) for image in row.values()] for row in rows]
    drawn = draw_image_grid(tiles, columns=list(rows[0]), title=f"{title}: held-out examples")
    write_atomically(picture, drawn.png())


def plot_losses(metrics: epath.Path, picture: epath.Path, held_out: Evaluator | MixtureEvaluator) -> None:
    """Draws the losses of `metrics.jsonl` over the steps, and that of guessing as a line."""
    # Imported here: matplotlib is needed at a run's end alone.
    from t5x_lite.pictures.drawing import Curve, draw_curves

    records, experiment = read_records(metrics), held_out.program.experiment
    curves = [
        Curve("", kind, points)
        for kind in ("train", "held_out")
        if (points := [(record["step"], record["loss"]) for record in records if record["kind"] == kind])
    ]
    guess = "unigram model" if held_out.program.objective.unit == "token" else "a constant guess"
    drawn = draw_curves(
        curves,
        xlabel="step",
        ylabel=f"loss ({loss_unit(experiment)})",
        baselines={guess: held_out.baseline_loss},
        title=f"{model_title(picture.parent.name, experiment.model)}: loss",
    )
    write_atomically(picture, drawn.png())


def write_nonfinite(
    workdir: epath.Path, program: Program, state: TrainState, figures: dict[str, Any], store: TokenStore
) -> epath.Path:
    """Writes what is needed to examine a loss that is not finite; returns the folder.

    `state` is that before the failing step. `figures.json` has the step's figures, `batch.npz` the columns of the whole
    batch, `batch.txt` their text, `parameters.json` each parameter's largest absolute value, and `model` is a
    checkpoint of the state's parameters.
    """
    folder, experiment, step = workdir / "nonfinite", program.experiment, int(jax.device_get(state.step))
    largest = {
        jax.tree_util.keystr(path, simple=True, separator="/"): float(jnp.abs(leaf).max())
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.params)
    }
    with hosts.in_turn():
        if hosts.is_first():
            folder.rmtree(missing_ok=True)
            folder.mkdir()
            formatted = {"step": step + 1} | {name: str(value) for name, value in figures.items()}
            write_atomically(folder / "figures.json", json.dumps(formatted, indent=2) + "\n")
            write_atomically(folder / "parameters.json", json.dumps(largest, indent=2) + "\n")
            batch = batches(store.train, **experiment.batch_order)[step]
            columns = io.BytesIO()
            np.savez(columns, **batch)
            write_atomically(folder / "batch.npz", columns.getvalue())
            if store.tokenizer:
                ids = [batch[name] for name, column in store.layout.spec.items() if column.is_ids]
                rows = zip(*(column.reshape(len(column), -1) for column in ids), strict=True)
                text = "\n\n".join(store.tokenizer.decode(np.concatenate(row)) for row in rows)
                write_atomically(folder / "batch.txt", text + "\n")
    write_model(folder / "model", experiment, tokenizer_files(workdir / "tokenizer"), state.params)
    return folder
