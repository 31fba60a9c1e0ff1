"""`check`: what would stop a run on machines that are paid for, before anyone asks for them."""

import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from t5x_lite.cli.arguments import format_examples, load_config, parse, subcommand, take_config
from t5x_lite.cli.commands.train import Train
from t5x_lite.cli.processes import in_thread
from t5x_lite.data.records.tfds import datasets_in
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, local_or_bucket
from t5x_lite.models import num_params
from t5x_lite.parallel.mesh import MESH_AXES, MeshShape
from t5x_lite.planning.plan import objective_without_text
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.preparation import check_mesh, given_tokenizer, open_models, vocabulary_check
from t5x_lite.runs.workdir import open_workdir
from t5x_lite.training.experiment import Experiment
from t5x_lite.validation import Positive

PROG = "t5x-lite check"
EXAMPLES = (
    "check configs/t5_11b.py --topology v5p:4x4x4 --workdir gs://bucket/t5 --data.prepared gs://bucket/data",
    "check configs/t5_11b.py --topology v5p-128 --slices 2 --workdir gs://bucket/t5",
)
USAGE = f"""usage: {PROG} CONFIG --topology NAME [options of train]

Checks what a run needs before machines are asked for, with a line for each: that the config can be computed, that its
mesh fills the devices and divides the batch, that its workdir in a bucket can be written to, and that its data is
there: rows that `prepare` wrote, or else the first document of its source. The launchers do this first. Status 2
where something is missing. It writes and removes one small object in the workdir, and sees buckets with your rights,
not with those of the machines.

  --topology NAME      a slice, as plan names it (v5p:4x4x4), or an accelerator type of Google Cloud (v5p-128)
  --slices N           how many of them (default: 1)

{format_examples(EXAMPLES)}"""

_LIMIT = 60.0
"""Seconds for a bucket or a source to answer: without a network or an account some never do."""
_CORES_A_CHIP = {"v4": 2, "v5p": 2, "v5litepod": 1, "v5e": 1, "v6e": 1}
"""What the numbers of accelerator types count: https://docs.cloud.google.com/tpu/docs, a page for each."""


@dataclass(frozen=True)
class Check(Train):
    """Check what the run needs, with these fields of the experiment changed."""

    topology: str = ""
    """A slice, as plan names it (v5p:4x4x4), or an accelerator type of Google Cloud (v5p-128)."""
    slices: Positive = 1
    """Slices of the run, joined by the data centre's network."""


