"""F1 of entities, counted by hand and by seqeval."""

import random

import pytest
from seqeval import metrics
from seqeval.scheme import IOB2

from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import score
from t5x_lite.objectives import Predictions

RIGHT = [["B-PER", "I-PER", "O", "B-LOC", "B-LOC"], ["O", "B-ORG", "I-ORG", "I-ORG"]]
SAID = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC"], ["O", "I-ORG", "I-ORG", "I-ORG"]]


TAGS = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG")


def figures(said, right, metric="entities"):
    return {
        name.removeprefix(f"{metric}_"): value
        for name, value in score(Predictions("tags", said, right), (metric,)).figures.items()
    }


def test_entities_count_whole():
    """Of four, PER is found, the two LOC are taken for one; ORG begins with I-, which only the default takes."""
    found = figures(SAID, RIGHT)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 4)
    assert found["f1"] == pytest.approx(4 / 7)
    assert found["accuracy"] == pytest.approx(7 / 9)
    strict = figures(SAID, RIGHT, "strict_entities")
    assert (strict["precision"], strict["recall"]) == (pytest.approx(1 / 2), pytest.approx(1 / 4))


@pytest.mark.parametrize(
    ("metric", "options"), [("entities", {}), ("strict_entities", {"mode": "strict", "scheme": IOB2})]
)
def test_figures_are_those_of_seqeval(metric, options):
    source = random.Random(0)
    right = [source.choices(TAGS, k=source.randrange(1, 12)) for _ in range(300)]
    said = [[tag if source.random() < 0.8 else source.choice(TAGS) for tag in sentence] for sentence in right]
    assert figures(said, right, metric) == {
        "precision": pytest.approx(metrics.precision_score(right, said, **options), abs=1e-12),
        "recall": pytest.approx(metrics.recall_score(right, said, **options), abs=1e-12),
        "f1": pytest.approx(metrics.f1_score(right, said, **options), abs=1e-12),
        "accuracy": pytest.approx(metrics.accuracy_score(right, said), abs=1e-12),
    }


def test_no_entities_at_all():
    assert figures([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0}


def test_what_does_not_match_is_refused():
    with pytest.raises(InputError, match="sentence 2 has 4 tags and 3 predicted"):
        figures([SAID[0], SAID[1][:3]], RIGHT)
    with pytest.raises(InputError, match="1 predictions do not go with 2 references"):
        figures(SAID[:1], RIGHT)
