"""F1 of entities, counted by hand."""

import pytest

from t5x_lite.errors import InputError
from t5x_lite.evaluation.entities import entity_scores

RIGHT = [["B-PER", "I-PER", "O", "B-LOC", "B-LOC"], ["O", "B-ORG", "I-ORG", "I-ORG"]]
SAID = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC"], ["O", "I-ORG", "I-ORG", "I-ORG"]]


def test_entities_count_whole():
    """Of four, PER is found, the two LOC are taken for one; ORG begins with I-, which only the default takes."""
    figures = entity_scores(SAID, RIGHT)
    assert figures["precision"] == pytest.approx(2 / 3)
    assert figures["recall"] == pytest.approx(2 / 4)
    assert figures["f1"] == pytest.approx(4 / 7)
    assert figures["accuracy"] == pytest.approx(7 / 9)
    strict = entity_scores(SAID, RIGHT, mode="strict")
    assert (strict["precision"], strict["recall"]) == (pytest.approx(1 / 2), pytest.approx(1 / 4))


def test_a_scheme_of_its_own():
    right = [["I-PER", "I-PER", "B-PER"]]  # IOB1: B- only where an entity follows another one of its type
    assert entity_scores(right, right, mode="strict", scheme="IOB1")["f1"] == 1.0
    assert entity_scores(right, right, mode="strict", scheme="IOB2")["recall"] == 1.0
    assert entity_scores([["I-PER", "I-PER", "I-PER"]], right, mode="strict", scheme="IOB1")["f1"] == 0.0


def test_no_entities_at_all():
    assert entity_scores([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0}


def test_what_does_not_match_is_refused():
    with pytest.raises(InputError, match="sentence 2 has 4 tags and 3 predicted"):
        entity_scores([SAID[0], SAID[1][:3]], RIGHT)
    with pytest.raises(InputError, match="1 tagged sentences do not go with 2"):
        entity_scores(SAID[:1], RIGHT)
    with pytest.raises(InputError, match="scheme='IOB3' is not known; choose IOB1"):
        entity_scores(SAID, RIGHT, scheme="IOB3")
