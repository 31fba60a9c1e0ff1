"""Frozen parameters keep every bit, have no moments, and do not count in the gradient's norm; the others learn."""

import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util

from t5x_lite import load
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS
from t5x_lite.optim.masks import TrainableMask
from t5x_lite.optim.optimizers import Adafactor, Adam, AdamW, Lamb, ParameterAverage
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training import Evaluation, Experiment
from t5x_lite.training.experiment import differences
from t5x_lite.training.initialization import FromRun
from t5x_lite.training.step import Program

AXES = {
    "embeddings": {"token": ("vocab", "embed"), "norm": {"scale": ("norm",)}},
    "encoder": {"layers": {"kernel": ("layers", "embed", "mlp"), "bias": ("layers", "mlp")}},
    "head": {"kernel": ("embed", "classes")},
}
SHAPES = {
    "embeddings": {"token": (9, 4), "norm": {"scale": (4,)}},
    "encoder": {"layers": {"kernel": (3, 4, 6), "bias": (3, 6)}},
    "head": {"kernel": (4, 2)},
}
OPTIMIZERS = {
    "Adam": Adam(Constant(0.1), clip_norm=0.1),
    "AdamW": AdamW(Constant(0.1), clip_norm=0.1, weight_decay=0.5),
    "Lamb": Lamb(Constant(0.1), weight_decay=0.5),
    "Adafactor": Adafactor(Constant(0.1), clip_norm=0.1, min_dim_size_to_factor=2),
}


def draw(seed, scale=1.0):
    random = np.random.default_rng(seed)
    is_shape = lambda node: isinstance(node, tuple)  # noqa: E731
    return jax.tree.map(lambda shape: random.normal(0, scale, shape).astype(np.float32), SHAPES, is_leaf=is_shape)


def flat(tree):
    return traverse_util.flatten_dict(jax.device_get(tree), sep="/")


def run(transformation, params, gradients):
    """(parameters after the gradients, state), compiled in one program."""

    @jax.jit
    def updated(params, gradients):
        state = transformation.init(params)
        for gradient in gradients:
            updates, state = transformation.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        return params, state

    return jax.device_get(updated(params, gradients))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_trained_part_moves_as_if_it_were_alone(name):
    """Frozen numbers keep every bit, even the sign of a zero; the others take the steps of an optimizer without the
    frozen ones, which neither clipping nor moments depend on."""
    params, gradients = draw(0), [draw(1), draw(2, 10.0)]
    params["embeddings"]["token"][0] = -0.0
    params["encoder"]["layers"]["bias"][:] = -0.0
    optimizer = replace(OPTIMIZERS[name], frozen=("embeddings/*",), frozen_layers=1)
    after, state = run(optimizer.build(AXES), params, gradients)

    def alone(tree):
        return {
            "encoder": {"layers": {path: leaf[1:] for path, leaf in tree["encoder"]["layers"].items()}},
            "head": tree["head"],
        }

    axes = {name: AXES[name] for name in ("encoder", "head")}
    expected, expected_state = run(OPTIMIZERS[name].build(axes), alone(params), [alone(one) for one in gradients])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), alone(after), expected)
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, expected_state)
    for path, leaf in flat(after).items():
        bits, before = leaf.view(np.int32), flat(params)[path].view(np.int32)
        if path.startswith("embeddings"):
            np.testing.assert_array_equal(bits, before, err_msg=path)
        elif path.startswith("encoder"):
            np.testing.assert_array_equal(bits[0], before[0], err_msg=path)
            assert (bits[1:] != before[1:]).all(), path
        else:
            assert (bits != before).all(), path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_frozen_parameters_the_state_is_optaxs(name):
    """It has the same tree, so that earlier runs resume."""
    optimizer, params = OPTIMIZERS[name], draw(0)
    mask = optimizer.trained(AXES)
    assert mask.select(params) is mask.stop_gradient(params) is mask.merge(params, None) is params
    clip = [optax.clip_by_global_norm(optimizer.clip_norm)] if optimizer.clip_norm else []
    plain = optax.chain(*clip, *optimizer.scaling(AXES), optax.scale_by_learning_rate(lambda count: 0.1))
    expected = jax.tree.structure(jax.eval_shape(plain.init, params))
    for decay in (1.0, 0.8):
        state = jax.eval_shape(replace(optimizer, layerwise_decay=decay).build(AXES).init, params)
        assert jax.tree.structure(state) == expected


