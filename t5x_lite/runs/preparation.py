"""What a run needs before its first step: data, objective, teacher, first parameters; and checks that they agree."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh
from rich.console import Console

from t5x_lite.data import Layout, Tokenizer, TokenStore, Vocabulary
from t5x_lite.data.passage_rows import PassageRows
from t5x_lite.errors import InputError
from t5x_lite.files import local_or_bucket
from t5x_lite.kernels.platform import can_offload, free_memory
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.objectives import Objective
from t5x_lite.optim.masks import listed
from t5x_lite.parallel import RULES, hosts, num_parts, shardings
from t5x_lite.parallel.mesh import to_devices
from t5x_lite.runs.checkpoints import Checkpoints, read_state
from t5x_lite.runs.open_model import OpenedModel, checkpoint_folder, open_model, shapes
from t5x_lite.runs.records import print_line
from t5x_lite.runs.report import preparation
from t5x_lite.runs.workdir import begin, has_begun, hosts_without, saved_tokenizer
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.initialization import (
    FromModel,
    FromRun,
    describe_overlay,
    overlay,
    part_for,
    with_new_ids,
    with_resized_positions,
)
from t5x_lite.training.step import Program, TrainState


@dataclass(frozen=True)
class Prepared:
    """What a run needs beside its experiment and its devices."""

    store: TokenStore
    objective: Objective
    """With its vocabulary, and its teacher's architecture."""
    teacher: OpenedModel | None = None
    start: OpenedModel | None = None
    """The model that the run begins with, where it has not begun."""
    passages: PassageRows | None = None
    """The corpus, of an objective that looks passages up."""


def prepare(experiment: Experiment, console: Console, workdir: epath.Path | None = None) -> Prepared:
    """The token store, written if it does not exist, and the other models that the run needs.

    Process 0 writes the store for all, in the cache if all hosts have one and the same, else in the workdir. The
    tokenizer is that of the run so far, else the teacher's or that of the model to start from, else the data's.
    """
    for name, source in (("source", experiment.data.source), ("held_out_source", experiment.data.held_out_source)):
        if source is not None and experiment.objective.layout.has_examples and not source.has_answers:
            raise InputError(
                f"data.{name} has no labels to learn or to compare with; name their field, or give it to evaluate with "
                "--unlabeled"
            )
    begun = workdir is not None and has_begun(workdir)
    objective, teacher, start = open_models(experiment, begun=begun)
    saved, cache = saved_tokenizer(workdir) if begun else None, experiment.data.cache_path
    tokenizer, data = given_tokenizer(experiment.model, saved, teacher, start), experiment.data
    if not data.prepared:
        cache.mkdir(parents=True, exist_ok=True)
        if workdir is not None and hosts_without(cache):
            data = replace(data, cache_dir=str(workdir / "cache"))
    check = vocabulary_check(experiment.model, objective.layout)
    with preparation(console) as progress, hosts.in_turn():
        store = data.prepare(objective.layout, tokenizer=tokenizer, check_tokenizer=check, progress=progress)
    hosts.check_alike(
        {"the token store": store.key, "its number of rows": str(len(store.train))},
        "data.source and data.tokenizer must give every host the same text and pieces",
    )
    if store.classes:  # which a source of pictures may not know before it is read
        objective.check_labels(experiment.model, store.classes)
        if teacher is not None and teacher.classes and teacher.classes != store.classes:
            raise InputError(
                f"objective.teacher={objective.teacher!r} has other classes ({listed(teacher.classes)}) than the data "
                f"({listed(store.classes)}); choose a teacher of the same, in the same order"
            )
    for remark in store.remarks:
        print_line(console, remark)
    if store.tokenizer:
        objective = objective.for_vocabulary(store.tokenizer.vocabulary)
    passages = None
    if objective.corpus_layout is not None:
        with preparation(console) as progress, hosts.in_turn():
            layouts = objective.corpus_layout, objective.layout
            passages = data.prepare_corpus(*layouts, tokenizer=store.tokenizer, progress=progress)
        objective = objective.for_corpus(len(passages))
    if workdir:
        with hosts.in_turn():
            if hosts.is_first():
                begin(workdir, experiment, store, None if teacher is None else teacher.params, passages)
    return Prepared(store, objective, teacher, start, passages)


