"""XLNet's rows, orders and targets, and a step whatever the devices."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite import Experiment
from t5x_lite.data import Bytes, Data, Vocabulary, batches
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, XLNetConfig
from t5x_lite.objectives import PermutationLanguageModel, corrupt_rows
from t5x_lite.objectives.permutation_language_model import factorization_order
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.step import Program

from ..programs import new_state

VOCABULARY = Vocabulary(60, pad_id=5, unk_id=0, cls_id=3, sep_id=4, mask_id=6, eos_id=7, cls_last=True)
OBJECTIVE = PermutationLanguageModel(24, 10, memory_length=14, prediction_rate=0.25).for_vocabulary(VOCABULARY)
MODEL = XLNetConfig(
    vocab_size=60, num_heads=2, embed_dim=8, mlp_dim=12, num_layers=2, dropout_rate=0.0, heads=("permutation_lm",)
)
RANDOM = np.random.default_rng(0)
BATCH = {
    "ids": RANDOM.integers(9, 34, (64, 21)).astype(np.int32),
    "other": RANDOM.integers(34, 60, (64, 11)).astype(np.int32),
    "backward": np.arange(64) >= 32,
}


@pytest.fixture(scope="module")
def features():
    return jax.device_get(jax.jit(lambda batch: corrupt_rows(OBJECTIVE, jax.random.key(0), batch))(BATCH))


def test_rows_are_the_reused_part_two_segments_and_cls(features):
    followed = 0
    for row, (ids, segments) in enumerate(zip(features["inputs"], features["segments"], strict=True)):
        sides = [np.flip(BATCH[n][row]) if BATCH["backward"][row] else BATCH[n][row] for n in ("ids", "other")]
        np.testing.assert_array_equal(ids[:10], sides[0][:10])
        (cut, end), (last,) = np.flatnonzero(ids == 4), np.flatnonzero(ids == 3)
        assert (end, last) == (22, 23) and 10 < cut < 22
        np.testing.assert_array_equal(ids[10:cut], sides[0][10:cut])
        second = ids[cut + 1 : end]
        follows = np.array_equal(second, sides[0][cut:])
        assert follows or np.array_equal(second, sides[1][: len(second)])
        followed += follows
        assert segments.tolist() == [0] * (cut + 1) + [1] * (end - cut) + [2]
    assert 16 < followed < 48
    cuts = np.argmax(features["inputs"] == 4, axis=1)
    assert len(set(cuts.tolist())) > 6


def test_targets_are_spans_of_the_text_and_special_ids_are_none(features):
    ids, order, positions = (features[name] for name in ("inputs", "order", "positions"))
    rows = np.arange(64)[:, None]
    assert positions.shape == (64, 6)
    np.testing.assert_array_equal(features["targets"], ids[rows, positions])
    assert not np.isin(features["targets"], VOCABULARY.special_ids).any()
    assert all(len(set(row)) == 6 for row in positions.tolist())
    assert (order[rows, positions] % 2 == 1).all()
    assert (order[np.isin(ids, VOCABULARY.special_ids)] % 2 == 1).all()
    given = order % 2 == 0
    assert (given.sum(axis=1) == 24 - 6 - 3).all()
    # Given tokens have one number in each part, all others numbers of their own.
    for row in range(64):
        assert set(order[row, :10][given[row, :10]]) <= {0}
        assert set(order[row, 10:][given[row, 10:]]) <= {22}
        odd = order[row][~given[row]]
        assert len(set(odd)) == len(odd)
        assert (order[row, :10] < 22).all() and (order[row, 10:] >= 22).all()
    lengths = np.diff(positions, axis=1) == 1
    assert 0.1 < lengths.mean() < 0.7


def test_every_order_is_as_likely():
    """Of three predicted tokens the first in the order."""
    given = jnp.ones(12, bool).at[jnp.array([1, 4, 9])].set(False)
    keys = jax.random.split(jax.random.key(0), 3000)
    orders = np.asarray(jax.vmap(lambda key: factorization_order(key, given, 12))(keys))[:, [1, 4, 9]]
    counts = np.bincount(orders.argmin(axis=1), minlength=3)
    assert (np.abs(counts - 1000) < 120).all()


def test_running_text_is_a_format_too():
    objective = replace(OBJECTIVE, input_format="stream", both_ways=False)
    ids = np.arange(9, 33, dtype=np.int32)[None]
    features = corrupt_rows(objective, jax.random.key(0), {"ids": ids})
    np.testing.assert_array_equal(features["inputs"], ids)
    assert not features["segments"].any()
    assert objective.layout.spec["ids"].shape == (24,) and objective.layout.step == 24


def rows(count):
    """Windows of a text, each ten ids after the one before."""
    text = np.random.default_rng(1).integers(9, 60, 10 * count + 11).astype(np.int32)
    return [{"ids": text[10 * n : 10 * n + 21], "other": text[:11]} for n in range(count)]


EXPERIMENT = Experiment(
    model=MODEL, objective=OBJECTIVE, data=Data(tokenizer=Bytes()), optimizer=Sgd(Constant(0.5)), steps=2, batch_size=8
)


@functools.cache
def program(shape=None, devices=1, **changes):
    experiment = replace(EXPERIMENT, mesh=shape or MeshShape(), **changes)
    return Program(experiment, experiment.objective, make_mesh(experiment.mesh, jax.devices()[:devices]))


@pytest.fixture(scope="module")
def steps():
    one, data = program(), batches(rows(32), **EXPERIMENT.batch_order)
    states, figures = [jax.device_get(new_state(one))], []
    for step in range(2):
        state, metrics = one.train_step(jax.device_put(states[-1], one.state_shardings), data[step])
        states.append(jax.device_get(state))
        figures.append(jax.device_get(metrics))
    return data, states, figures


def test_half_of_a_batch_goes_backward_and_rows_go_on_where_the_memory_ends(steps):
    data, states, _ = steps
    first, second = data[0], data[1]
    assert first["backward"].tolist() == [False] * 4 + [True] * 4
    for row in range(8):
        one, next_one = first["ids"][row], second["ids"][row]
        if row < 4:
            np.testing.assert_array_equal(next_one[:11], one[10:])
        else:
            np.testing.assert_array_equal(np.flip(next_one)[:11], np.flip(one)[10:])
    assert [state.memory["length"].tolist() for state in states] == [[n] * 8 for n in (0, 10, 14)]
    reused = np.where(first["backward"][:, None], np.flip(first["ids"], axis=1), first["ids"])[:, :10]
    table = states[0].params["token_embedding"]["embedding"]
    np.testing.assert_allclose(states[1].memory["hidden"][:, 0, 4:], table[reused], rtol=1e-6)


@pytest.mark.slow
def test_on_eight_devices_and_in_parts_it_is_what_it_is_on_one_at_once(steps):
    data, states, figures = steps
    other = program(MeshShape(2, 2, tensor=2), 8, accumulation=2)
    state, metrics = other.train_step(jax.device_put(states[1], other.state_shardings), jax.device_put(data[1]))
    for name, value in figures[1].items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
    for found, expected in ((state.params, states[2].params), (state.memory, states[2].memory)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_what_does_not_go_together():
    with pytest.raises(InputError, match="reused_length=10 leaves no room for two segments and three special ids"):
        PermutationLanguageModel(14, 10)
    with pytest.raises(InputError, match="BertConfig, which has no stream of queries"):
        replace(EXPERIMENT, model=BertConfig())
    with pytest.raises(InputError, match=r"model.heads=\(\) lacks permutation_lm"):
        replace(EXPERIMENT, model=replace(MODEL, heads=()))
    with pytest.raises(InputError, match="the tokenizer has no cls token"):
        PermutationLanguageModel(24, 10).for_vocabulary(Vocabulary(30))
