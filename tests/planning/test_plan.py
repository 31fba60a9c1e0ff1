"""Plans: what is known without a compiler, and small steps compiled for small slices where there is one."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

from t5x_lite.cli.arguments import load_config
from t5x_lite.data import Bytes
from t5x_lite.errors import InputError
from t5x_lite.models import num_params
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.collectives import Collective
from t5x_lite.planning.plan import (
    Cost,
    Memory,
    Plan,
    compile_or_measure,
    local_bytes,
    make_plan,
    objective_without_text,
)
from t5x_lite.planning.search import _candidates, _needs_as_much, _neighbours, nearest_fit, rank, search, settings
from t5x_lite.planning.timing import ExpectedTime
from t5x_lite.planning.topology import Topology
from t5x_lite.training.flops import step_flops
from t5x_lite.training.step import Program

needs_compiler = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
SLICE = Topology.parse("v5e:2x2")
TWO_SLICES = Topology.parse("v5e:2x2", num_slices=2)
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def counted() -> set[tuple[type, type]]:
    """The pairs of a model and an objective whose operations have been counted: configs differ in size else."""
    return set()


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
@pytest.mark.slow
def test_every_config_can_be_planned_without_its_text(config, counted):
    experiment = load_config(str(config))
    if experiment.objective.teacher:
        pytest.skip("its teacher is a run that has not been made")
    model, objective = experiment.model, objective_without_text(experiment)
    reads_pictures = model.vocab_size is None
    assert reads_pictures or objective.vocabulary.size <= model.vocab_size
    if (pair := (type(model), type(objective))) not in counted:
        counted.add(pair)
        least = 2 * num_params(model) if reads_pictures else objective.input_length * model.vocab_size
        assert step_flops(model, objective, 2) > 6 * least


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(without_dropout):
    larger = replace(without_dropout, data=replace(without_dropout.data, tokenizer=Bytes(extra_ids=30)))
    with pytest.raises(InputError, match="model.vocab_size=264 is smaller than the tokenizer's 289 ids"):
        objective_without_text(larger)


class Refused:
    """A lowered step whose compilation fails with `message`."""

    def __init__(self, message):
        self.message = message

    def compile(self):
        raise jax.errors.JaxRuntimeError(self.message)


def test_out_of_memory_is_an_answer_and_any_other_error_an_error():
    message = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 97.50G of 95.74G hbm. Exceeded capacity"
    compiled, used, missing = compile_or_measure(Refused(message))
    assert (compiled, used) == (None, 97.5 * GIB)
    assert missing == pytest.approx(1.76 * GIB)
    message = "RESOURCE_EXHAUSTED: the size of temporaries (512.00M) exceeds available HBM (8)"
    assert compile_or_measure(Refused(message)) == (None, 2**29, 2**29 - 8)
    with pytest.raises(jax.errors.JaxRuntimeError, match="unimplemented"):
        compile_or_measure(Refused("INTERNAL: unimplemented"))


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_parameters_and_optimizer_shrink_with_the_shards(without_dropout, devices):
    experiment = replace(without_dropout, mesh=MeshShape(data=1, fsdp=-1))
    program = Program(
        experiment, objective_without_text(experiment), make_mesh(experiment.mesh, jax.devices()[:devices])
    )
    # Norms and the bias of positions lie whole on every device.
    whole = sum(
        leaf.size for leaf in jax.tree.leaves(program.abstract_state.params) if leaf.sharding.is_fully_replicated
    )
    total = num_params(experiment.model)
    held = whole + (total - whole) // devices if devices > 1 else total
    assert local_bytes(program.abstract_state.params) == 4 * held
    assert local_bytes(program.abstract_state.opt_state) == pytest.approx(2 * 4 * held, abs=64)


def test_bytes_of_a_device_are_those_of_its_part():
    mesh = make_mesh(MeshShape(data=2, fsdp=2, tensor=2))
    cut = NamedSharding(mesh, jax.sharding.PartitionSpec(("data", "fsdp"), "tensor"))
    assert local_bytes({"a": jax.ShapeDtypeStruct((8, 6), jnp.bfloat16, sharding=cut)}) == 2 * 2 * 3


@pytest.fixture(scope="module")
def small(without_dropout):
    """Large enough for the compiler to cut; its layers gather what they need."""
    model = replace(without_dropout.model, embed_dim=256, num_heads=4, head_dim=64, mlp_dim=512)
    return replace(without_dropout, model=model, batch_size=16, mesh=MeshShape(data=1, fsdp=-1))


@pytest.fixture(scope="module")
def plan(small):
    return make_plan(small, SLICE)


@needs_compiler
def test_a_step_that_fits(plan, small):
    assert plan.fits
    assert plan.missing == 0
    assert plan.memory.parameters == pytest.approx(4 * num_params(small.model) / 4, rel=0.05)
    assert plan.memory.optimizer == pytest.approx(2 * plan.memory.parameters, rel=0.01)
    assert plan.memory.temporaries < GIB
    assert plan.memory.total < plan.topology.chip.hbm_bytes
    assert plan.throughput == ("tokens", 16 * small.objective.layout.num_ids)
    # The compiler may compute a product of few rows without the unit for products, so that fewer are counted.
    assert 4 * plan.cost.flops == pytest.approx(plan.model_flops, rel=0.25)
    assert {each.kind for each in plan.cost.collectives} & {"all-gather", "all-reduce", "collective-permute"}
    assert 0 < plan.mfu < 1
    assert plan.seconds == max(plan.rooflines.values())
    assert plan.cost.expected.operations > 0
    assert plan.expected_seconds >= plan.seconds


@needs_compiler
def test_gradients_of_two_slices_are_added_up_between_them(plan, small):
    """A chip's share of the parameters goes over the network once a step, and the embedding's at most as a whole."""
    two = make_plan(replace(small, mesh=MeshShape(data=-1, fsdp=4)), TWO_SLICES)
    assert (two.fits, two.mesh["data"], two.topology.num_chips) == (True, 2, 8)
    between = [each for each in two.cost.collectives if each.network == "dcn"]
    assert {(each.kind, each.group_size) for each in between} == {("all-reduce", 2)}
    share = 4 * num_params(small.model) / 4
    # Half of it comes from the other slice, and half of the sum.
    assert share <= sum(each.num_bytes for each in between) <= 1.2 * share + 4 * small.model.vocab_size * 256
    assert two.rooflines["dcn"] == pytest.approx(sum(each.num_bytes for each in between) * 8 / 25e9)
    assert two.rooflines["ici"] == pytest.approx(
        sum(each.seconds for each in two.cost.collectives if each.network == "ici")
    )
    assert "dcn" not in plan.rooflines
    assert two.model_flops == plan.model_flops
    assert two.mfu == pytest.approx(two.model_flops / (two.seconds * 8 * SLICE.chip.peak_flops))


@needs_compiler
def test_what_is_computed_again_is_counted(plan, small):
    again = make_plan(replace(small, remat="full"), SLICE)
    assert again.model_flops == plan.model_flops
    assert again.cost.flops > 1.1 * plan.cost.flops


@needs_compiler
def test_a_step_that_does_not_fit_says_by_how_much_and_what_would(small):
    """Eight billion parameters and their moments on four chips, where each of four copies is whole."""
    model = replace(small.model, vocab_size=4_000_000, embed_dim=256)
    whole = replace(small, model=model, mesh=MeshShape(data=-1), optimizer=AdamW())
    plan = make_plan(whole, SLICE)
    assert not plan.fits
    assert plan.missing > 0
    assert plan.memory.total == pytest.approx(plan.missing + plan.topology.chip.hbm_bytes, rel=0.05)
    tried = []
    other = nearest_fit(plan, tried.append)
    assert other is not None
    assert other.fits
    assert other.mesh["data"] < 4 or other.experiment.accumulation > 1 or other.experiment.remat != "none"
    assert settings(other.experiment, other.topology) in tried[-1]


@needs_compiler
def test_a_search_ranks_what_fits(small):
    message = []
    found = []
    for plan in search(small, SLICE, message.append, tries=2):
        found.append(plan)
        assert len(message) == len(found), "it yields each before it compiles the next"
    plans = rank(found)
    assert len(plans) == 2
    # Its own setting is the first, so that nothing worse is recommended; then another mesh.
    own, other = (next(plan for plan in plans if line.endswith(settings(plan.experiment, SLICE))) for line in message)
    assert settings(small, SLICE) in message[0]
    assert own.mesh != other.mesh
    assert [plan.expected_seconds for plan in plans] == sorted(plan.expected_seconds for plan in plans)
    assert all(plan.fits for plan in plans)
    assert all(plan.experiment.batch_size == small.batch_size for plan in plans)


@needs_compiler
def test_a_search_from_a_mesh_for_other_slices(small):
    (plan,) = search(replace(small, mesh=MeshShape(data=3, fsdp=1)), SLICE, lambda message: None, tries=1)
    assert plan.fits


def test_offload_that_does_not_fit_rules_out_nothing(small):
    def rules_out(tried, candidate):
        plan = made_up(replace(small, remat=tried), mesh=small.mesh.sizes(4))
        return _needs_as_much(replace(small, remat=candidate), plan)

    assert not rules_out("offload", "none")
    assert rules_out("dots", "none")
    assert rules_out("dots", "dots")
    assert not rules_out("dots", "full")


@pytest.mark.parametrize("missing", [GIB, 4 * GIB])
def test_zero1_is_the_nearest_where_the_optimizer_alone_is_too_large(small, missing):
    """Of 4 GiB of moments, two copies save two; one copy has nothing to save."""
    copies = made_up(small, mesh={"data": 2, "fsdp": 2, "sequence": 1, "tensor": 1}, missing=missing, cost=None)
    first, _ = next(iter(_neighbours(copies)))
    assert first == (replace(small, zero1=True) if missing < 2 * GIB else replace(small, remat="dots"))
    for other in (replace(copies, experiment=first), replace(copies, mesh=copies.mesh | {"data": 1, "fsdp": 4})):
        assert next(iter(_neighbours(other)))[0].zero1 == other.experiment.zero1


def test_a_search_has_zero1_where_there_are_copies(small):
    candidates = list(_candidates(small, SLICE))
    assert len(candidates) == len(set(candidates))
    copied = [candidate for candidate in candidates if candidate.mesh.data > 1]
    assert sum(candidate.zero1 for candidate in copied) == len(copied) / 2
    assert not any(candidate.zero1 for candidate in candidates if candidate.mesh.data == 1)
    assert "--mesh.tensor 1 --zero1 True --remat none" in settings(replace(small, zero1=True), SLICE)
    plan = made_up(replace(small, zero1=True), mesh=small.mesh.sizes(4))
    assert _needs_as_much(small, plan) and not _needs_as_much(replace(small, zero1=True), made_up(small))


@needs_compiler
def test_what_does_not_divide_is_refused(small):
    with pytest.raises(InputError, match="does not fill 4 devices"):
        make_plan(replace(small, mesh=MeshShape(data=3, fsdp=1)), SLICE)
    with pytest.raises(InputError, match="batch_size=6 .* is not divided by the 4 devices"):
        make_plan(replace(small, batch_size=6), SLICE)
    with pytest.raises(InputError, match="mesh.data=1 cannot go across 2 slices; choose a multiple of 2"):
        make_plan(small, TWO_SLICES)


def made_up(experiment, **changes) -> Plan:
    """A plan of made-up figures."""
    memory = Memory(parameters=2 * GIB, optimizer=4 * GIB, other=0, temporaries=GIB, code=0)
    figures = {
        "experiment": experiment,
        "topology": SLICE,
        "mesh": {"data": 1, "fsdp": 4, "tensor": 1},
        "num_params": 100,
        "model_flops": 4 * 10**14,
        "memory": memory,
        "missing": 0,
        "cost": Cost(197 * 10**12, 819 * 10**8, collectives=(), expected=ExpectedTime(1.5, 0.25, 0.25)),
        "compile_seconds": 1.0,
    }
    return Plan(**figures | changes)


def test_the_slowest_of_three_bounds_a_step(without_dropout):
    plan = made_up(without_dropout)
    assert plan.rooflines == {"compute": pytest.approx(1.0), "hbm": pytest.approx(0.1), "ici": 0}
    assert (plan.bound, plan.seconds) == ("compute", pytest.approx(1.0))
    assert plan.mfu == pytest.approx(4e14 / (4 * 197e12))
    assert plan.throughput[0] == "tokens" and plan.per_second == pytest.approx(plan.throughput[1])
    assert made_up(without_dropout, cost=replace(plan.cost, memory_traffic=2 * 819 * 10**9)).bound == "hbm"


def test_the_network_of_several_slices_is_a_bound_of_its_own(without_dropout):
    plan = made_up(without_dropout)
    figures = {"count": 1, "num_bytes": 1, "largest": "f32[1]"}
    both = (
        Collective("all-reduce", 4, seconds=0.5, **figures),
        Collective("all-reduce", 2, seconds=2.0, network="dcn", **figures),
    )
    several = made_up(without_dropout, topology=TWO_SLICES, cost=replace(plan.cost, collectives=both))
    assert {name: several.rooflines[name] for name in ("ici", "dcn")} == {"ici": 0.5, "dcn": 2.0}
    assert (several.bound, several.seconds) == ("dcn", 2.0)
    assert several.mfu == pytest.approx(4e14 / (2 * 8 * 197e12)), "of the chips of all slices"


def test_other_settings_of_several_slices_keep_other_axes_within_one(without_dropout, monkeypatch):
    monkeypatch.setattr(Topology, "devices", property(lambda topology: (None,) * topology.num_chips))
    experiment = replace(without_dropout, batch_size=16)
    of_one = {candidate.mesh.data for candidate in _candidates(experiment, Topology.parse("v5e:2x4"))}
    of_two = {candidate.mesh.data for candidate in _candidates(experiment, TWO_SLICES)}
    assert (of_one, of_two) == ({1, 2, 4, 8}, {2, 4, 8})
    tried = []

    def refuse(experiment, topology):
        tried.append((experiment.mesh.sizes(topology.num_chips), topology))
        raise InputError("does not fit")

    monkeypatch.setattr("t5x_lite.planning.search.make_plan", refuse)
    plan = made_up(experiment, topology=TWO_SLICES, mesh={"data": 8, "fsdp": 1, "sequence": 1, "tensor": 1}, cost=None)
    assert nearest_fit(replace(plan, experiment=replace(experiment, mesh=MeshShape())), str, tries=99) is None
    assert all(mesh["data"] % 2 == 0 for mesh, _ in tried)
    assert {topology.num_slices for _, topology in tried} == {2}
    assert ({"data": 2, "fsdp": 4, "sequence": 1, "tensor": 1}, TWO_SLICES) in [(dict(m), t) for m, t in tried]


def test_a_step_is_expected_to_take_what_its_parts_take_and_never_less_than_at_least(without_dropout):
    plan = made_up(without_dropout)
    assert plan.expected_seconds == pytest.approx(2.0)
    assert plan.expected_mfu == pytest.approx(plan.mfu / 2)
    assert plan.expected_per_second == pytest.approx(plan.per_second / 2)
    faster = made_up(without_dropout, cost=replace(plan.cost, expected=ExpectedTime(0.5)))
    assert faster.expected_seconds == faster.seconds
