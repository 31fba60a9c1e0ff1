"""Figures by name, and their intervals."""

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.evaluation.answers import Answers
from t5x_lite.evaluation.scores import check_metrics, score_answers, score_intervals
from t5x_lite.objectives import Classification, MultipleChoice, QuestionAnswering, SpanCorruption, Tagging

RANDOM = np.random.default_rng(0)


def choose(answers, some):
    """Some of the answers by their numbers; one that is drawn twice has two names."""

    def chosen(values):
        return values and [values[number] for number in some]

    names = [f"{place} {number}" for place, number in enumerate(some)]
    return Answers(chosen(answers.predictions), chosen(answers.references), names, chosen(answers.no_answer))


LABELS = Answers(RANDOM.integers(0, 3, 90).tolist(), RANDOM.integers(0, 3, 90).tolist(), list(map(str, range(90))))
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")
SENTENCES = [[[TAGS[i] for i in RANDOM.integers(0, 5, 6)] for _ in range(40)] for _ in range(2)]
TAGGED = Answers(*SENTENCES, list(map(str, range(40))))
TEXTS = ["the cat", "a dog", "cat and dog", "", "Dogs!"]
QUESTIONS = Answers(
    [TEXTS[i] for i in RANDOM.integers(0, 5, 60)],
    [[TEXTS[i]] if TEXTS[i] else [] for i in RANDOM.integers(0, 5, 60)],
    list(map(str, range(60))),
    RANDOM.normal(size=60).tolist(),
)


@pytest.mark.parametrize(
    ("answers", "metrics"),
    [
        (LABELS, ("accuracy", "macro_f1", "matthews")),
        (TAGGED, ("accuracy", "entities", "strict_entities")),
        (QUESTIONS, ("squad2",)),
        (choose(QUESTIONS, np.flatnonzero([bool(texts) for texts in QUESTIONS.references])), ("squad",)),
    ],
)
def test_intervals_are_those_of_the_figures_over_drawn_examples(answers, metrics):
    """The sums over examples that make them quick are the figures themselves."""
    quick = score_intervals(answers, metrics, resamples=25, seed=3)
    assert len(quick) >= 2
    random, count = np.random.default_rng(3), len(answers.names)
    draws = [score_answers(choose(answers, random.integers(0, count, count)), metrics) for _ in range(25)]
    for name, interval in quick.items():
        expected = np.percentile([figures[name] for figures in draws], [2.5, 97.5])
        np.testing.assert_allclose(interval, expected, rtol=1e-9, err_msg=name)
        assert interval[0] <= score_answers(answers, metrics)[name] <= interval[1]


def test_thresholds_have_no_interval():
    figures = score_answers(QUESTIONS, ("squad2",))
    assert {"squad2_best_f1", "squad2_best_f1_thresh", "squad2_NoAns_f1"} <= figures.keys()
    assert set(score_intervals(QUESTIONS, ("squad2",), resamples=2)) == {"squad2_exact", "squad2_f1"}


@pytest.mark.parametrize(
    ("metric", "objective", "num_classes", "known"),
    [
        ("pearson", Classification(8), 2, "accuracy, f1, macro_f1, matthews"),
        ("accuracy", Classification(8), 1, "pearson, spearman"),
        ("squad", Tagging(8), 2, "accuracy, entities, strict_entities"),
        ("entities", QuestionAnswering(16, 4, 4), 2, "squad, squad2"),
        ("pearson", MultipleChoice(8), 2, "accuracy, f1"),
    ],
)
def test_metrics_that_do_not_go_with_the_task(metric, objective, num_classes, known):
    with pytest.raises(InputError, match=f"task_metrics has '{metric}'.*choose among {known}"):
        check_metrics((metric,), objective, num_classes)
    check_metrics((known.split(", ")[0],), objective, num_classes)


def test_pretraining_has_none():
    with pytest.raises(InputError, match="SpanCorruption has no answers for; leave it out"):
        check_metrics(("f1",), SpanCorruption(16), 0)
