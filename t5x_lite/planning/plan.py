"""A plan: what a train step takes on a TPU slice, computed by compiling it for that slice; no TPU is needed."""

import math
import re
import time
from dataclasses import astuple, dataclass
from typing import Any

import jax
import jax.numpy as jnp  # noqa: F401 (read by doctests)

from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.models import num_params
from t5x_lite.objectives import Objective
from t5x_lite.parallel import batch_sharding, make_mesh
from t5x_lite.planning.collectives import Collective, read_collectives
from t5x_lite.planning.hlo import matrix_flops, memory_traffic, read_hlo
from t5x_lite.planning.kernels import kernel_cycles
from t5x_lite.planning.timing import ExpectedTime, Schedule
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.preparation import check_mesh, check_vocabulary, open_teacher
from t5x_lite.tokenizers.config import expected_vocabulary
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.flops import step_flops
from t5x_lite.training.step import Program


@dataclass(frozen=True)
class Memory:
    """Bytes of a chip's memory while a step runs."""

    parameters: int
    optimizer: int
    other: int
    """The moving average of the parameters, a teacher's parameters, the batch."""
    temporaries: int
    """Activations, gradients and all else that a step allocates, at the moment when they take the most."""
    code: int

    @property
    def total(self) -> int:
        return sum(astuple(self))


@dataclass(frozen=True)
class Cost:
    """What a chip does in a compiled step."""

    flops: int
    """Operations of all matrix products, rematerialized ones included."""
    memory_traffic: int
    """Bytes read from and written to the chip's memory."""
    collectives: tuple[Collective, ...]
    expected: ExpectedTime
    """The time that it takes by the compiler's own schedule."""