def test_selected_leaves_are_merged_back():
    mask = TrainableMask(AXES, ("*/norm/*", "head/kernel"), frozen_layers=2)
    one, other = draw(0), draw(1)
    both = mask.merge(mask.select(one), other)
    assert {path for path in flat(one) if path not in flat(mask.select(one))} == {
        "embeddings/norm/scale",
        "head/kernel",
    }
    jax.tree.map(np.testing.assert_array_equal, mask.select(both), mask.select(one))
    np.testing.assert_array_equal(both["head"]["kernel"], other["head"]["kernel"])
    np.testing.assert_array_equal(both["encoder"]["layers"]["kernel"][:2], other["encoder"]["layers"]["kernel"][:2])
    np.testing.assert_array_equal(both["encoder"]["layers"]["kernel"][2:], one["encoder"]["layers"]["kernel"][2:])


def test_a_sentence_describes_the_frozen_parameters():
    mask = TrainableMask(AXES, ("*/norm/*", "head/*"), frozen_layers=2)
    assert mask.describe(draw(0)) == (
        "frozen are 72 of 138 parameters: the lowest 2 of 3 encoder/layers, embeddings/norm/scale, head/*"
    )


ALBERT = PRESETS["albert-base-v2"]


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (
            None,
            {"frozen": ("encoder/layer/*",)},
            "'encoder/layer/.*' matches no parameter; choose among decoder/.*, enc",
        ),
        (None, {"frozen": ("*",)}, "freezes every parameter; leave some to train"),
        (None, {"frozen_layers": 1}, "none of the 1 encoder/layers to train; choose at most 0, or freeze"),
        (None, {"frozen": ("*/layers/*",), "frozen_layers": 1}, "counts layers of a stack, and there is none to train"),
        (ALBERT, {"frozen_layers": 1}, "frozen_layers=1 counts layers of a stack, and there is none to train"),
    ],
)
def test_what_cannot_be_frozen_is_refused_with_the_experiment(tiny, model, fields, message):
    optimizer = AdamW(Constant(1e-3), **fields)
    with pytest.raises(InputError, match=message):
        if model is None:
            replace(tiny, optimizer=optimizer)
        optimizer.check_model(model)


@pytest.mark.parametrize("fields", [{"frozen_layers": -1}, {"layerwise_decay": 0.0}, {"layerwise_decay": 1.1}])
def test_values_out_of_range_are_named(fields):
    (field,) = fields
    with pytest.raises(InputError, match=f"{field}=.*choose"):
        Adam(Constant(1e-3), **fields)


def test_it_is_part_of_the_experiment_and_older_files_have_none(frozen_run):
    written = frozen_run.to_json()
    assert Experiment.from_json(written) == frozen_run
    without = replace(frozen_run, optimizer=AdamW(Constant(0.01)))
    newer = ("frozen", "layerwise", '"rates"')
    lines = [line for line in without.to_json().splitlines() if not any(name in line for name in newer)]
    assert len(lines) == len(without.to_json().splitlines()) - 5
    assert Experiment.from_json("\n".join(lines)) == without
    changed = {field for field, _, _ in differences(without, frozen_run)}
    assert changed == {"optimizer.frozen", "optimizer.frozen_layers", "optimizer.layerwise_decay"}


@pytest.fixture(scope="module")
def frozen_run(experiment_of) -> Experiment:
    """Everything at once, on a BERT of two layers."""
    optimizer = AdamW(
        Constant(0.01),
        frozen=("embeddings/*", "*/self_attention/*"),
        frozen_layers=1,
        layerwise_decay=0.8,
    )
    base = experiment_of("teacher")
    model, evaluation = replace(base.model, pooler=False), Evaluation(0, rows=8)
    return replace(
        base, model=model, optimizer=optimizer, average=ParameterAverage(0.5), steps=4, evaluation=evaluation
    )


@pytest.fixture(scope="module")
def finished(frozen_run, train, tmp_path_factory):
    """The folder of the whole run, with a checkpoint after three of its steps."""
    train(frozen_run, folder := tmp_path_factory.mktemp("frozen"), report=False)
    return folder


