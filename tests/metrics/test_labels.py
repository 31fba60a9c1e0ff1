"""Metrics of labels against their definitions."""

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics import bootstrap
from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.objectives import Predictions

RANDOM = np.random.default_rng(0)
RIGHT = RANDOM.integers(0, 2, 50)
SAID = np.where(RANDOM.random(50) < 0.7, RIGHT, 1 - RIGHT)


def figures(said, right, *metrics):
    return score(Predictions("classes", list(said), list(right)), metrics).figures


def test_two_classes_by_the_table_of_their_counts():
    both, said_alone, right_alone, neither = (
        ((said == SAID) & (right == RIGHT)).sum() for said, right in ((1, 1), (1, 0), (0, 1), (0, 0))
    )
    found = figures(SAID, RIGHT, "accuracy", "f1", "macro_f1", "matthews")
    of_one = 2 * both / (2 * both + said_alone + right_alone)
    of_zero = 2 * neither / (2 * neither + said_alone + right_alone)
    sides = (both + said_alone) * (both + right_alone) * (neither + said_alone) * (neither + right_alone)
    assert found["accuracy"] == pytest.approx((both + neither) / 50)
    assert found["f1"] == pytest.approx(of_one)
    assert found["macro_f1"] == pytest.approx((of_one + of_zero) / 2)
    assert found["matthews"] == pytest.approx((both * neither - said_alone * right_alone) / sides**0.5)


def test_correlations_by_their_definition():
    x, y = RANDOM.normal(size=30), RANDOM.normal(size=30)
    y += x
    found = figures(x, y, "pearson", "spearman")
    assert found["pearson"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    ranks = (values.argsort().argsort() for values in (x, y))
    assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("metric", ["matthews", "pearson", "spearman", "f1"])
def test_what_is_undefined_is_0(metric):
    assert figures([0, 0, 0], [0, 0, 0] if metric == "f1" else [0, 1, 0], metric) == {metric: 0.0}


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(InputError, match="3 predictions do not go with 2 references; give one for each"):
        figures([0, 1, 0], [0, 1], "accuracy")
    with pytest.raises(InputError, match="metric 'meteor' is not known; choose accuracy"):
        figures([0], [0], "meteor")


def ranked(logits, right):
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    return Predictions("classes", order[:, 0].tolist(), right.tolist(), ranked=order.tolist())


BOTH = ("accuracy", "top_5_accuracy")


def test_top_5_by_sorting_the_logits():
    logits, right = RANDOM.normal(size=(300, 20)), RANDOM.integers(0, 20, 300)
    logits[np.arange(300), right] += 1.0
    ranks = (logits > logits[np.arange(300), right][:, None]).sum(axis=1)

    def shares(some):
        return {"accuracy": (ranks[some] < 1).mean(), "top_5_accuracy": (ranks[some] < 5).mean()}

    assert score(ranked(logits, right), BOTH).figures == pytest.approx(shares(np.arange(300)))
    found = score_intervals(ranked(logits, right), BOTH)
    assert found == {name: pytest.approx(ends) for name, ends in bootstrap(shares, 300).items()}


def test_perfect_and_random_classifiers():
    right = np.arange(4000) % 50
    perfect = ranked(np.eye(50)[right], right)
    assert score(perfect, BOTH).figures == {"accuracy": 1.0, "top_5_accuracy": 1.0}
    assert set(score_intervals(perfect, BOTH).values()) == {(1.0, 1.0)}
    guessed = score_intervals(ranked(RANDOM.normal(size=(4000, 50)), right), BOTH)
    for name, chance in (("accuracy", 1 / 50), ("top_5_accuracy", 5 / 50)):
        low, high = guessed[name]
        assert low < chance < high
        assert (high - low) / 2 == pytest.approx(1.96 * (chance * (1 - chance) / 4000) ** 0.5, rel=0.15)


def test_top_5_of_fewer_classes_and_of_no_ranks():
    few = score(ranked(RANDOM.normal(size=(30, 3)), RANDOM.integers(0, 3, 30)), BOTH).figures
    assert few["top_5_accuracy"] == 1.0 and few["accuracy"] < 1.0
    with pytest.raises(InputError, match="needs the likeliest classes of each example; take accuracy"):
        figures([0, 1], [0, 1], "top_5_accuracy")