def open_models(
    experiment: Experiment, *, begun: bool = False
) -> tuple[Objective, OpenedModel | None, OpenedModel | None]:
    """The objective with its teacher's architecture, the teacher, and the model to start from where the run has not
    begun."""
    objective, teacher = open_teacher(experiment)
    start = None
    if isinstance(experiment.start, FromModel | FromRun) and not begun:
        start = open_model(experiment.start.folder)
        if getattr(experiment.start, "layers", ()) and getattr(start.config, "layers_share_parameters", False):
            raise InputError(f"start.layers={experiment.start.layers} chooses layers where all are one; leave it empty")
    return objective, teacher, start


def open_teacher(experiment: Experiment) -> tuple[Objective, OpenedModel | None]:
    """The objective with its teacher's architecture, and the teacher; or the objective as it is, and None."""
    objective = experiment.objective
    if not objective.teacher:
        return objective, None
    teacher = open_model(objective.teacher)
    return objective.for_teacher(teacher.config, experiment.model, teacher.pixel_statistics), teacher


def given_tokenizer(config: ModelConfig, saved: Tokenizer | None, *models: OpenedModel | None) -> Tokenizer | None:
    """The tokenizer of the run so far, or of the models that read ids if this one does; `InputError` where they have
    different ones."""
    others = [model for model in models if model is not None and model.config.reads_ids == config.reads_ids]
    candidates = [saved, *(model.tokenizer for model in others)]
    tokenizers = [tokenizer for tokenizer in candidates if tokenizer is not None]
    if len({tokenizer.fingerprint for tokenizer in tokenizers}) > 1:
        raise InputError("the run, its teacher and the model it starts from have different tokenizers; choose others")
    return next(iter(tokenizers), None)


def vocabulary_check(model: ModelConfig, layout: Layout) -> Callable[[Tokenizer], None]:
    """Raises `InputError` for a tokenizer whose ids neither the rows nor the model can take."""

    def check(tokenizer: Tokenizer) -> None:
        layout.start(tokenizer.vocabulary)
        check_vocabulary(model, tokenizer.vocabulary, layout.added_ids)

    return check


def check_vocabulary(model: ModelConfig, vocabulary: Vocabulary, added_ids: tuple[str, ...] = ()) -> None:
    """Raises `InputError` where the model has no row for an id, those in `added_ids` beyond the vocabulary included, or
    gives a special id another meaning."""
    needed = vocabulary.size + len(added_ids)
    if model.vocab_size is not None and needed > model.vocab_size:
        added = f" and the objective's {len(added_ids)} new ones ({', '.join(added_ids)})" if added_ids else ""
        raise InputError(
            f"model.vocab_size={model.vocab_size} is smaller than the tokenizer's {vocabulary.size} ids{added}; "
            f"choose {needed} or more"
        )
    model.check_vocabulary(vocabulary)


def first_state(program: Program, prepared: Prepared, console: Console) -> TrainState:
    """The state before the run's first step, as `experiment.start` says; without the teacher."""
    experiment = program.experiment
    match experiment.start:
        case FromModel(layers=layers):
            state = program.init()
            source, part = part_for(experiment.model, prepared.start.config, prepared.start.params)
            source, resized = with_resized_positions(source, experiment.model, prepared.start.config)
            new = ""
            if tokenizer := prepared.store.tokenizer:
                added, size = prepared.store.layout.added_ids, tokenizer.vocabulary.size
                source, new = with_new_ids(source, state.params, experiment.model, size, added)
            params, fresh = overlay(state.params, source, layers)
            overlaid = describe_overlay(params, source, fresh)
            print_line(console, f"parameters of {experiment.start.folder}{part}{resized}{overlaid}{new}")
            params = to_devices(params, program.state_shardings.params)
            return state.replace(params=params, average=experiment.average.start(params))
        case FromRun(folder=folder):
            state = _state_of_run(program, prepared.start, folder)
            print_line(console, f"going on from step {int(state.step)} of {folder}")
            return state
    return program.init()


def start_or_resume(program: Program, prepared: Prepared, checkpoints: Checkpoints, console: Console) -> TrainState:
    """The state of the last checkpoint, or the one that the run begins with; with the teacher."""
    if checkpoints.latest is None:
        state = first_state(program, prepared, console)
    else:
        state = read_state(checkpoints.folder / str(checkpoints.latest), program.abstract_state)
        print_line(console, f"resuming from step {checkpoints.latest}")
    if not program.trained.is_whole:
        print_line(console, program.trained.describe(state.params))
    if decay := program.experiment.average.decay:
        average = f"the average of the parameters (decay {decay:g})"
        print_line(console, f"held-out figures are of {average}, and so is what is loaded")
    if prepared.passages is not None:
        state = state.replace(frozen=corpus_on_devices(program, prepared.passages))
        if checkpoints.latest is None:
            print_line(console, f"encoding {program.objective.num_passages:,} passages")
            state = program.with_index(state)
    if prepared.teacher is None:
        return state
    return state.replace(frozen=to_devices(prepared.teacher.params, program.state_shardings.frozen))


