"""Figures by name, and their intervals."""

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import check_metrics, score, score_intervals
from t5x_lite.objectives import Predictions

RANDOM = np.random.default_rng(0)


LABELS = Predictions("classes", RANDOM.integers(0, 3, 90).tolist(), RANDOM.integers(0, 3, 90).tolist())
READ = Predictions("texts", ["no", "yes", "x"] * 30, [("yes",), ("yes",), ("no",)] * 30, words=("no", "yes", "maybe"))
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")
SENTENCES = [[[TAGS[i] for i in RANDOM.integers(0, 5, 6)] for _ in range(40)] for _ in range(2)]
TAGGED = Predictions("tags", *SENTENCES)
TEXTS = ["the cat", "a dog", "cat and dog", "", "Dogs!"]
QUESTIONS = Predictions(
    "spans",
    [TEXTS[i] for i in RANDOM.integers(0, 5, 60)],
    [[TEXTS[i]] if TEXTS[i] else [] for i in RANDOM.integers(0, 5, 60)],
    no_answer=RANDOM.normal(size=60).tolist(),
)


@pytest.mark.parametrize(
    ("answers", "metrics"),
    [
        (LABELS, ("accuracy", "macro_f1", "matthews")),
        (READ, ("macro_f1", "exact_match")),
        (TAGGED, ("accuracy", "entities", "strict_entities")),
        (QUESTIONS, ("squad2",)),
        (QUESTIONS.take(np.flatnonzero([bool(texts) for texts in QUESTIONS.references])), ("squad",)),
    ],
)
def test_intervals_are_those_of_the_figures_over_drawn_examples(answers, metrics):
    """The sums over examples that make them quick are the figures themselves."""
    quick = score_intervals(answers, metrics, resamples=25, seed=3)
    assert len(quick) >= 2
    random, count = np.random.default_rng(3), len(answers.predicted)
    draws = [score(answers.take(random.integers(0, count, count)), metrics).figures for _ in range(25)]
    for name, interval in quick.items():
        expected = np.percentile([figures[name] for figures in draws], [2.5, 97.5])
        np.testing.assert_allclose(interval, expected, rtol=1e-9, err_msg=name)
        assert interval[0] <= score(answers, metrics).figures[name] <= interval[1]


def test_thresholds_have_no_interval():
    figures = score(QUESTIONS, ("squad2",)).figures
    assert {"squad2_best_f1", "squad2_best_f1_thresh", "squad2_NoAns_f1"} <= figures.keys()
    assert set(score_intervals(QUESTIONS, ("squad2",), resamples=2)) == {"squad2_exact", "squad2_f1"}


@pytest.mark.parametrize(
    ("metric", "predicts", "known"),
    [
        ("pearson", "classes", "accuracy, top_5_accuracy, f1, macro_f1, matthews"),
        ("accuracy", "numbers", "pearson, spearman"),
        ("squad", "tags", "accuracy, tags, entities, strict_entities"),
        ("entities", "spans", "squad, squad2"),
        ("squad2", "texts", "tags, f1, entities, strict_entities, squad, rouge"),
    ],
)
def test_metrics_that_do_not_go_with_the_task(metric, predicts, known):
    with pytest.raises(
        InputError, match=f"metrics has '{metric}', which Head has no answers for; choose among {known}"
    ):
        check_metrics((metric,), predicts, "Head", "metrics")
    check_metrics(known.split(", "), predicts, "Head", "metrics")


def test_pretraining_has_none():
    with pytest.raises(InputError, match="metrics has 'f1', which SpanCorruption has no answers for; leave it out"):
        check_metrics(("f1",), None, "SpanCorruption", "metrics")
