"""Classes and numbers of whole texts."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, DistilBertConfig, T5Config
from t5x_lite.objectives import Classification, corrupt_rows

WORDS = Vocabulary(30, cls_id=2, sep_id=3, eos_id=3)
MODEL = BertConfig(
    vocab_size=30, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_length=10, heads=("classification",)
)
LENGTH = 8
TEXTS = ([2, 10, 11, 3, 12, 13, 3, 0], [2, 14, 3, 0, 0, 0, 0, 0], [2, 20, 21, 3, 22, 23, 24, 3])


def features_of(labels, texts=TEXTS):
    objective = Classification(LENGTH).for_vocabulary(WORDS)
    batch = {"ids": jnp.array(texts, jnp.int32), "label": jnp.array(labels, jnp.float32)}
    return objective, _corrupt(objective, batch)


@partial(jax.jit, static_argnums=0)
def _corrupt(objective, batch):
    return corrupt_rows(objective, jax.random.key(0), batch)


@pytest.fixture(scope="module")
def model(make_model):
    """(module, parameters)."""
    return make_model(MODEL)


@pytest.fixture(scope="module")
def answer():
    """`answer(objective, module, params, features)`: (loss, logits, predictions); all rows count without `valid`."""

    @partial(jax.jit, static_argnums=(0, 1))
    def of(objective, module, params, features):
        methods = (objective.logits, objective.predict)
        return objective.loss(module, params, features, None), *(of(module, params, features) for of in methods)

    def with_valid(objective, module, params, features):
        return jax.device_get(of(objective, module, params, {"valid": np.ones(3, bool)} | features))

    return with_valid


def test_features_hold_texts_segments_and_the_label():
    _, features = features_of([1.0, 0.0, -3.7])
    np.testing.assert_array_equal(features["inputs"], TEXTS)
    np.testing.assert_array_equal(features["segments"][0], [0, 0, 0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(features["segments"][1], 0)
    np.testing.assert_array_equal(features["label"], np.float32([1.0, 0.0, -3.7]))


def test_classes_by_cross_entropy(model, answer):
    objective, features = features_of([1.0, 0.0, 1.0])
    (total, weight, metrics), logits, predicted = answer(objective, *model, features)
    logits = logits.astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert float(total) == pytest.approx(-np.log(shares[np.arange(3), [1, 0, 1]]).sum(), rel=1e-5)
    assert (float(weight), float(metrics["loss"])) == (3.0, float(total))
    assert float(metrics["accuracy"]) == (logits.argmax(axis=1) == [1, 0, 1]).sum()
    np.testing.assert_array_equal(predicted, logits.argmax(axis=1))


def test_numbers_by_squared_error(make_model, answer):
    model = make_model(replace(MODEL, num_classes=1))
    objective, features = features_of([0.5, 4.2, -1.0])
    (total, weight, metrics), _, said = answer(objective, *model, features)
    assert said.std() > 0.01
    assert float(total) == pytest.approx(((said - np.float32([0.5, 4.2, -1.0])) ** 2).sum(), rel=1e-5)
    assert float(weight) == 3.0
    assert set(metrics) == {"loss"}


def test_rows_that_fill_up_a_batch_count_for_nothing(model, answer):
    objective, features = features_of([1.0, 0.0, 1.0])
    valid = np.array([True, False, True])
    first, second, every = (
        answer(objective, *model, features | {"valid": rows})[0] for rows in (valid, ~valid, np.ones(3, bool))
    )
    jax.tree.map(lambda a, b, c: np.testing.assert_allclose(a + b, c, rtol=1e-5), first, second, every)
    other = jax.device_get(features)["inputs"].copy()
    other[1] = 9
    changed = answer(objective, *model, features | {"inputs": other, "valid": valid})[0]
    jax.tree.map(np.testing.assert_array_equal, changed, first)


def test_dropout_in_the_head_is_driven_by_the_key(make_model):
    """Alone: with none in the layers, two keys still differ."""
    module, params = make_model(replace(MODEL, dropout_rate=0.0, attention_dropout_rate=0.0))
    objective, features = features_of([1.0, 0.0, 1.0])
    keys = (jax.random.key(0), jax.random.key(0), jax.random.key(1), None)
    logits = jax.jit(lambda key: objective.logits(module, params, features, key))
    first, again, other, none = map(logits, keys)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - none).max() > 1e-3


def test_a_guess_is_the_entropy_or_the_variance():
    labels = {"label": np.float32([0, 0, 0, 1])}
    objective = Classification(LENGTH)
    assert objective.baseline_loss(labels, MODEL) == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert objective.baseline_loss(labels, replace(MODEL, num_classes=1)) == 0.1875


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (T5Config(), "which Classification cannot train; give it an encoder"),
        (DistilBertConfig(), r"model.heads=\(\) lacks classification"),
        (DistilBertConfig(heads=("classification",), max_length=7), "input_length=8 exceeds model.max_length=7"),
    ],
)
def test_models_that_do_not_fit(model, problem):
    with pytest.raises(InputError, match=problem):
        Classification(LENGTH).check_model(model)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (("a", "b", "c"), "model.num_classes=2 does not go with the data, which has 3 classes; set .* to 3"),
        ((), "which has numbers for labels, which take one class; set model.num_classes to 1"),
        (None, "which the data has not; give LabeledTexts"),
    ],
)
def test_labels_that_do_not_fit(labels, problem):
    with pytest.raises(InputError, match=problem):
        Classification(LENGTH).check_labels(MODEL, labels)
    Classification(LENGTH).check_labels(MODEL, ("a", "b"))


def test_a_tokenizer_without_marks():
    with pytest.raises(InputError, match="no cls token, which Classification needs"):
        Classification(LENGTH).for_vocabulary(Vocabulary(30))