@pytest.fixture(scope="module")
def program(finished, frozen_run, programs):
    """The compiled one of that run."""
    return programs[frozen_run]


RAW = {"ids": np.random.default_rng(1).integers(5, 90, (8, 24)).astype(np.int32)}


def is_frozen(path):
    return path.startswith("embeddings") or "/self_attention/" in path


def two_steps(program):
    """(the parameters, the norm of the gradient) after two steps, in which frozen parameters and their average stay.

    Only trained numbers have moments, two each, and count in the norm of the gradient.
    """
    state = program.init()
    before, selected = flat(state.params), program.trained.select(jax.device_get(state.params))
    moments = sum(leaf.size for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim)
    assert moments == 2 * sum(leaf.size for leaf in jax.tree.leaves(selected))
    state, metrics = program.train_step(state, jax.device_put(RAW))
    first_moment = jax.device_get(jax.tree.leaves(optax.tree.get(state.opt_state, "mu")))
    norm = np.linalg.norm(np.concatenate([leaf.reshape(-1) for leaf in first_moment]))
    assert float(metrics["gradient_norm"]) == pytest.approx(norm / (1 - 0.9), rel=1e-5)
    state, metrics = program.train_step(state, jax.device_put(RAW))
    for kept in (state.params, state.average):
        for path, leaf in flat(kept).items():
            first = len(leaf) if is_frozen(path) else int("/layers/" in path)
            np.testing.assert_array_equal(leaf[:first], before[path][:first], err_msg=path)
            assert is_frozen(path) or (leaf[first:] != before[path][first:]).any(), path
    return flat(state.params), float(metrics["gradient_norm"])


@pytest.mark.slow
def test_steps_keep_frozen_parameters(program):
    two_steps(program)


@pytest.mark.slow
def test_eight_devices_keep_them_too(program, frozen_run):
    mesh = MeshShape(2, 2, tensor=2)
    eight = Program(replace(frozen_run, mesh=mesh), program.objective, make_mesh(mesh, jax.devices()[:8]))
    (params, norm), (expected, expected_norm) = two_steps(eight), two_steps(program)
    assert norm == pytest.approx(expected_norm, rel=1e-4)
    for path, leaf in expected.items():
        np.testing.assert_allclose(params[path], leaf, rtol=1e-3, atol=1e-4, err_msg=path)


@pytest.mark.slow
def test_a_run_resumes_with_frozen_parameters_and_prints_them(finished, frozen_run, train, console, tmp_path):
    """Stopped and resumed, it is the same to the bit."""
    shutil.copytree(finished, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "4")
    with console.capture() as message:
        train(frozen_run, tmp_path / "again", report=False)
    assert "resuming from step 3" in message.get()
    assert "parameters: the lowest 1 of 2 encoder/layers, embeddings/*, encoder/layers/self_attention/" in message.get()
    ours, expected = (flat(load(folder).params) for folder in (tmp_path / "again", finished))
    for path, value in expected.items():
        np.testing.assert_array_equal(ours[path], value, err_msg=path)


@pytest.mark.slow
def test_runs_with_other_moments_are_refused(finished, frozen_run, train, tmp_path):
    """To resume, and to start from by `FromRun`, which takes the optimizer's state."""
    other = replace(frozen_run, optimizer=replace(frozen_run.optimizer, frozen_layers=0), steps=9)
    with pytest.raises(InputError, match=r"holds a run that differs in optimizer.frozen_layers \(1 there, 0 here\)"):
        train(other, finished)
    with pytest.raises(InputError, match="holds a run with optimizer.frozen_layers=1, this one has 0, so that their"):
        train(replace(other, start=FromRun(str(finished))), tmp_path / "other")


def test_parameters_of_one_number_are_trained_or_not_as_others_are():
    """As the temperature of a CLIP."""
    axes, params = AXES | {"scale": ()}, draw(0) | {"scale": np.float32(2.0)}
    mask = TrainableMask(axes, frozen=("head/*",), frozen_layers=1)
    mask.check(params)
    assert mask.select(params)["scale"] == 2.0
    mask = TrainableMask(axes, frozen=("scale",))
    mask.check(params)
    assert "scale" not in mask.select(params)
