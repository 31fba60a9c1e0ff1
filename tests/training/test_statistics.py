"""Running statistics of batch normalization in a run: parameters that no optimizer changes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.data.layouts.base import Column, Layout
from t5x_lite.models import ResNetConfig, ViTConfig
from t5x_lite.objectives.base import Objective
from t5x_lite.optim.optimizers import AdamW, Lars, ParameterAverage
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape
from t5x_lite.runs.checkpoints import Checkpoints, read_state

from ..slow import mostly_slow


@dataclass(frozen=True)
class Pictures(Layout):
    """Small pictures with a class."""

    @property
    def spec(self):
        return {"image": Column((9, 9, 1), np.float32), "label": Column(())}

    def tokenize(self, examples, tokenizer, sentences):
        raise NotImplementedError


@dataclass(frozen=True)
class Classes(Objective):
    """The cross entropy of a picture's class."""

    layout: ClassVar[Layout] = Pictures()

    def corrupt(self, key, row):
        return dict(row)

    def forward(self, model, features, key):
        return model.class_logits(features["image"], deterministic=key is None)

    def loss_of(self, outputs, features, whole):
        total = optax.losses.softmax_cross_entropy_with_integer_labels(outputs, features["label"]).sum()
        return total, jnp.float32(len(outputs)), {"loss": total}

    def predict(self, module, params, features):
        raise NotImplementedError


MODEL = ResNetConfig((1,), (8,), stem_width=8, bottleneck=False, stem="whole", num_channels=1, num_classes=3)
RANDOM = np.random.default_rng(0)
BATCH = {
    "image": RANDOM.normal(2.0, 3.0, (16, 9, 9, 1)).astype(np.float32),
    "label": RANDOM.integers(0, 3, 16).astype(np.int32),
}


@pytest.fixture(scope="module")
def experiment(tiny):
    optimizer = AdamW(Constant(1e-2), weight_decay=0.5)
    return replace(tiny, model=MODEL, objective=Classes(), optimizer=optimizer, batch_size=16, mesh=MeshShape())


@pytest.fixture(scope="module")
def stepped(experiment, make_program):
    """The states after none, one and two steps on one device."""
    program = make_program(experiment)
    states = [program.init()]
    for _ in range(2):
        copy = jax.tree.map(jnp.copy, states[-1])
        states.append(program.train_step(copy, jax.device_put(BATCH))[0])
    return jax.device_get(states)


def statistics(state, norm="stem_norm"):
    return {name: state.params[norm][name] for name in ("mean", "variance")}


def test_a_step_moves_them_by_the_batch_alone(experiment, stepped):
    """By the momentum, with neither weight decay nor moments."""
    first, second, third = stepped
    module = experiment.model.build()
    for before, after in ((first, second), (second, third)):
        params, images = jax.device_put((before.params, BATCH["image"]))
        convolved = module.apply({"params": params}, images, method=lambda m, x: m.stem[0][0](x))
        expected = 0.9 * before.params["stem_norm"]["mean"] + 0.1 * np.asarray(convolved).mean((0, 1, 2))
        np.testing.assert_allclose(statistics(after)["mean"], expected, rtol=1e-4, atol=1e-6)
    assert np.abs(third.params["stem_norm"]["scale"] - first.params["stem_norm"]["scale"]).min() > 1e-3
    shapes = [leaf.shape for leaf in jax.tree.leaves(first.opt_state)]
    trained = sum(leaf.size for leaf in jax.tree.leaves(first.params)) - 2 * 8 * 3
    assert sum(int(np.prod(shape)) for shape in shapes if shape) == 2 * trained, "they have no moments"


