"""Scores of answers that are written: against definitions, with answers that read as none."""

import numpy as np
import pytest
from sklearn import metrics

from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import score
from t5x_lite.objectives import Predictions

RANDOM = np.random.default_rng(0)
WORDS = ("not_equivalent", "equivalent")
RIGHT = RANDOM.integers(0, 2, 60)
SAID = np.where(RANDOM.random(60) < 0.7, RIGHT, 1 - RIGHT)


def written(numbers, words=WORDS):
    return [words[number] for number in numbers]


def figures(said, right, *names, **options):
    references = [(texts,) if isinstance(texts, str) else texts for texts in right]
    return score(Predictions("texts", said, references, **options), names).figures


def test_classes_are_scored_by_their_words():
    found = figures(written(SAID), written(RIGHT), "exact_match", "f1", "matthews", "macro_f1", words=WORDS)
    assert found == {
        "exact_match": pytest.approx((SAID == RIGHT).mean()),
        "f1": pytest.approx(metrics.f1_score(RIGHT, SAID)),
        "matthews": pytest.approx(metrics.matthews_corrcoef(RIGHT, SAID)),
        "macro_f1": pytest.approx(metrics.f1_score(RIGHT, SAID, average="macro")),
    }
    swapped = figures(written(SAID), written(RIGHT), "f1", words=WORDS[::-1])["f1"]
    assert swapped == pytest.approx(metrics.f1_score(1 - RIGHT, 1 - SAID))


def test_what_is_no_class_is_wrong():
    """T5's code: the other class in an F1 of two, a class outside of the mean in an F1 of several, and for Matthews'
    correlation a class of its own."""
    said = written(SAID)
    said[:20] = ["equivalently"] * 10 + [""] * 10
    opposite = np.concatenate([1 - RIGHT[:20], SAID[20:]])
    none = np.concatenate([np.full(20, -1), SAID[20:]])
    found = figures(said, written(RIGHT), "exact_match", "f1", "matthews", "macro_f1", words=WORDS)
    assert found == {
        "exact_match": pytest.approx((opposite == RIGHT).mean()),
        "f1": pytest.approx(metrics.f1_score(RIGHT, opposite)),
        "matthews": pytest.approx(metrics.matthews_corrcoef(RIGHT, none)),
        "macro_f1": pytest.approx(metrics.f1_score(RIGHT, none, labels=[0, 1], average="macro")),
    }
    assert found["macro_f1"] > metrics.f1_score(RIGHT, none, average="macro", zero_division=0)


def test_numbers_are_parsed_and_what_is_none_counts_as_minus_one():
    right, said = [0.0, 1.2, 2.4, 3.75, 5.0], ["0.2", "1.0", "3", "4.0", "4.8 "]
    plain = [0.2, 1.0, 3.0, 4.0, 4.8]
    assert figures(said, list(map(str, right)), "pearson")["pearson"] == pytest.approx(np.corrcoef(right, plain)[0, 1])
    said[4] = "very"
    found = figures(said, list(map(str, right)), "pearson", "spearman")
    assert found["pearson"] == pytest.approx(np.corrcoef(right, [*plain[:4], -1.0])[0, 1])
    assert found["spearman"] == pytest.approx(1 - 6 * (16 + 4 * 1) / (5 * 24))  # the last falls from fifth to first


def test_any_of_several_answers_is_right():
    right = [("Saint Bernadette Soubirous", "Bernadette"), ("a copper statue",), ("1858",)]
    said = ["bernadette.", "the copper statue of Christ", "1858"]
    # Of "copper statue of christ" two of four words are in the answer, which has no others.
    expected = {"squad_exact_match": 200 / 3, "squad_f1": 100 * (1 + 2 / 3 + 1) / 3}
    assert figures(said, right, "squad") == pytest.approx(expected)
    assert figures(["Bernadette", "statue", "x"], right, "exact_match") == {"exact_match": pytest.approx(1 / 3)}


def test_tags_are_fitted_to_the_words():
    right = ["B-PER I-PER O B-LOC", "O B-ORG"]
    said = ["B-PER I-PER O", "O B-ORG O O"]
    found = figures(said, right, "tags", "entities")
    assert found["tag_accuracy"] == pytest.approx(5 / 6)
    tags = [["B-PER", "I-PER", "O", "O"], ["O", "B-ORG"]]
    expected = score(Predictions("tags", tags, [text.split() for text in right]), ("entities",)).figures
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["entities_recall"] == pytest.approx(2 / 3)
    # What is no tag is no entity.
    assert figures(["PER O X-LOC B-LOC", ""], right, "entities")["entities_precision"] == 1.0


def test_groups_are_right_as_a_whole():
    right, said = ["True", "False", "True", "True"], ["True", "True", "True", "True"]
    assert figures(said, right, "group_match", groups=["a", "a", "b", "b"]) == {"group_match": 0.5}
    assert figures(said, right, "group_match", groups=["a", "b", "c", "d"]) == {"group_match": 0.75}


def test_a_referent_is_compared_with_the_candidate():
    right = [("The stable", "True"), ("the yard", "False"), ("Bob's hat", "True"), ("Mr. Moncrieff", "True")]
    assert figures(["stable", "the stable", "Bob's hat", "moncrieff"], right, "referent") == {"referent": 1.0}
    assert figures(["yard", "the yard", "Bob", ""], right, "referent") == {"referent": 0.0}


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        ("f1", "metric 'f1' needs the words of the classes"),
        ("group_match", "needs groups of inputs"),
        ("referent", "needs candidates and their labels"),
    ],
)
def test_what_a_metric_lacks_is_said(metric, problem):
    with pytest.raises(InputError, match=problem):
        figures(["a"], ["a"], metric)
    with pytest.raises(InputError, match="'f1' is that of two classes, the task has 3; take macro_f1"):
        figures(["a"], ["a"], "f1", words=("a", "b", "c"))
