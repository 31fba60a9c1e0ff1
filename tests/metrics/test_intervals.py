"""Intervals of the bootstrap: by itself, and of the figures of metrics."""

import numpy as np
import pytest

from t5x_lite.metrics import bootstrap
from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.objectives import Predictions


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(3.0, 2.0, 900)
    low, high = bootstrap(lambda some: {"mean": values[some].mean()}, 900, resamples=2000)["mean"]
    half = 1.96 * values.std() / 30
    assert (low, high) == (pytest.approx(values.mean() - half, abs=0.02), pytest.approx(values.mean() + half, abs=0.02))


def test_the_same_draws_for_every_figure_and_every_call():
    values = np.random.default_rng(0).random(50)

    def figures(some):
        return {"mean": values[some].mean(), "twice": 2 * values[some].mean()}

    found = bootstrap(figures, 50, resamples=100)
    assert found == bootstrap(figures, 50, resamples=100)
    assert found["twice"] == (2 * found["mean"][0], 2 * found["mean"][1])
    assert found != bootstrap(figures, 50, resamples=100, seed=1)


WORDS = ("cat", "dog", "bird", "fish", "mouse", "horse", "sees", "bites", "the", "a")


def sentences(count, kept, seed=0):
    """(written, right): sentences of eight words, of which each is written with this probability, or another one."""
    random = np.random.default_rng(seed)
    right = random.choice(WORDS, size=(count, 8))
    written = np.where(random.random(right.shape) < kept, right, random.choice(WORDS, size=right.shape))
    return [" ".join(row) for row in written], [(" ".join(row),) for row in right]


def of_classes(count, share, groups=()):
    """Answers of which this share is right, in no order."""
    right = np.random.default_rng(1).permutation(count) < round(share * count)
    written = ["yes" if one else "no" for one in right]
    return Predictions("texts", written, [("yes",)] * count, words=("no", "yes"), groups=groups)


def texts(written, right, **options):
    return Predictions("texts", written, right, **options)


TEXTS = texts(*sentences(60, 0.8))
CLASSES = texts(["yes", "no", "maybe", "no"] * 20, [("yes",), ("yes",), ("no",), ("no",)] * 20, words=("no", "yes"))
NUMBERS = texts([f"{n % 7 + n % 3}" for n in range(60)], [(f"{n % 7}",) for n in range(60)])
TAGGED = texts(["B-PER O O", "O B-LOC", "B-LOC I-LOC"] * 20, [("B-PER O O",), ("B-LOC O",), ("B-LOC O",)] * 20)
SPANS = texts(["the red house", "green"] * 30, [("red house",), ("a green house", "house")] * 30)
REFERENTS = texts(["the cat", "it", "a dog"] * 20, [("cat", "True"), ("dog", "False"), ("cat", "True")] * 20)
GROUPED = texts(["yes", "no"] * 30, [("yes",)] * 60, groups=[f"{n // 3}" for n in range(60)])


@pytest.mark.parametrize(
    ("answers", "metrics"),
    [
        (TEXTS, ("bleu", "chrf", "rouge", "exact_match")),
        (CLASSES, ("exact_match", "f1", "macro_f1", "matthews")),
        (NUMBERS, ("pearson", "spearman")),
        (SPANS, ("squad",)),
        (TAGGED, ("tags", "entities", "strict_entities")),
        (REFERENTS, ("referent",)),
        (GROUPED, ("group_match", "exact_match")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_figure_has_one_around_it(answers, metrics):
    figures = score(answers, metrics).figures
    ends = score_intervals(answers, metrics, resamples=100)
    assert set(ends) == set(figures)
    for name, (low, high) in ends.items():
        assert low - 1e-9 <= figures[name] <= high + 1e-9, name
    assert any(low < high for low, high in ends.values())


def test_a_share_has_that_of_the_binomial_distribution():
    low, high = score_intervals(of_classes(400, 0.7), ("exact_match",))["exact_match"]
    assert (high - low) / 2 == pytest.approx(1.96 * (0.7 * 0.3 / 400) ** 0.5, rel=0.1)
    assert (low + high) / 2 == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "rouge"])
def test_four_times_the_texts_halve_it(metric):
    few, many = (score_intervals(texts(*sentences(count, 0.8)), (metric,)) for count in (100, 400))
    for name, (low, high) in many.items():
        assert high - low == pytest.approx((few[name][1] - few[name][0]) / 2, rel=0.3)


def test_what_is_never_right_has_nothing_around_nothing():
    answers = texts(["x"] * 5, [("one two three four five",)] * 5)
    assert score_intervals(answers, ("bleu", "exact_match")) == {"bleu": (0.0, 0.0), "exact_match": (0.0, 0.0)}


def test_inputs_of_a_group_are_drawn_together():
    """Ten groups, of each of which all answers are right or none, say no more than ten answers would."""
    one_each = of_classes(10, 0.5)
    many = texts(
        [text for text in one_each.predicted for _ in range(20)],
        [("yes",)] * 200,
        groups=[str(number) for number in range(10) for _ in range(20)],
    )
    low, high = score_intervals(one_each, ("exact_match",))["exact_match"]
    assert score_intervals(many, ("exact_match", "group_match")) == {
        "exact_match": pytest.approx((low, high)),
        "group_match": pytest.approx((low, high)),
    }
