"""Tags, ends of answers and choices: what is asked where, and what it costs."""

from dataclasses import replace

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
def model(make_model):
    """(module, parameters)."""
    return make_model(MODEL)


def features_of(objective, rows=None):
    objective = objective.for_vocabulary(WORDS)
    batch = ROWS[replace(objective, vocabulary=None)] if rows is None else rows
    batch = {name: jnp.array(column, jnp.int32) for name, column in batch.items()}
    return objective, corrupt_rows(objective, jax.random.key(0), batch)


def shares(logits):
    logits = np.asarray(logits, np.float64)
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_tags_are_asked_for_where_words_begin(model):
    objective, features = features_of(Tagging(8))
    assert features["example"].tolist() == [0, 1]
    total, weight, metrics = objective.loss(*model, features, None)
    logits = objective.logits(*model, features)
    places = [(0, 1, 0), (0, 3, 2), (1, 1, 0), (1, 2, 1), (1, 3, 2), (1, 6, 1)]
    said = shares(logits)
    assert float(total) == pytest.approx(-sum(np.log(said[place]) for place in places), rel=1e-5)
    assert (float(weight), float(metrics["loss"])) == (6.0, float(total))
    best = objective.predict(*model, features)
    assert float(metrics["accuracy"]) == sum(int(best[row, place]) == tag for row, place, tag in places)


def test_both_ends_of_an_answer_cost_the_same(model):
    objective, features = features_of(QuestionAnswering(8, 4, 4))
    np.testing.assert_array_equal(features["segments"], [[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
    assert (features["example"].tolist(), features["window"].tolist()) == ([0, 1], [0, 4])
    total, weight, _ = objective.loss(*model, features, None)
    said = shares(objective.prediction_outputs(*model, features).swapaxes(1, 2))
    asked = said[0, 0, 4] * said[0, 1, 5] * said[1, 0, 0] * said[1, 1, 0]
    assert float(total) == pytest.approx(-np.log(asked) / 2, rel=1e-5)
    assert float(weight) == 2.0


def test_choices_are_weighed_against_each_other(model):
    objective, features = features_of(MultipleChoice(8, 2))
    total, _, _ = objective.loss(*model, features, None)
    logits = objective.logits(*model, features)
    assert logits.shape == (2, 2)
    said = shares(logits)
    assert float(total) == pytest.approx(-np.log(said[0, 1] * said[1, 0]), rel=1e-5)
    # The other order of the answers: the same loss, the other label.
    swapped = {"ids": [ids[::-1] for ids in CHOSEN["ids"]], "label": [1 - label for label in CHOSEN["label"]]}
    assert float(objective.loss(*model, features_of(objective, swapped)[1], None)[0]) == pytest.approx(float(total))


@pytest.mark.parametrize("objective", ROWS, ids=lambda objective: objective.head)
def test_padding_and_rows_that_fill_up_change_nothing(model, objective):
    objective, features = features_of(objective)
    both = objective.loss(*model, features | {"valid": jnp.array([True, False])}, None)
    first = objective.loss(*model, jax.tree.map(lambda value: value[:1], features), None)
    for got, expected in zip(jax.tree.leaves(both), jax.tree.leaves(first), strict=True):
        assert float(got) == pytest.approx(float(expected), rel=1e-5)


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
