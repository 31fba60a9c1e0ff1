"""The inverse cloze task: what a row becomes, the loss over the batch of all devices, and what cannot be trained."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, GptConfig, RealmConfig, init_params
from t5x_lite.objectives import InverseCloze
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, replicated, use_mesh

from ..programs import corrupt

BERT = BertConfig(vocab_size=50, embed_dim=8, num_heads=2, mlp_dim=12, num_layers=1, max_length=16)
MODEL = RealmConfig(BERT, projection_dim=4)
OBJECTIVE = InverseCloze(8, 10, vocabulary=Vocabulary(50, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
ROW = {
    "ids": jnp.array([10, 11, 12, 13, 20, 21, 30, 0, 0, 0]),
    "sentences": jnp.array([1, 1, 1, 1, 2, 2, 3, 0, 0, 0]),
    "spans": jnp.zeros(10, jnp.int32),
}
PARTS = {(10, 11, 12, 13): (20, 21, 30), (20, 21): (10, 11, 12, 13, 30), (30,): (10, 11, 12, 13, 20, 21)}
WHOLE = (10, 11, 12, 13, 20, 21, 30)


def ids_in(row):
    return tuple(n for n in np.asarray(row).tolist() if n > 3)


corrupted = jax.jit(jax.vmap(OBJECTIVE.corrupt, (0, None)))


def test_a_sentence_and_the_rest_each_as_often():
    keys = jax.random.split(jax.random.key(0), 3000)
    found = corrupted(keys, ROW)
    pairs = [(ids_in(q), ids_in(p)) for q, p in zip(found["questions"], found["passages"], strict=True)]
    assert set(pairs) == {*PARTS.items(), *((sentence, WHOLE) for sentence in PARTS)}
    for sentence in PARTS:
        assert abs(sum(q == sentence for q, _ in pairs) / 3000 - 1 / 3) < 0.04
    assert abs(sum(p == WHOLE for _, p in pairs) / 3000 - 0.1) < 0.025
    first = np.asarray(found["questions"][0]).tolist()
    assert first[0] == 2 and first[len(ids_in(first)) + 1] == 3 and found["is_pair"].all()


def test_a_long_sentence_loses_its_end():
    row = {
        "ids": jnp.arange(10, 20),
        "sentences": jnp.repeat(jnp.array([1, 2]), jnp.array([8, 2])),
        "spans": ROW["spans"],
    }
    keys = jax.random.split(jax.random.key(0), 20)
    found = {ids_in(one) for one in corrupted(keys, row)["questions"]}
    assert found == {tuple(range(10, 16)), (18, 19)}


@pytest.fixture(scope="module")
def batch():
    """Eight rows, the third of which has one sentence."""
    draw = np.random.default_rng(0)
    ids = draw.integers(10, 50, (8, 10)).astype(np.int32)
    sentences = np.tile(np.repeat([1, 2], 5), (8, 1)).astype(np.int32)
    sentences[2] = 1
    rows = {"ids": ids, "sentences": sentences, "spans": np.zeros_like(ids)}
    params = jax.tree.map(lambda leaf: 3 * leaf, init_params(MODEL, jax.random.key(0)))
    return corrupt(OBJECTIVE, jax.random.key(1), rows), params


def test_the_loss_is_that_of_the_own_passage_among_those_of_pairs(batch):
    features, params = batch

    @jax.jit
    def compute(params, features):
        vectors = OBJECTIVE.apply(MODEL.build(), params, features)
        return vectors, OBJECTIVE.loss(MODEL.build(), params, features, None)

    (questions, passages), (total, weight, metrics) = compute(params, features)
    pairs = np.array([0, 1, 3, 4, 5, 6, 7])
    scores = np.asarray(questions)[pairs] @ np.asarray(passages)[pairs].T
    expected = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)
    assert (weight, metrics["accuracy"]) == (7, (scores.argmax(axis=1) == np.arange(7)).sum())


@pytest.mark.slow
def test_eight_devices_compare_with_all(batch):
    features, params = batch

    def loss(params, features):
        return OBJECTIVE.loss(MODEL.build(), params, features, None)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(params, features)
    mesh = make_mesh(MeshShape(8))
    features = jax.device_put(features, batch_sharding(mesh))
    there, of_eight = jax.jit(use_mesh(mesh)(jax.value_and_grad(loss)))(
        jax.device_put(params, replicated(mesh)), features
    )
    np.testing.assert_allclose(there, value, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), of_eight, gradients)


def test_a_guess_has_the_same_chance_for_each_passage_of_a_batch():
    features = {"is_pair": np.array([True, True, False, True, True]), "rows": np.array([3, 3, 3, 2, 2])}
    assert OBJECTIVE.baseline_loss(features, MODEL) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("fields", "model", "message"),
    [
        ({}, GptConfig(vocab_size=50), "GptConfig, which retrieves nothing"),
        ({"passage_length": 15}, MODEL, "exceed model.encoder.max_length=16"),
        ({"input_length": 17}, MODEL, "exceed model.encoder.max_length=16"),
    ],
)
def test_models_that_do_not_fit(fields, model, message):
    with pytest.raises(InputError, match=message):
        replace(OBJECTIVE, **fields).check_model(model)
