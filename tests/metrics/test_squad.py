"""Scores of answers against those of the official script, as Transformers carries it, and by hand."""

import random

import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics.squad import exact_match, f1, normalize, scores_1_1, scores_2_0

WORDS = ["the", "a", "an", "An", "The", "cat,", "dog.", "U.S.", "naïve", "Zürich", "東京", "don't", "1,024"]
WORDS += ["(new)", "—", "über-cool", "...", "?"]


def texts(count, *, empty):
    """Texts that often share words, some with articles or punctuation alone."""
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=source.randint(0 if empty else 1, 5))) for _ in range(count)]


def questions(count):
    """(predictions, answers, how likely there is none): a third without answers, every tenth not predicted."""
    source, predicted, right = random.Random(1), texts(count, empty=True), texts(3 * count, empty=False)
    answers = {
        f"q{index}": [] if index % 3 == 0 else right[3 * index : 3 * index + source.randint(1, 3)]
        for index in range(count)
    }
    predictions = {
        f"q{index}": source.choice([predicted[index], *answers[f"q{index}"]]) for index in range(count) if index % 10
    }
    return predictions, answers, {question: source.random() for question in predictions}


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


def test_an_unanswered_question_counts_as_wrong_in_1_1():
    answers = {"a": ["cat"], "b": ["dog"], "c": ["a big dog"], "d": ["x"]}
    figures = scores_1_1({"a": "Cat", "c": "dog", "e": "nobody asked"}, answers)
    assert figures == {"exact_match": 25.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 4)}


def test_version_2_by_hand():
    answers = {"a": ["cat"], "b": [], "c": [], "d": ["dog"]}
    predictions = {"a": "cat", "b": "", "c": "moon", "d": "cow"}
    doubt = {"a": 0.1, "b": 0.8, "c": 0.3, "d": 0.9}
    figures = scores_2_0(predictions, answers, doubt, threshold=0.5)
    # "d" is above the threshold and counts as unanswered, which is wrong.
    assert figures["exact"] == figures["f1"] == 50.0
    assert (figures["HasAns_exact"], figures["HasAns_total"]) == (50.0, 2)
    assert (figures["NoAns_f1"], figures["NoAns_total"]) == (50.0, 2)
    # Answering "a" alone is best: it and the two without an answer.
    assert (figures["best_exact"], figures["best_exact_thresh"]) == (75.0, 0.1)


def test_the_best_threshold_is_the_best_of_all():
    predictions, answers, doubt = questions(200)
    answers = {question: answers[question] for question in predictions}
    # The search takes any text for an answer, though one of articles alone scores as none.
    predictions = {question: text if normalize(text) else "" for question, text in predictions.items()}
    figures = scores_2_0(predictions, answers, doubt)
    for name in ("exact", "f1"):
        by_threshold = {
            threshold: scores_2_0(predictions, answers, doubt, threshold)[name] for threshold in (-1.0, *doubt.values())
        }
        assert figures[f"best_{name}"] == pytest.approx(max(by_threshold.values()))
        assert by_threshold[figures[f"best_{name}_thresh"]] == pytest.approx(figures[f"best_{name}"])


def test_a_threshold_that_nothing_exceeds_changes_nothing():
    predictions, answers, doubt = questions(200)
    given, without = scores_2_0(predictions, answers, doubt), scores_2_0(predictions, answers)
    assert {name: value for name, value in given.items() if "best" not in name} == without


def test_questions_that_cannot_be_scored_are_refused():
    with pytest.raises(InputError, match="no questions"):
        scores_1_1({}, {})
    with pytest.raises(InputError, match="1 of 2 questions have no answer, the first of them 'b'"):
        scores_1_1({}, {"a": ["x"], "b": []})
    with pytest.raises(InputError, match="none of the 1 questions was answered"):
        scores_2_0({"b": "x"}, {"a": ["x"]})
    with pytest.raises(InputError, match="no_answer lacks 1 questions, the first of them 'a'"):
        scores_2_0({"a": "x"}, {"a": ["x"]}, {})