@pytest.mark.parametrize("shape", mostly_slow([MeshShape(8), MeshShape(2, 4)], MeshShape(2, 4)), ids=["data", "fsdp"])
def test_eight_devices_normalize_the_batch_of_all(experiment, make_program, stepped, shape):
    program = make_program(replace(experiment, mesh=shape), devices=8)
    state, _ = program.train_step(program.init(), jax.device_put(BATCH))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3),
        jax.device_get(state.params),
        stepped[1].params,
    )
    np.testing.assert_allclose(state.params["stem_norm"]["mean"], statistics(stepped[1])["mean"], rtol=1e-4, atol=1e-6)


def test_microbatches_give_their_mean_and_an_average_has_them_too(experiment, make_program, stepped):
    changes = {"accumulation": 2, "average": ParameterAverage(0.9)}
    program = make_program(replace(experiment, **changes))
    state, _ = program.train_step(program.init(), jax.device_put(BATCH))
    np.testing.assert_allclose(state.params["stem_norm"]["mean"], statistics(stepped[1])["mean"], rtol=1e-4, atol=1e-6)
    # The mean of the variances of halves is not the variance of the whole.
    assert np.abs(state.params["stem_norm"]["variance"] - statistics(stepped[1])["variance"]).max() > 1e-4
    for name in ("mean", "variance"):
        np.testing.assert_array_equal(state.average["stem_norm"][name], state.params["stem_norm"][name])
    assert np.abs(state.average["stem_norm"]["scale"] - state.params["stem_norm"]["scale"]).max() > 1e-4


def test_a_linear_probe_moves_its_head_and_the_statistics_alone(experiment, make_program):
    """Of a frozen encoder whose features are normalized by the batch, with LARS, and with two microbatches."""
    sizes = {"embed_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1, "num_classes": 3}
    model = ViTConfig((9, 9), 3, 1, head_norm=True, **sizes)
    optimizer = Lars(Constant(0.5), frozen=("embeddings/*", "encoder/*"))
    program = make_program(replace(experiment, model=model, optimizer=optimizer, accumulation=2))
    before = jax.device_get(program.init().params)
    after = jax.device_get(program.train_step(program.init(), jax.device_put(BATCH))[0].params)
    for part in ("embeddings", "encoder"):
        jax.tree.map(np.testing.assert_array_equal, after[part], before[part])
    params, images = jax.device_put((before, BATCH["image"]))
    hidden_states = jax.jit(partial(program.module.apply, method="hidden_states"))
    features = hidden_states({"params": params}, images)[:, 0]
    expected = 0.9 * before["classification_norm"]["mean"] + 0.1 * features.mean(0)
    np.testing.assert_allclose(after["classification_norm"]["mean"], expected, rtol=1e-4, atol=1e-6)
    assert np.abs(after["classification"]["scores"]["kernel"] - before["classification"]["scores"]["kernel"]).min() > 0


def test_an_evaluation_reads_them(experiment, make_program, stepped):
    program, valid = make_program(experiment), jnp.ones(16, bool)
    params = jax.device_put(stepped[2].params)
    loss = program.eval_step(params, BATCH, valid, 0)["loss"].sum
    other = {**params, "stem_norm": params["stem_norm"] | {"mean": params["stem_norm"]["mean"] + 1.0}}
    assert abs(float(program.eval_step(other, BATCH, valid, 0)["loss"].sum - loss)) > 1e-3
    objective = program.experiment.objective
    loss_of = jax.jit(lambda params, rows: objective.loss(program.module, params, rows, None)[0])
    halves = [
        loss_of(params, {name: column[rows] for name, column in BATCH.items()}) for rows in (slice(0, 8), slice(8, 16))
    ]
    assert float(sum(halves)) == pytest.approx(float(loss), rel=1e-5)


def test_a_checkpoint_has_them(experiment, make_program, stepped, tmp_path):
    program = make_program(experiment)
    state = jax.device_put(stepped[2])
    with Checkpoints(tmp_path, experiment.checkpoints) as checkpoints:
        checkpoints.save(state, experiment, {})
        checkpoints.wait()
    again = read_state(tmp_path / "2", program.abstract_state)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again.params), stepped[2].params)
