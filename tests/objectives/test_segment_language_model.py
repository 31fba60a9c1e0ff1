"""Rows in order with a memory: whatever the devices and the microbatches, a step is the same."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite import Experiment
from t5x_lite.data import Bytes, Data, Vocabulary, batches
from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig, TransformerXLConfig
from t5x_lite.objectives import CausalLanguageModel, SegmentLanguageModel, corrupt_rows
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.step import Program

from ..programs import new_state

MODEL = TransformerXLConfig(
    vocab_size=48,
    num_heads=2,
    head_dim=4,
    embed_dim=12,
    mlp_dim=16,
    num_layers=2,
    cutoffs=(16, 32),
    dropout_rate=0.0,
)
OBJECTIVE = SegmentLanguageModel(input_length=6, memory_length=5).for_vocabulary(Vocabulary(48, eos_id=1))
EXPERIMENT = Experiment(
    model=MODEL, objective=OBJECTIVE, data=Data(tokenizer=Bytes()), optimizer=Sgd(Constant(0.5)), steps=2, batch_size=8
)
ROWS = [{"ids": np.asarray(ids, np.int32)} for ids in np.random.default_rng(0).integers(0, 48, (24, 7))]


@functools.cache
def program(shape=None, devices=1, **changes):
    experiment = replace(EXPERIMENT, mesh=shape or MeshShape(), **changes)
    return Program(experiment, experiment.objective, make_mesh(experiment.mesh, jax.devices()[:devices]))


@pytest.fixture(scope="module")
def steps():
    """Batches of steps 0 to 3, of which the last begins another epoch, and what they make of the first state."""
    one, data = program(), batches(ROWS, **EXPERIMENT.batch_order)
    states, figures = [jax.device_get(new_state(one))], []
    for step in range(4):
        state, metrics = one.train_step(jax.device_put(states[-1], one.state_shardings), data[step])
        states.append(jax.device_get(state))
        figures.append(jax.device_get(metrics))
    return [data[step] for step in range(4)], states, figures


def test_the_memory_goes_on_and_begins_anew_with_the_epoch(steps):
    data, states, _ = steps
    assert [state.memory["length"].tolist() for state in states] == [[n] * 8 for n in (0, 5, 5, 5, 5)]
    assert [batch["continues"].tolist() for batch in data] == [[n != 0] * 8 for n in (0, 1, 2, 0)]
    # The embeddings of the last five inputs, which the first layer has read.
    table = np.concatenate([states[1].params["token_embedding"][f"embedding_{n}"] for n in range(3)])
    expected = table[data[1]["ids"][:, 1:6]] * 12**0.5
    np.testing.assert_allclose(states[2].memory["hidden"][:, 0], expected, rtol=1e-5)


def test_what_went_before_matters_within_an_epoch_alone(steps):
    data, states, figures = steps
    one, forgotten = program(), jax.tree.map(np.zeros_like, states[1].memory)
    for step, same in ((1, False), (3, True)):
        state = states[step].replace(memory=forgotten)
        _, metrics = one.train_step(jax.device_put(state, one.state_shardings), data[step])
        assert (float(metrics["loss"]) == float(figures[step]["loss"])) == same


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        (MeshShape(2, 2, tensor=2), {"accumulation": 2}),
        pytest.param(MeshShape(2), {"remat": "full"}, marks=pytest.mark.slow),
    ],
    ids=["data, fsdp, tensor, microbatches", "rematerialised"],
)
def test_devices_and_microbatches_do_not_matter(steps, shape, changes):
    data, states, figures = steps
    other = program(shape, 2 if shape == MeshShape(2) else 8, **changes)
    state = jax.device_put(states[1], other.state_shardings)
    state, metrics = other.train_step(state, jax.device_put(data[1]))
    for name, value in figures[1].items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
    for found, expected in ((state.params, states[2].params), (state.memory, states[2].memory)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_evaluation_remembers_more(steps):
    _, states, _ = steps
    objective = replace(OBJECTIVE, evaluation_memory_length=9, same_length=True)
    one = program(objective=objective)
    memory = one.evaluation_memory(4)
    assert memory["hidden"].shape == (4, 2, 9, 12)
    rows, losses = np.stack([row["ids"] for row in ROWS[:4]]), []
    for continues in (False, True):
        batch = {"ids": rows, "continues": np.full(4, continues)}
        metrics, after = one.ordered_eval_step(
            states[1].params, batch, np.ones(4, bool), np.array([0, 1], np.int32), memory
        )
        memory = after
        losses.append(float(metrics["loss"].sum))
    assert memory["length"].tolist() == [9] * 4
    # The second time it has the row itself in its memory.
    assert abs(losses[0] - losses[1]) > 1e-3


def test_inputs_and_targets():
    features = corrupt_rows(OBJECTIVE, jax.random.key(0), {"ids": jnp.arange(14).reshape(2, 7)})
    assert features["inputs"].tolist() == [list(range(6)), list(range(7, 13))]
    assert features["targets"].tolist() == [list(range(1, 7)), list(range(8, 14))]


def test_what_does_not_go_together():
    with pytest.raises(InputError, match="within_documents=True hides what comes before a document"):
        SegmentLanguageModel(within_documents=True)
    with pytest.raises(InputError, match="GptConfig, which has no memory of segments"):
        replace(EXPERIMENT, model=GptConfig(vocab_size=300))
    with pytest.raises(InputError, match="reads rows in order, which go with neither a Mixture nor"):
        replace(EXPERIMENT, data=replace(EXPERIMENT.data, augmentation_repeats=2))
    with pytest.raises(InputError, match="within_documents=True packs several texts in a row"):
        replace(EXPERIMENT, objective=CausalLanguageModel(6, within_documents=True))
