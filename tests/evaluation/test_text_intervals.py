import numpy as np
import pytest

from t5x_lite.evaluation.answer_metrics import Written
from t5x_lite.evaluation.text_intervals import text_intervals
from t5x_lite.evaluation.text_metrics import score

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
    return Written(["yes" if one else "no" for one in right], [("yes",)] * count, ("no", "yes"), groups)


TEXTS = Written(*sentences(60, 0.8))
CLASSES = Written(["yes", "no", "maybe", "no"] * 20, [("yes",), ("yes",), ("no",), ("no",)] * 20, ("no", "yes"))
NUMBERS = Written([f"{n % 7 + n % 3}" for n in range(60)], [(f"{n % 7}",) for n in range(60)])
TAGGED = Written(["B-PER O O", "O B-LOC", "B-LOC I-LOC"] * 20, [("B-PER O O",), ("B-LOC O",), ("B-LOC O",)] * 20)
SPANS = Written(["the red house", "green"] * 30, [("red house",), ("a green house", "house")] * 30)
REFERENTS = Written(["the cat", "it", "a dog"] * 20, [("cat", "True"), ("dog", "False"), ("cat", "True")] * 20)
GROUPED = Written(["yes", "no"] * 30, [("yes",)] * 60, (), [f"{n // 3}" for n in range(60)])


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
    figures = score(answers.written, answers.right, metrics, words=answers.words, groups=answers.groups).figures
    ends = text_intervals(answers, metrics)
    assert set(ends) == set(figures)
    for name, (low, high) in ends.items():
        assert low - 1e-9 <= figures[name] <= high + 1e-9, name
    assert any(low < high for low, high in ends.values())


def test_a_share_has_that_of_the_binomial_distribution():
    low, high = text_intervals(of_classes(400, 0.7), ("exact_match",))["exact_match"]
    assert (high - low) / 2 == pytest.approx(1.96 * (0.7 * 0.3 / 400) ** 0.5, rel=0.1)
    assert (low + high) / 2 == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "rouge"])
def test_four_times_the_texts_halve_it(metric):
    few, many = (text_intervals(Written(*sentences(count, 0.8)), (metric,)) for count in (100, 400))
    for name, (low, high) in many.items():
        assert high - low == pytest.approx((few[name][1] - few[name][0]) / 2, rel=0.3)


def test_what_is_never_right_has_nothing_around_nothing():
    answers = Written(["x"] * 5, [("one two three four five",)] * 5)
    assert text_intervals(answers, ("bleu", "exact_match")) == {"bleu": (0.0, 0.0), "exact_match": (0.0, 0.0)}


def test_inputs_of_a_group_are_drawn_together():
    """Ten groups, of each of which all answers are right or none, say no more than ten answers would."""
    one_each = of_classes(10, 0.5)
    many = Written(
        [text for text in one_each.written for _ in range(20)],
        [("yes",)] * 200,
        (),
        [str(number) for number in range(10) for _ in range(20)],
    )
    low, high = text_intervals(one_each, ("exact_match",))["exact_match"]
    assert text_intervals(many, ("exact_match", "group_match")) == {
        "exact_match": pytest.approx((low, high)),
        "group_match": pytest.approx((low, high)),
    }