@subcommand
def check(arguments: list[str]) -> int:
    """check CONFIG --topology T: what would stop a run there: its config, mesh, workdir or data"""
    jax.config.update("jax_platforms", "cpu")
    for name in ("gcsfs", "s3fs", "fsspec"):  # they log errors with a traceback before they raise them
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Check(load_config(config), f"runs/{Path(config).stem}")
    command = parse(Check, arguments, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
    if not command.topology:
        raise InputError("--topology is missing; name a slice, such as v5p:4x4x4, or a type, such as v5p-128")
    experiment, devices = command.apply(command.experiment), num_devices(command.topology)
    status = 0
    for what, verify in (
        ("config", lambda: check_config(experiment)),
        ("mesh", lambda: check_fit(experiment, devices, command.slices)),
        ("workdir", lambda: check_workdir(experiment, command.workdir)),
        ("data", lambda: check_data(experiment, config)),
    ):
        if not _passes(what, verify):
            status = 2
    return status


def _passes(what: str, verify: Callable[[], str]) -> bool:
    """Prints what a check found, or its one sentence."""

    def wait(seconds: float) -> None:
        if seconds > _LIMIT:
            raise InputError(f"there is no answer within {_LIMIT:.0f} seconds; see to the network, and log in")

    try:
        print(f"{what}: {in_thread(verify, wait)}", flush=True)
    except InputError as error:
        print(f"t5x-lite: {what}: {error}", file=sys.stderr)
        return False
    return True


def num_devices(topology: str) -> int:
    """Devices that JAX sees in a slice, by its topology or its accelerator type. Raises `InputError` for another name.

    >>> num_devices("v5p:4x4x4"), num_devices("v5p-128"), num_devices("tpu-v5litepod-16"), num_devices("tpu7x:2x2x1")
    (64, 64, 16, 8)
    """
    if ":" in topology:
        known = Topology.parse(topology)
        return known.num_chips * known.chip.devices
    match = re.fullmatch(r"(?:tpu-)?(\w+)-(\d+)", topology)
    cores = _CORES_A_CHIP.get(match[1]) if match else None
    if match is None or cores is None or int(match[2]) < cores:
        raise InputError(
            f"topology={topology!r} is not known; name a slice, such as v5p:4x4x4, or a type, such as v5p-128, of "
            f"{', '.join(_CORES_A_CHIP)}"
        )
    return int(match[2]) // cores


def check_config(experiment: Experiment) -> str:
    """What is trained. Raises `InputError` where the model has no row for an id of the tokenizer."""
    objective = objective_without_text(experiment)
    model, steps = type(experiment.model).__name__, f"{experiment.steps:,} steps of {experiment.batch_size:,} rows"
    return f"{model} of {num_params(experiment.model):,} parameters, {type(objective).__name__}, {steps}"


def check_fit(experiment: Experiment, devices: int, slices: int) -> str:
    """The mesh. Raises `InputError` where it does not fill the devices of all slices, or does not divide the batch."""
    sizes = experiment.mesh.sizes(devices * slices)
    if sizes["data"] % slices:
        raise InputError(
            f"mesh.data={sizes['data']} cannot go across {slices} slices; choose a multiple of {slices}, "
            "the other axes lie within a slice"
        )
    # TPUs can offload, which the check asks devices about.
    remat = "full" if experiment.remat == "offload" else experiment.remat
    mesh = jax.sharding.AbstractMesh(tuple(sizes[axis] for axis in MESH_AXES), MESH_AXES)
    check_mesh(replace(experiment, remat=remat, mesh=MeshShape(**sizes)), mesh)
    return f"{', '.join(f'{axis} {size}' for axis, size in sizes.items())} over {devices * slices:,} devices"


def check_workdir(experiment: Experiment, workdir: str) -> str:
    """That the workdir can be written to, and holds no other run. Raises `InputError` else."""
    if not is_in_bucket(workdir):
        return f"{workdir} is a folder of the hosts', which cannot be seen from here"
    with open_workdir(local_or_bucket(workdir, "workdir"), experiment):
        return f"{workdir} can be written to"


def check_data(experiment: Experiment, config: str) -> str:
    """That the prepared rows are there, or that each source can be read. Raises `InputError` else."""
    data = experiment.data
    if data.prepared:
        if not is_in_bucket(data.prepared) and not Path(data.prepared).expanduser().exists():
            return f"{data.prepared} is a folder of the hosts', which cannot be seen from here"
        objective, *models = open_models(experiment)
        with data.prepare(objective.layout, tokenizer=given_tokenizer(experiment.model, None, *models)) as store:
            if store.tokenizer:
                vocabulary_check(experiment.model, objective.layout)(store.tokenizer)
            return f"{data.prepared} has {len(store.train):,} rows to train on"
    remedy = f"run `t5x-lite prepare {config} --out gs://BUCKET/DATA` once, and give --data.prepared gs://BUCKET/DATA"
    for source in data.sources:
        if datasets := datasets_in(source) or datasets_in(getattr(source, "examples", None)):
            raise InputError(f"every host would prepare the dataset {datasets[0].name!r} for itself; {remedy}")
        if next(iter(source.documents()), None) is None:
            raise InputError(f"{type(source).__name__} has no document; {remedy}")
    names = ", ".join(type(source).__name__ for source in data.sources)
    return f"{names} can be read; process 0 tokenizes all of it, which `t5x-lite prepare` does beforehand"
