"""Other settings of an experiment on a slice: the nearest that fits, and the fastest of those that do."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import jax

from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.parallel import MeshShape, make_mesh, num_parts
from t5x_lite.parallel.mesh import MESH_AXES
from t5x_lite.planning.plan import Plan, local_bytes, make_plan, objective_without_text
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.preparation import check_mesh
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.flops import step_flops
from t5x_lite.training.step import Program

Report = Callable[[str], None]
REMATS: tuple[Remat, ...] = ("none", "dots", "full")
"""From the most memory to the least."""


def settings(experiment: Experiment, topology: Topology) -> str:
    """The fields of an experiment that can be chosen for a slice, as options of the command line."""
    sizes = experiment.mesh.sizes(topology.num_devices)
    mesh = " ".join(f"--mesh.{axis} {size}" for axis, size in sizes.items())
    zero1 = " --zero1 True" if experiment.zero1 else ""
    return f"{mesh}{zero1} --remat {experiment.remat} --accumulation {experiment.accumulation}"


def nearest_fit(plan: Plan, report: Report, tries: int = 6) -> Plan | None:
    """The first of a plan's neighbours that fits: one setting changed, then several; None if none of `tries` does.

    In this order: the optimizer's state sharded over all chips, stronger rematerialization, more microbatches,
    parameters sharded over all chips of a slice, all that together, and the next larger slices. `report` is called with
    each that is compiled.
    """
    for experiment, topology in itertools.islice(_neighbours(plan), tries):
        report(f"trying {topology} {settings(experiment, topology)}")
        try:
            other = make_plan(experiment, topology)
        except InputError:
            continue
        if other.fits:
            return other
    return None


def _neighbours(plan: Plan) -> Iterator[tuple[Experiment, Topology]]:
    experiment, topology, memory = plan.experiment, plan.topology, plan.memory
    current = "none" if experiment.remat == "unroll" else experiment.remat  # which keeps as much
    stronger = REMATS[REMATS.index(current) + 1 :] if current in REMATS else ()
    copies = 1 if experiment.zero1 else plan.mesh["data"]
    if memory.optimizer * (copies - 1) / copies > plan.missing:
        yield replace(experiment, zero1=True), topology
    for remat in stronger:
        yield replace(experiment, remat=remat), topology
    counts = _accumulations(experiment, plan.mesh)
    # The gradients of all microbatches are added up in arrays of the parameters' size; the rest shrinks with the rows.
    available = memory.total - plan.missing
    kept = memory.total - memory.temporaries + memory.parameters
    enough = [count for count in counts if kept + memory.temporaries * experiment.accumulation / count < available]
    for count in enough[:2]:
        yield replace(experiment, accumulation=count), topology
    last = replace(experiment, remat=stronger[-1] if stronger else experiment.remat)
    slices = topology.num_slices
    everywhere = MeshShape(data=slices, fsdp=-1, tensor=plan.mesh["tensor"])
    if plan.mesh["data"] > slices:
        yield replace(last, mesh=everywhere), topology
    if counts:
        yield replace(last, accumulation=counts[-1]), topology
    published = (Topology.parse(f"{topology.chip.name}:{shape}", slices) for shape in topology.chip.shapes)
    for larger in sorted(published, key=lambda other: other.num_chips):
        if larger.num_chips > topology.num_chips:
            yield replace(last, mesh=everywhere), larger


def _accumulations(experiment: Experiment, mesh: dict[str, int]) -> list[int]:
    """Larger numbers of microbatches, by doubling, of which each chip has whole rows."""
    shares, counts = num_parts("activation_batch", mesh), []
    count = 2 * experiment.accumulation
    while experiment.batch_size % (count * shares) == 0:
        counts.append(count)
        count *= 2
    return counts


def search(
    experiment: Experiment,
    topology: Topology,
    report: Report,
    tries: int = 8,
    make: Callable[[Experiment, Topology], Plan] = make_plan,
) -> Iterator[Plan]:
    """Plans of other meshes, policies and microbatches, one after the other as they are compiled; see `rank`.

    The global batch stays as it is, since it changes what is computed. The experiment's own setting is the first of
    `tries` that are compiled; then comes the best of each mesh that divides, as `_estimate` ranks them, and then all
    others. A setting that needs more memory than one that did not fit is left out. `report` is called with each before
    `make` compiles it.
    """
    num_devices, plans, own = len(topology.devices), [], []
    with suppress(InputError):  # its mesh is for other slices
        own = [replace(experiment, mesh=MeshShape(**experiment.mesh.sizes(num_devices)))]
    ranked = sorted(_candidates(experiment, topology), key=_estimate(experiment, topology))
    best_of_mesh = {candidate.mesh: candidate for candidate in reversed(ranked)}
    firsts = sorted(best_of_mesh.values(), key=ranked.index)
    for candidate in dict.fromkeys([*own, *firsts, *ranked]):
        if len(plans) == tries:
            break
        if any(not plan.fits and _needs_as_much(candidate, plan) for plan in plans):
            continue
        report(f"{len(plans) + 1} of {tries}: {settings(candidate, topology)}")
        try:
            plans.append(make(candidate, topology))
        except InputError:
            continue  # an axis of a parameter is not divided
        yield plans[-1]


def rank(plans: list[Plan]) -> list[Plan]:
    """Those that fit by the time that a step is expected to take; then the others, the nearest to fitting first."""
    return sorted(plans, key=lambda plan: (not plan.fits, plan.expected_seconds if plan.fits else plan.missing))


def _candidates(experiment: Experiment, topology: Topology) -> Iterator[Experiment]:
    num_devices = topology.num_devices
    divisors = [size for size in range(1, num_devices + 1) if num_devices % size == 0]
    for sizes in itertools.product(divisors, repeat=len(MESH_AXES)):
        if math.prod(sizes) != num_devices:
            continue
        mesh = dict(zip(MESH_AXES, sizes, strict=True))
        if mesh["data"] % topology.num_slices:
            continue
        whole_batch = replace(experiment, mesh=MeshShape(**mesh), accumulation=1)
        try:
            check_mesh(whole_batch, jax.sharding.AbstractMesh(sizes, MESH_AXES))
        except InputError:
            continue
        zero1s = (False, True) if mesh["data"] > 1 else (experiment.zero1,)
        for accumulation in (1, *_accumulations(whole_batch, mesh)):
            for zero1, remat in itertools.product(zero1s, REMATS):
                yield replace(whole_batch, accumulation=accumulation, zero1=zero1, remat=remat)


def _needs_as_much(candidate: Experiment, plan: Plan) -> bool:
    """Whether it differs from a plan only in what takes more memory, or the same."""
    same_mesh = candidate.mesh.sizes(math.prod(plan.mesh.values())) == plan.mesh
    if plan.experiment.remat not in REMATS:
        return False  # offload, whose savings are not known beforehand
    weaker = REMATS.index(candidate.remat) <= REMATS.index(plan.experiment.remat)
    weaker &= candidate.zero1 <= plan.experiment.zero1
    return same_mesh and weaker and candidate.accumulation <= plan.experiment.accumulation


def _estimate(experiment: Experiment, topology: Topology) -> Callable[[Experiment], tuple[bool, float]]:
    """A key to sort settings by: (whether one seems not to fit, the seconds of a step without overlap of transfers)."""
    one_device = MeshShape(**dict.fromkeys(MESH_AXES, 1))
    program = Program(experiment, objective_without_text(experiment), make_mesh(one_device, topology.devices[:1]))
    model, chip, num_devices = experiment.model, topology.chip, len(topology.devices)
    state = program.abstract_state
    optimizer_bytes, parameter_bytes = map(local_bytes, (state.opt_state, state.params))
    other_bytes = local_bytes(state) - optimizer_bytes
    model_flops = step_flops(model, program.objective, experiment.batch_size)
    widest = getattr(model, model.networks[0]) if model.networks else model
    row_length, vocab_size = experiment.objective.layout.num_ids, widest.vocab_size or 0
    embed_dim, mlp_dim, num_heads = (getattr(widest, name, 0) for name in ("embed_dim", "mlp_dim", "num_heads"))
    num_layers = sum(getattr(widest, f"num_{stack}layers", 0) for stack in ("", "encoder_", "decoder_"))

    def key(candidate: Experiment) -> tuple[bool, float]:
        sizes, parts = candidate.mesh.sizes(num_devices), candidate.accumulation
        tensor, shards = sizes["tensor"], sizes["fsdp"] * sizes["tensor"]
        positions = candidate.batch_size * row_length * tensor / parts / num_devices
        kept, again = {
            "none": (12 * embed_dim + 4 * mlp_dim + 3 * num_heads * row_length, 1.0),
            "dots": (8 * embed_dim + 2 * mlp_dim, 1.05),
            "full": (2 * embed_dim, 4 / 3),
        }[candidate.remat]
        activations = 2 * positions * (num_layers * kept + 4 * vocab_size) / tensor
        optimizer = optimizer_bytes / shards / (sizes["data"] if candidate.zero1 else 1)
        memory = optimizer + (other_bytes + 2 * parameter_bytes) / shards + activations
        compute = again * model_flops / topology.num_chips / chip.peak_flops
        # Every microbatch reads the weights three times and adds its gradients to those of the others; eight bytes for
        # each number of a layer are about what the plan of T5 11B comes to.
        weights = 3 * parts * parameter_bytes * (1 / tensor + 1 / shards)
        sharded = (4 * mlp_dim + 3 * num_heads * row_length) / tensor
        traffic = weights + 2 * optimizer + 8 * parts * positions * num_layers * (12 * embed_dim + sharded)
        per_layer = 12 * parts * positions * num_layers * embed_dim
        # Parameters are gathered twice in two bytes, and their gradients scattered.
        sent = 1.5 * parts * parameter_bytes / tensor if sizes["fsdp"] > 1 else 0.0
        # Gradients in two bytes are summed on all devices, or on one each that sends the parameter in four.
        sent += (1.5 if candidate.zero1 else 1.0) * parameter_bytes / shards if sizes["data"] > 1 else 0.0
        sent += 2 * per_layer if tensor > 1 else 0.0
        # Each chip gathers the keys and values of the others, forward and twice backward.
        sent += per_layer * (sizes["sequence"] - 1)
        links = chip.ici_bandwidth / 3  # the groups of an axis have some of a chip's links
        seconds = max(compute, traffic / (chip.hbm_bandwidth / chip.devices)) + sent / links
        if topology.num_slices > 1:
            # Every microbatch adds up its gradients across the slices, of which each chip has a share.
            seconds += 2 * parts * parameter_bytes / topology.num_chips / chip.dcn_bandwidth
        return memory > chip.hbm_bytes / chip.devices, seconds

    return key
