"""Other settings of an experiment on a slice: the nearest that fits, and the fastest of those that do."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax

from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.parallel import MeshShape, make_mesh, num_parts
from t5x_lite.parallel.mesh import MESH_AXES
from t5x_lite.planning.chips import Topology
from t5x_lite.planning.flops import step_flops
from t5x_lite.planning.plan import Plan, local_bytes, make_plan, objective_without_text
from t5x_lite.runs.preparation import check_mesh
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program

Report = Callable[[str], None]
REMATS: tuple[Remat, ...] = ("none", "dots", "full")
"""From the most memory to the least."""


def settings(experiment: Experiment, topology: Topology) -> str:
    """What of an experiment can be chosen for a slice, as options of the command line."""
    sizes = experiment.mesh.sizes(len(topology.devices))
    mesh = " ".join(f"--mesh.{axis} {size}" for axis, size in sizes.items())
    return f"{mesh} --remat {experiment.remat} --accumulation {experiment.accumulation}"


def nearest_fit(plan: Plan, report: Report, tries: int = 6) -> Plan | None:
    """The first of a plan's neighbours that fits: one setting changed, then several; None if none of `tries` does.

    In this order: more is computed again, the batch is cut into more parts, all chips share the parameters, all that
    together, and the next larger slices. `report` is called with each that is compiled.
    """
    for experiment, topology in _neighbours(plan):
        if tries == 0:
            break
        report(f"trying {topology} {settings(experiment, topology)}")
        tries -= 1
        try:
            other = make_plan(experiment, topology)
        except InputError:
            continue
        if other.fits:
            return other
    return None


def _neighbours(plan: Plan) -> Iterator[tuple[Experiment, Topology]]:
    experiment, topology, memory = plan.experiment, plan.topology, plan.memory
    stronger = REMATS[REMATS.index(experiment.remat) + 1 :] if experiment.remat in REMATS else ()
    parts = _accumulations(experiment, plan.mesh)
    available = memory.total - plan.missing
    # The gradients of all parts are added up in arrays of the parameters' size; the rest shrinks with the rows.
    enough = [
        count
        for count in parts
        if memory.total - memory.temporaries + memory.parameters + memory.temporaries * experiment.accumulation / count
        < available
    ]
    for remat in stronger:
        yield replace(experiment, remat=remat), topology
    for count in enough[:2]:
        yield replace(experiment, accumulation=count), topology
    last = replace(experiment, remat=stronger[-1] if stronger else experiment.remat)
    everywhere = MeshShape(**dict.fromkeys(MESH_AXES, 1) | {"fsdp": -1, "tensor": plan.mesh["tensor"]})
    if plan.mesh["data"] > 1:
        yield replace(last, mesh=everywhere), topology
    if parts:
        yield replace(last, accumulation=parts[-1]), topology
    for larger in _larger(topology):
        yield replace(last, mesh=everywhere), larger


def _larger(topology: Topology) -> list[Topology]:
    """The published slices of the same chip with more of them, the smallest first."""
    known = (Topology.parse(f"{topology.chip.name}:{shape}") for shape in topology.chip.shapes)
    return sorted((other for other in known if other.num_chips > topology.num_chips), key=lambda other: other.num_chips)


def _accumulations(experiment: Experiment, mesh: dict[str, int]) -> list[int]:
    """Into how many more parts the batch can be cut, two by two, so that each chip has a whole row of each."""
    shares, counts = num_parts("activation_batch", mesh), []
    count = 2 * experiment.accumulation
    while experiment.batch_size % (count * shares) == 0:
        counts.append(count)
        count *= 2
    return counts


def search(experiment: Experiment, topology: Topology, report: Report, tries: int = 8) -> list[Plan]:
    """Plans of other meshes, policies and parts of the batch, the fastest that fit first; those that do not at the end.

    The global batch stays as it is, being part of what is computed. The experiment's own setting is the first of
    `tries` that are compiled; then comes the best of each mesh that divides, by an estimate that puts them in order,
    and then all others. What needs more memory than one that did not fit is left out. `report` is called with each.
    """
    plans: list[Plan] = []
    for candidate in _in_order(experiment, topology):
        if len(plans) == tries:
            break
        if any(not plan.fits and _needs_as_much(candidate, plan) for plan in plans):
            continue
        report(f"{len(plans) + 1} of {tries}: {settings(candidate, topology)}")
        try:
            plans.append(make_plan(candidate, topology))
        except InputError:
            continue  # an axis of a parameter is not divided
    return sorted(plans, key=lambda plan: (not plan.fits, plan.seconds if plan.fits else plan.missing))


def _in_order(experiment: Experiment, topology: Topology) -> list[Experiment]:
    """The settings that are worth a try, the most promising first and none twice."""
    try:
        own = [replace(experiment, mesh=MeshShape(**experiment.mesh.sizes(len(topology.devices))))]
    except InputError:
        own = []  # its mesh is for other slices
    ranked = sorted(_candidates(experiment, len(topology.devices)), key=_Scale.of(experiment, topology).rank)
    best_of_mesh = {candidate.mesh: candidate for candidate in reversed(ranked)}
    firsts = sorted(best_of_mesh.values(), key=ranked.index)
    return list(dict.fromkeys([*own, *firsts, *ranked]))


def _candidates(experiment: Experiment, num_devices: int) -> Iterator[Experiment]:
    for sizes in _factorizations(num_devices, len(MESH_AXES)):
        mesh = dict(zip(MESH_AXES, sizes, strict=True))
        one_part = replace(experiment, mesh=MeshShape(**mesh), accumulation=1)
        try:
            check_mesh(one_part, jax.sharding.AbstractMesh(sizes, MESH_AXES))
        except InputError:
            continue
        for accumulation in (1, *_accumulations(one_part, mesh)):
            for remat in REMATS:
                yield replace(one_part, accumulation=accumulation, remat=remat)


def _factorizations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many, in order.

    >>> list(_factorizations(4, 2))
    [(1, 4), (2, 2), (4, 1)]
    """
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factorizations(number // first, parts - 1):
                yield (first, *rest)


def _needs_as_much(candidate: Experiment, plan: Plan) -> bool:
    """Whether it differs from a plan only in what takes more memory, or the same."""
    same_mesh = candidate.mesh.sizes(math.prod(plan.mesh.values())) == plan.mesh
    if plan.experiment.remat not in REMATS:
        return False  # offload, of which nobody knows beforehand what it spares
    weaker = REMATS.index(candidate.remat) <= REMATS.index(plan.experiment.remat)
    return same_mesh and weaker and candidate.accumulation <= plan.experiment.accumulation


@dataclass(frozen=True)
class _Scale:
    """What an estimate of time and memory takes; it is made to put settings in order, no more."""

    topology: Topology
    state_bytes: int
    parameter_bytes: int
    model_flops: int
    row_length: int
    num_layers: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    vocab_size: int

    @classmethod
    def of(cls, experiment: Experiment, topology: Topology) -> "_Scale":
        alone = MeshShape(**dict.fromkeys(MESH_AXES, 1))
        program = Program(experiment, objective_without_text(experiment), make_mesh(alone, topology.devices[:1]))
        model = experiment.model
        widest = getattr(model, model.networks[0]) if model.networks else model
        layers = [getattr(widest, name, 0) for name in ("num_layers", "num_encoder_layers", "num_decoder_layers")]
        return cls(
            topology=topology,
            state_bytes=local_bytes(program.abstract_state),
            parameter_bytes=local_bytes(program.abstract_state.params),
            model_flops=step_flops(model, program.objective, experiment.batch_size),
            row_length=experiment.objective.layout.num_ids,
            num_layers=sum(layers),
            embed_dim=getattr(widest, "embed_dim", 0),
            mlp_dim=getattr(widest, "mlp_dim", 0),
            num_heads=getattr(widest, "num_heads", 0),
            vocab_size=widest.vocab_size or 0,
        )

    def rank(self, experiment: Experiment) -> tuple[bool, float]:
        """(does not seem to fit, seconds of a step as they seem, as if nothing was done while chips send)."""
        chip, sizes = self.topology.chip, experiment.mesh.sizes(len(self.topology.devices))
        shards, copies = sizes["fsdp"] * sizes["tensor"], sizes["data"]
        chips, parts = self.topology.num_chips, experiment.accumulation
        positions = experiment.batch_size * self.row_length * sizes["tensor"] / parts / len(self.topology.devices)
        kept = {
            "none": 12 * self.embed_dim + 4 * self.mlp_dim + 3 * self.num_heads * self.row_length,
            "dots": 8 * self.embed_dim + 2 * self.mlp_dim,
            "full": 2 * self.embed_dim,
        }[experiment.remat]
        activations = 2 * positions * (self.num_layers * kept + 4 * self.vocab_size) / sizes["tensor"]
        memory = (self.state_bytes + 2 * self.parameter_bytes) / shards + activations
        again = {"none": 1.0, "dots": 1.05, "full": 4 / 3}[experiment.remat]
        compute = again * self.model_flops / chips / chip.peak_flops
        # Every part reads the weights three times and adds its gradients to those of the others; eight bytes for each
        # number of a layer are about what the plan of T5 11B comes to.
        weights = 3 * parts * self.parameter_bytes * (1 / sizes["tensor"] + 1 / shards)
        cut = (4 * self.mlp_dim + 3 * self.num_heads * self.row_length) / sizes["tensor"]
        memory_seconds = (weights + 8 * parts * positions * self.num_layers * (12 * self.embed_dim + cut)) / (
            chip.hbm_bandwidth / chip.devices
        )
        links = chip.ici_bandwidth / 3  # the groups of an axis have some of a chip's links
        # Sequence: each chip gathers the keys and values of the others, forward and twice backward.
        row_gathers = 12 * parts * positions * (sizes.get("sequence", 1) - 1) * self.num_layers * self.embed_dim / links
        gathered = 3 * parts * self.parameter_bytes / sizes["tensor"] / links if sizes["fsdp"] > 1 else 0.0
        summed = 2 * self.parameter_bytes / shards / links if copies > 1 else 0.0
        split = 12 * parts * positions * self.num_layers * 2 * self.embed_dim / links if sizes["tensor"] > 1 else 0.0
        sent = gathered + summed + split + row_gathers
        return memory > chip.hbm_bytes / chip.devices, max(compute, memory_seconds) + sent