def corpus_on_devices(program: Program, passages: PassageRows) -> jax.Array:
    """The ids of passages, and padding after them, sharded over the devices."""
    abstract = program.abstract_state.frozen
    ids = np.full(abstract.shape, program.objective.known_vocabulary.pad_id, abstract.dtype)
    passages.fill(ids)
    return to_devices(ids, program.state_shardings.frozen)


def _state_of_run(program: Program, start: OpenedModel, folder: str) -> TrainState:
    before, experiment = start.experiment, program.experiment
    if before is None:
        raise InputError(f"start.folder={folder} holds a model without the run that made it; use FromModel")
    abstract = program.abstract_state.replace(frozen=None)
    if shapes(abstract.params) != shapes(start.params):
        raise InputError(f"start.folder={folder} holds a run of another model; give that model, or use FromModel")
    if type(before.optimizer) is not type(experiment.optimizer):
        raise InputError(
            f"start.folder={folder} holds a run with {type(before.optimizer).__name__}, this one has "
            f"{type(experiment.optimizer).__name__}; give the same optimizer, or use FromModel"
        )
    for field in ("frozen", "frozen_layers"):
        old, new = getattr(before.optimizer, field), getattr(experiment.optimizer, field)
        if old != new:
            raise InputError(
                f"start.folder={folder} holds a run with optimizer.{field}={old}, this one has {new}, so that their "
                "optimizers keep moments of other parameters; give the same, or use FromModel"
            )
    state = read_state(checkpoint_folder(local_or_bucket(folder)), abstract)
    if int(state.step) >= experiment.steps:
        raise InputError(
            f"steps={experiment.steps} is not above the {int(state.step)} that start.folder={folder} has done; "
            "steps counts from the first run's beginning"
        )
    return state


def check_mesh(experiment: Experiment, mesh: Mesh) -> None:
    """Raises `InputError` where the devices do not divide the batch, its rows or the heads, or cannot offload."""
    shares, tensor = num_parts("activation_batch", mesh.shape), mesh.shape["tensor"]
    part = experiment.batch_size // experiment.accumulation
    if part % shares:
        raise InputError(
            f"batch_size={experiment.batch_size} (in {experiment.accumulation} parts of {part}) is not divided by the "
            f"{shares} devices along {' and '.join(RULES['activation_batch'])}; choose a multiple of "
            f"{shares * experiment.accumulation}"
        )
    for name, size in experiment.model.sharded_sizes.items():
        if size % tensor:
            divided = f"model.{name}={size} is not divided by mesh.tensor={tensor}"
            raise InputError(f"{divided}; choose a divisor of {size} for mesh.tensor")
    length, sequence = getattr(experiment.objective, "input_length", 0), mesh.shape["sequence"]
    if length % sequence:
        raise InputError(
            f"objective.input_length={length} is not divided by mesh.sequence={sequence}; "
            f"choose a multiple of {sequence}, or a divisor of {length} for mesh.sequence"
        )
    if experiment.remat == "offload" and not can_offload(device := mesh.devices.flat[0]):
        raise InputError(
            f"remat='offload' moves activations to the host's memory, which devices of type {device.platform} cannot; "
            "choose dots or full"
        )


def check_memory(experiment: Experiment, mesh: Mesh) -> None:
    """Raises `InputError` where parameters, gradients and the rows of a batch alone exceed the memory that is free."""
    params = abstract_params(experiment.model)
    parts = jax.tree.map(
        lambda leaf, each: math.prod(each.shard_shape(leaf.shape)), nn.unbox(params), shardings(mesh, params)
    )
    columns = experiment.objective.layout.spec.values()
    row = sum(math.prod(column.shape) * np.dtype(column.dtype).itemsize for column in columns)
    needed = 8 * sum(jax.tree.leaves(parts)) * mesh.size + experiment.batch_size * row
    if (free := free_memory()) is not None and needed > free:
        raise InputError(
            f"model and batch_size={experiment.batch_size} take {needed / 1e9:,.1f} GB or more on all devices, where "
            f"{free / 1e9:,.1f} GB are free; choose smaller ones, more devices, or mesh.fsdp or mesh.tensor over them"
        )
