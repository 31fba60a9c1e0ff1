"""Tags, ends of answers and choices: what is asked where, and what it costs."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, T5Config
from t5x_lite.objectives import MultipleChoice, QuestionAnswering, Tagging, corrupt_rows

WORDS = Vocabulary(30, cls_id=2, sep_id=3, eos_id=3)
HEADS = ("tagging", "question_answering", "multiple_choice")
MODEL = BertConfig(
    vocab_size=30, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_length=12, heads=HEADS, num_classes=3
)
TAGGED = {
    "ids": [[2, 10, 11, 12, 3, 0, 0, 0], [2, 13, 14, 15, 16, 17, 18, 3]],
    "tags": [[-1, 0, -1, 2, -1, -1, -1, -1], [-1, 0, 1, 2, -1, -1, 1, -1]],
    "example": [0, 1],
}
ASKED = {
    "ids": [[2, 10, 3, 20, 21, 22, 3, 0], [2, 11, 3, 23, 24, 25, 26, 3]],
    "ends": [[4, 5], [0, 0]],
    "example": [0, 1],
    "window": [0, 4],
}
CHOSEN = {
    "ids": [
        [[2, 10, 11, 3, 20, 3, 0, 0], [2, 10, 11, 3, 21, 22, 3, 0]],
        [[2, 12, 3, 23, 24, 3, 0, 0], [2, 12, 3, 25, 3, 0, 0, 0]],
    ],
    "label": [1, 0],
}
ROWS = {Tagging(8): TAGGED, QuestionAnswering(8, 4, 4): ASKED, MultipleChoice(8, 2): CHOSEN}


@pytest.fixture(scope="module")
def answer(make_model):
    """`answer(objective, features)`: (loss, logits, predictions, prediction outputs), compiled once an objective."""
    module, params = make_model(MODEL)

    @partial(jax.jit, static_argnums=0)
    def of(objective, params, features):
        methods = (objective.logits, objective.predict, objective.prediction_outputs)
        return objective.loss(module, params, features, None), *(of(module, params, features) for of in methods)

    def with_valid(objective, features):
        return jax.device_get(of(objective, params, {"valid": np.ones(2, bool)} | features))

    return with_valid


def features_of(objective, rows=None):
    objective = objective.for_vocabulary(WORDS)
    batch = ROWS[replace(objective, vocabulary=None)] if rows is None else rows
    batch = {name: jnp.array(column, jnp.int32) for name, column in batch.items()}
    return objective, _corrupt(objective, batch)


@partial(jax.jit, static_argnums=0)
def _corrupt(objective, batch):
    return corrupt_rows(objective, jax.random.key(0), batch)


def shares(logits):
    logits = np.asarray(logits, np.float64)
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_tags_are_asked_for_where_words_begin(answer):
    objective, features = features_of(Tagging(8))
    assert features["example"].tolist() == [0, 1]
    (total, weight, metrics), logits, best, _ = answer(objective, features)
    places = [(0, 1, 0), (0, 3, 2), (1, 1, 0), (1, 2, 1), (1, 3, 2), (1, 6, 1)]
    said = shares(logits)
    assert float(total) == pytest.approx(-sum(np.log(said[place]) for place in places), rel=1e-5)
    assert (float(weight), float(metrics["loss"])) == (6.0, float(total))
    assert float(metrics["accuracy"]) == sum(int(best[row, place]) == tag for row, place, tag in places)


def test_both_ends_of_an_answer_cost_the_same(answer):
    objective, features = features_of(QuestionAnswering(8, 4, 4))
    np.testing.assert_array_equal(features["segments"], [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
    assert (features["example"].tolist(), features["window"].tolist()) == ([0, 1], [0, 4])
    (total, weight, _), _, _, outputs = answer(objective, features)
    said = shares(outputs.swapaxes(1, 2))
    asked = said[0, 0, 4] * said[0, 1, 5] * said[1, 0, 0] * said[1, 1, 0]
    assert float(total) == pytest.approx(-np.log(asked) / 2, rel=1e-5)
    assert float(weight) == 2.0


def test_choices_are_weighed_against_each_other(answer):
    objective, features = features_of(MultipleChoice(8, 2))
    (total, _, _), logits, *_ = answer(objective, features)
    assert logits.shape == (2, 2)
    said = shares(logits)
    assert float(total) == pytest.approx(-np.log(said[0, 1] * said[1, 0]), rel=1e-5)
    # The other order of the answers: the same loss, the other label.
    swapped = {"ids": [ids[::-1] for ids in CHOSEN["ids"]], "label": [1 - label for label in CHOSEN["label"]]}
    assert answer(*features_of(objective, swapped))[0][0] == pytest.approx(float(total))


@pytest.mark.parametrize("objective", ROWS, ids=lambda objective: objective.head)
def test_padding_and_rows_that_fill_up_change_nothing(answer, objective):
    objective, features = features_of(objective)
    first = answer(objective, features | {"valid": np.array([True, False])})[0]
    second = answer(objective, features | {"valid": np.array([False, True])})[0]
    filling = {name: np.stack([value[0], np.zeros_like(value[0])]) for name, value in jax.device_get(features).items()}
    filled = answer(objective, filling | {"valid": np.array([True, False])})[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), filled, first)
    both = answer(objective, features)[0]
    jax.tree.map(lambda a, b, c: np.testing.assert_allclose(a + b, c, rtol=1e-5), first, second, both)


@pytest.mark.parametrize("objective", ROWS, ids=lambda objective: objective.head)
def test_the_best_constant_answer_is_beside_the_loss(objective):
    objective, features = features_of(objective)
    found = objective.baseline_loss(jax.device_get(features), MODEL)
    tags = [1 / 3, 1 / 3, 1 / 3]
    expected = {"tagging": -sum(p * np.log(p) for p in tags), "question_answering": np.log(2)}
    assert found == pytest.approx(expected.get(objective.head, np.log(2)))


@pytest.mark.parametrize("objective", ROWS, ids=lambda objective: objective.head)
def test_what_does_not_fit_the_model_is_said(objective):
    name = type(objective).__name__
    with pytest.raises(InputError, match=rf"lacks {objective.head}, which {name} trains; set model.heads"):
        objective.check_model(replace(MODEL, heads=()))
    with pytest.raises(InputError, match=f"T5Config, which {name} cannot train; give it an encoder"):
        objective.check_model(T5Config())
    with pytest.raises(InputError, match="objective.input_length=8 exceeds model.max_length=7"):
        objective.check_model(replace(MODEL, max_length=7))
    with pytest.raises(InputError, match=f"has no cls token, which {name} needs"):
        objective.for_vocabulary(Vocabulary(30))