@dataclass(frozen=True)
class Plan:
    """A train step on a slice or several: its memory, how fast it can be at most, and how fast it is expected to be."""

    experiment: Experiment
    topology: Topology
    mesh: dict[str, int]
    num_params: int
    model_flops: int
    """Operations of a step over the whole batch: see `step_flops`."""
    memory: Memory
    missing: int
    """Bytes of a chip's memory that the step needs beyond what there is; 0 where it fits."""
    cost: Cost | None
    """None where the step does not fit, for then the compiler gives no program."""
    compile_seconds: float

    @property
    def fits(self) -> bool:
        return self.cost is not None

    @property
    def throughput(self) -> tuple[str, int]:
        """(unit, number of them in a step): tokens, or rows that hold no ids."""
        return self.experiment.objective.layout.throughput(self.experiment.batch_size)

    @property
    def rooflines(self) -> dict[str, float]:
        """Seconds that a step takes at least: of matrix products (`compute`), memory (`hbm`) and links (`ici`); where
        there are several slices, of the data centre's network between them (`dcn`) as well."""
        assert self.cost is not None
        chip = self.topology.chip
        networks = ("ici", "dcn") if self.topology.num_slices > 1 else ("ici",)
        return {
            "compute": self.cost.flops / chip.peak_flops,
            "hbm": self.cost.memory_traffic / chip.hbm_bandwidth,
        } | {
            network: sum(each.seconds for each in self.cost.collectives if each.network == network)
            for network in networks
        }

    @property
    def bound(self) -> str:
        """Which of `rooflines` takes longest."""
        return max(self.rooflines, key=self.rooflines.__getitem__)

    @property
    def seconds(self) -> float:
        """The lower bound of a step, in which all of them overlap without waiting."""
        return self.rooflines[self.bound]

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization at most: the model's operations as a share of the chips' peak."""
        return self._utilization(self.seconds)

    @property
    def per_second(self) -> float:
        """Units of `throughput`, at most."""
        return self.throughput[1] / self.seconds

    @property
    def expected_seconds(self) -> float:
        """Of a step, as `Schedule` expects it: at least `seconds`."""
        assert self.cost is not None
        return max(self.cost.expected.seconds, self.seconds)

    @property
    def expected_mfu(self) -> float:
        """Model FLOPs utilization of a step that takes `expected_seconds`."""
        return self._utilization(self.expected_seconds)

    @property
    def expected_per_second(self) -> float:
        """Units of `throughput`, as expected."""
        return self.throughput[1] / self.expected_seconds

    def _utilization(self, seconds: float) -> float:
        return self.model_flops / (seconds * self.topology.num_chips * self.topology.chip.peak_flops)


def make_plan(experiment: Experiment, topology: Topology) -> Plan:
    """Compiles the train step of an experiment for a slice or several, on this machine; no data is read.

    Raises `InputError` for a mesh that does not fill the slices or whose `data` is not a multiple of them, a batch that
    it does not divide, a tokenizer with more ids than the model, and where the TPU compiler is not installed.
    """
    objective = objective_without_text(experiment)
    mesh = make_mesh(experiment.mesh, topology.devices)
    check_mesh(experiment, mesh)
    program = Program(experiment, objective, mesh)
    batch = abstract_batch(objective.layout.batch_spec, experiment.batch_size, sharding=batch_sharding(mesh))

    started = time.perf_counter()
    lowered = program.train_step.lower(program.abstract_state, batch)
    compiled, used, missing = compile_or_measure(lowered)
    seconds = time.perf_counter() - started

    per_chip, state = topology.chip.devices, program.abstract_state
    parameters, optimizer = (per_chip * local_bytes(tree) for tree in (state.params, state.opt_state))
    other = per_chip * local_bytes(
        (state.step, state.finite, state.average, state.memory, state.frozen, state.index, batch)
    )
    cost, code = None, 0
    if compiled is not None:
        analysis = compiled.memory_analysis()
        # At the worst moment: temp_size_in_bytes adds up what never lives together, and may exceed the chip's memory.
        used = analysis.peak_memory_in_bytes
        code = per_chip * analysis.generated_code_size_in_bytes
        hlo = read_hlo(compiled.as_text())
        # The program is that of one slice, whose devices it counts from 0; the first ones of the mesh are such.
        devices = [*mesh.devices.flat][: mesh.size // topology.num_slices]
        chips = [tuple(device.coords) for device in devices]
        cost = Cost(
            flops=per_chip * matrix_flops(hlo),
            memory_traffic=per_chip * memory_traffic(hlo),
            collectives=read_collectives(hlo, topology, chips),
            expected=Schedule(hlo, topology, chips, kernel_cycles(hlo, topology)).expected,
        )
    temporaries = max(per_chip * used - parameters - optimizer - other, 0)
    return Plan(
        experiment=experiment,
        topology=topology,
        mesh=dict(mesh.shape),
        num_params=num_params(experiment.model),
        model_flops=step_flops(experiment.model, objective, experiment.batch_size),
        memory=Memory(parameters, optimizer, other, temporaries, code),
        missing=per_chip * missing,
        cost=cost,
        compile_seconds=seconds,
    )


def objective_without_text(experiment: Experiment) -> Objective:
    """The experiment's objective with the vocabulary that its tokenizer will have, and its teacher's architecture."""
    objective, _ = open_teacher(experiment)
    if experiment.data.tokenizer is None:
        return objective
    added_ids = objective.layout.added_ids
    # A model that reads no ids has no size that a tokenizer's file could be guessed from.
    model_size = experiment.model.vocab_size or 2**15
    vocabulary = expected_vocabulary(experiment.data.tokenizer, model_size - len(added_ids))
    check_vocabulary(experiment.model, vocabulary, added_ids)
    return objective.for_vocabulary(vocabulary)


def compile_or_measure(lowered: Any) -> tuple[Any, int, int]:
    """(the compiled program, 0, 0); or, where it does not fit, (None, bytes it would take, bytes that are missing)."""
    try:
        return lowered.compile(), 0, 0
    except jax.errors.JaxRuntimeError as error:
        # The second where temporaries alone are too large, before the rest is laid out.
        match = re.search(r"Used ([\d.]+)(\w?) of ([\d.]+)(\w?) hbm", str(error)) or re.search(
            r"temporaries \(([\d.]+)(\w?)\) exceeds available HBM \(([\d.]+)(\w?)\)", str(error)
        )
        if "RESOURCE_EXHAUSTED" not in str(error) or not match:
            raise
        size, unit, limit, unit_of_limit = match.groups()
        powers = {"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
        used, available = (round(float(n) * 2 ** powers[u]) for n, u in ((size, unit), (limit, unit_of_limit)))
        return None, used, used - available


def local_bytes(tree: Any) -> int:
    """Bytes that one device holds of a tree of abstract arrays with shardings.

    >>> mesh = jax.sharding.AbstractMesh((4,), ("fsdp",))
    >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("fsdp"))
    >>> local_bytes(jax.ShapeDtypeStruct((8, 3), jnp.bfloat16, sharding=sharding))
    12
    """
    leaves = jax.tree.leaves(tree)
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
