"""What has to stand before the first step: the token store, and an experiment that fits its data and its devices."""

from pathlib import Path

from jax.sharding import Mesh
from rich.console import Console

from t5x_lite.data import TokenStore
from t5x_lite.errors import InputError
from t5x_lite.objectives import Objective
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.report import preparation
from t5x_lite.training.workdir import begin, saved_tokenizer


def prepare(experiment: Experiment, console: Console, workdir: Path | None = None) -> tuple[TokenStore, Objective]:
    """The token store, written if it is not there yet, and the objective that knows its vocabulary."""
    saved = saved_tokenizer(workdir) if workdir else None
    with preparation(console) as progress:
        row_length = experiment.objective.raw_length
        store = experiment.data.prepare(row_length, tokenizer=saved, progress=progress)
    vocabulary = store.tokenizer.vocabulary
    if vocabulary.size > experiment.model.vocab_size:
        raise InputError(
            f"model.vocab_size={experiment.model.vocab_size} is smaller than the tokenizer's {vocabulary.size} ids; "
            f"choose {vocabulary.size} or more"
        )
    objective = experiment.objective.for_vocabulary(vocabulary)
    if workdir:
        begin(workdir, experiment, store)
    return store, objective


def check_mesh(experiment: Experiment, mesh: Mesh) -> None:
    """Raises `InputError` where the devices do not divide the batch or the heads."""
    shares, tensor = mesh.shape["data"] * mesh.shape["fsdp"], mesh.shape["tensor"]
    part = experiment.batch_size // experiment.accumulation
    if part % shares:
        raise InputError(
            f"batch_size={experiment.batch_size} (in {experiment.accumulation} parts of {part}) is not divided by the "
            f"{shares} devices along data and fsdp; choose a multiple of {shares * experiment.accumulation}"
        )
    if experiment.model.num_heads % tensor:
        raise InputError(
            f"model.num_heads={experiment.model.num_heads} is not divided by mesh.tensor={tensor}; "
            "choose a divisor of the heads for mesh.tensor"
        )
