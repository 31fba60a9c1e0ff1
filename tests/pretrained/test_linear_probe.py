"""The linear probe against scikit-learn, and its figures against the metrics."""

import random
import warnings

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics import bootstrap
from t5x_lite.metrics.scores import score
from t5x_lite.objectives import Predictions
from t5x_lite.pretrained.probing import check_labels, fit_probe, score_labels, score_tags

RANDOM = np.random.default_rng(0)
FEATURES = (RANDOM.normal(size=(400, 6)) * [1, 10, 0.1, 1, 1, 1] + 5).astype(np.float32)
DIRECTIONS = RANDOM.normal(size=(6, 3))
SCALED = (FEATURES - FEATURES[:300].mean(axis=0)) / FEATURES[:300].std(axis=0)
LABELS = [f"class {number}" for number in (SCALED @ DIRECTIONS).argmax(axis=1)]


@pytest.mark.parametrize("l2", [1.0, 50.0])
def test_it_is_scikit_learns_logistic_regression_on_standardised_features(l2):
    from sklearn.linear_model import LogisticRegression

    ours, converged = fit_probe(FEATURES[:300], LABELS[:300], l2=l2)
    theirs = LogisticRegression(C=1 / l2, max_iter=5000).fit(SCALED[:300], LABELS[:300])
    assert converged
    assert ours.predict(FEATURES[300:]).tolist() == theirs.predict(SCALED[300:]).tolist()
    ((_, scaler), (_, classifier)) = ours.steps
    np.testing.assert_allclose(scaler.transform(FEATURES), SCALED, atol=1e-4)
    np.testing.assert_allclose(classifier.coef_, theirs.coef_, atol=2e-2)


def test_it_reads_what_is_linear_and_nothing_where_there_is_nothing():
    probe, _ = fit_probe(FEATURES[:300], LABELS[:300])
    figures, ends = score_labels(probe.predict(FEATURES[300:]), LABELS[300:])
    assert figures["accuracy"] > 0.9
    assert all(low <= figures[name] <= high for name, (low, high) in ends.items())
    by_chance = RANDOM.permutation(LABELS).tolist()
    probe, _ = fit_probe(FEATURES[:300], by_chance[:300])
    figures, ends = score_labels(probe.predict(FEATURES[300:]), LABELS[300:])
    assert ends["accuracy"][0] < max(map(LABELS[300:].count, set(LABELS))) / 100
    assert figures["accuracy"] < 0.6


def test_it_says_where_it_was_stopped():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not fit_probe(FEATURES, LABELS, l2=1e-6, max_iterations=2)[1]


TAGS = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG")


@pytest.fixture(scope="module")
def tagged():
    """Two taggings of sentences that agree on most words."""
    source = random.Random(0)
    right = [source.choices(TAGS, k=source.randrange(1, 12)) for _ in range(300)]
    predicted = [[tag if source.random() < 0.8 else source.choice(TAGS) for tag in sentence] for sentence in right]
    return predicted, right


def test_figures_of_tags_are_those_of_the_metrics_and_sentences_are_drawn(tagged):
    predicted, right = tagged
    figures, ends = score_tags(predicted, right, resamples=200)
    assert list(figures) == ["f1", "precision", "recall", "accuracy"]
    whole = Predictions("tags", predicted, right)
    assert {f"entities_{name}": value for name, value in figures.items()} == score(whole, ("entities",)).figures
    drawn = np.random.default_rng(0).integers(0, 300, 300)
    some = score(whole.take(drawn), ("entities",)).figures
    assert ends["f1"][0] - 0.02 < some["entities_f1"] < ends["f1"][1] + 0.02
    # The same sentence again and again is no more evidence than it alone.
    repeated = score_tags(predicted[:30] * 10, right[:30] * 10, resamples=200)[1]["f1"]
    once = score_tags(predicted[:30], right[:30], resamples=200)[1]["f1"]
    assert np.diff(repeated) < np.diff(once)


def test_tags_that_are_no_entities_have_an_accuracy():
    figures, ends = score_tags([["NOUN", "VERB"], ["X"]], [["NOUN", "NOUN"], ["X"]], resamples=50)
    assert figures == {"accuracy": pytest.approx(2 / 3)}
    assert ends == {"accuracy": (pytest.approx(0.5), 1.0)}


def test_figures_of_labels_and_of_what_is_drawn_are_those_of_the_metrics():
    """A label that is neither correct nor predicted in a sample does not count in its mean."""
    predicted, right = list("abbcca"), list("ababcd")
    numbers = [["abcd".index(label) for label in side] for side in (predicted, right)]

    def figures(some):
        return score(Predictions("classes", *numbers).take(some), ("accuracy", "macro_f1")).figures

    found, ends = score_labels(predicted, right, resamples=40)
    assert found == figures(np.arange(6))
    assert ends == {name: pytest.approx(pair) for name, pair in bootstrap(figures, 6, resamples=40).items()}


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (
            "aab",
            "abccd",
            "the test has labels that training lacks: 'c' 2 times, 'd' 1 times; training has 'a', 'b': add",
        ),
        ("aaa", "aab", "all 3 labels of training are 'a'; give examples of two or more"),
        ("a", "ab", "training has 1 labels; a probe needs 2 or more, and hundreds to say anything"),
        ("ab", "", "test has 0 labels; a probe needs 2"),
    ],
)
def test_what_cannot_be_probed_is_refused(train, test, message):
    with pytest.raises(InputError, match=message):
        check_labels(list(train), list(test))


def test_a_weight_of_nothing_is_refused():
    with pytest.raises(InputError, match="l2=0.0 is not positive"):
        fit_probe(FEATURES, LABELS, l2=0.0)
