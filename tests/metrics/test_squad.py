"""Scores of answers against those of the official script, as Transformers carries it, and by hand."""

import random

import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import score
from t5x_lite.metrics.squad import exact_match, f1, normalize
from t5x_lite.objectives import Predictions

WORDS = ["the", "a", "an", "An", "The", "cat,", "dog.", "U.S.", "naïve", "Zürich", "東京", "don't", "1,024"]
WORDS += ["(new)", "—", "über-cool", "...", "?"]


def texts(count, *, empty):
    """Texts that often share words, some with articles or punctuation alone."""
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=source.randint(0 if empty else 1, 5))) for _ in range(count)]


def questions(count):
    """(predicted, references, how likely there is no answer): a third without answers."""
    source, predicted, right = random.Random(1), texts(count, empty=True), texts(3 * count, empty=False)
    answers = [[] if index % 3 == 0 else right[3 * index : 3 * index + source.randint(1, 3)] for index in range(count)]
    predicted = [source.choice([text, *some]) for text, some in zip(predicted, answers, strict=True)]
    return predicted, answers, [source.random() for _ in range(count)]


def version_2(predicted, answers, doubt, threshold=0.0):
    no_answer = [value - threshold for value in doubt]
    figures = score(Predictions("spans", predicted, answers, no_answer=no_answer), ("squad2",)).figures
    return {name.removeprefix("squad2_"): value for name, value in figures.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", "cat"),
        ("a  U.S. Army's (new) tank", "us armys new tank"),
        ("theory of an atom", "theory of atom"),
        ("ÜBER", "über"),
        ("…", "…"),  # not ASCII
        ("a.n x", "x"),  # punctuation goes before articles do
        ("", ""),
    ],
)
def test_normalized_texts(text, expected):
    assert normalize(text) == expected


def test_the_best_answer_counts():
    assert exact_match("The cat!", ["dog", "cat"]) == 1.0
    assert exact_match("cats", ["dog", "cat"]) == 0.0
    assert f1("big green cat", ["a cat", "green cat sat"]) == pytest.approx(2 / 3)
    assert f1("cat cat", ["cat"]) == pytest.approx(2 / 3)  # a word counts as often as both have it


def test_two_texts_without_words():
    """Version 1.1 finds nothing in common, 2.0 the same: nothing."""
    assert f1("the", ["an"]) == 0.0
    assert f1("the", ["an"], empty_is_a_match=True) == 1.0
    assert f1("the", ["cat"], empty_is_a_match=True) == 0.0


def test_version_1_by_hand():
    figures = score(Predictions("spans", ["Cat", "", "dog"], [["cat"], ["dog"], ["a big dog"]]), ("squad",)).figures
    assert figures == {
        "squad_exact_match": pytest.approx(100 / 3),
        "squad_f1": pytest.approx(100 * (1 + 2 / 3) / 3),
    }


def test_version_2_by_hand():
    figures = version_2(["cat", "", "moon", "cow"], [["cat"], [], [], ["dog"]], [0.1, 0.8, 0.3, 0.9], 0.5)
    # The last is above the threshold and counts as unanswered, which is wrong.
    assert figures["exact"] == figures["f1"] == 50.0
    assert (figures["HasAns_exact"], figures["HasAns_total"]) == (50.0, 2)
    assert (figures["NoAns_f1"], figures["NoAns_total"]) == (50.0, 2)
    # Answering the first alone is best: it and the two without an answer.
    assert (figures["best_exact"], figures["best_exact_thresh"]) == (75.0, 0.1 - 0.5)


def test_the_best_threshold_is_the_best_of_all():
    predicted, answers, doubt = questions(60)
    # The search takes any text for an answer, though one of articles alone scores as none.
    predicted = [text if normalize(text) else "" for text in predicted]
    figures = version_2(predicted, answers, doubt)
    for name in ("exact", "f1"):
        by_threshold = {
            threshold: version_2(predicted, answers, doubt, threshold)[name] for threshold in (-1.0, *doubt)
        }
        assert figures[f"best_{name}"] == pytest.approx(max(by_threshold.values()))
        assert by_threshold[figures[f"best_{name}_thresh"]] == pytest.approx(figures[f"best_{name}"])


def test_version_1_takes_no_questions_without_an_answer():
    for names, first in (((), "1"), (("a", "b"), "b")):
        predictions = Predictions("spans", ["x", ""], [["x"], []], names)
        with pytest.raises(InputError, match=f"1 of 2 questions have no answer, the first of them '{first}'"):
            score(predictions, ("squad",))
