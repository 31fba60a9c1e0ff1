"""What objectives of tasks predict: from logits to texts, tags and labels."""

from unittest.mock import create_autospec

import numpy as np
import pytest

from t5x_lite.data.tasks.question_answering import ContextQuestion
from t5x_lite.objectives import Classification, QuestionAnswering, Tagging
from t5x_lite.objectives.question_answering import Window, most_around
from t5x_lite.tokenizers.base import Tokenizer, TokenOffsets

OBJECTIVE = QuestionAnswering(12, 4, 4, answer_length=3)
CONTEXT = "zero one  two, three four"
SPANS = np.array([[0, 4], [5, 8], [10, 13], [13, 14], [15, 20], [21, 25]])


def logits(begins, ends, length=12):
    """Zeros, but for some places and their logits."""
    said = np.zeros((length, 2))
    for side, places in enumerate((begins, ends)):
        for place, value in places.items():
            said[place, side] = value
    return said


def test_the_likeliest_span_is_cut_from_the_text():
    window = [Window(4, 0, 6)]
    # Token 1 to token 3: the comma belongs to it, and both blanks.
    assert OBJECTIVE.best_answer([logits({5: 3.0}, {7: 2.0})], window, CONTEXT, SPANS) == ("one  two,", -5.0)
    # An end before its beginning is none, nor is one too far behind it.
    text, _ = OBJECTIVE.best_answer([logits({7: 3.0}, {5: 2.0, 8: 1.0})], window, CONTEXT, SPANS)
    assert text == ", three"
    text, _ = OBJECTIVE.best_answer([logits({4: 3.0}, {9: 2.0, 6: 1.0})], window, CONTEXT, SPANS)
    assert text == "zero one  two"


def test_outside_of_the_window_nothing_is_an_answer():
    # The question, the marks and the padding have the highest logits.
    said = logits({0: 9.0, 2: 9.0, 10: 9.0, 6: 1.0}, {0: 9.0, 3: 9.0, 11: 9.0, 6: 1.0})
    text, doubt = OBJECTIVE.best_answer([said], [Window(4, 0, 6)], CONTEXT, SPANS)
    assert (text, doubt) == ("two", 18.0 - 2.0)


def test_windows_are_weighed_against_each_other():
    windows = [Window(4, 0, 4), Window(4, 2, 4)]
    first, second = logits({5: 2.0}, {5: 2.0}), logits({6: 3.0}, {6: 3.0})
    text, doubt = OBJECTIVE.best_answer([first, second + 1.0], windows, CONTEXT, SPANS)
    # None fits as well as the window that is surest of an answer says.
    assert (text, doubt) == ("three", 0.0 - 8.0)
    # Token 2 stands at the second window's edge, and in the middle of the first one: there alone it begins an answer.
    assert OBJECTIVE.best_answer([first, logits({4: 9.0}, {4: 9.0})], windows, CONTEXT, SPANS)[0] == "one"


@pytest.mark.parametrize("token", range(20))
def test_every_token_has_one_window_that_shows_most_around_it(token):
    windows = [Window(0, first, 8) for first in (0, 4, 8, 12)]
    chosen = windows[most_around(windows, token)]

    def around(window):
        return min(token - window.first, window.first + 7 - token)

    assert around(chosen) == max(around(window) for window in windows)


def test_questions_whose_rows_are_there_are_answered_by_name():
    features = {
        "inputs": np.zeros((3, 12), int),
        "segments": np.array([[0] * 4 + [1] * 5 + [0] * 3, [0] * 4 + [1] * 5 + [0] * 3, [0] * 4 + [1] * 7 + [0]]),
        "example": np.array([0, 0, 1]),
        "window": np.array([0, 2, 0]),
    }
    prediction_outputs = np.stack([logits({5: 2.0}, {5: 2.0}), logits({}, {}), logits({9: 1.0}, {9: 1.0, 0: 4.0})])
    documents = [
        ContextQuestion("first", "?", CONTEXT, ("one",), (5,)),
        ContextQuestion("second", "?", CONTEXT, (), ()),
        ContextQuestion("not asked", "?", CONTEXT, (), ()),
    ]
    tokenizer = create_autospec(Tokenizer, instance=True)
    tokenizer.encode_with_offsets.return_value = [TokenOffsets(np.arange(6), SPANS)]
    found = OBJECTIVE.predictions(prediction_outputs, features, documents, tokenizer, None)
    assert found.names == ["first", "second"]
    assert found.predicted == ["one", "four"]
    assert found.references == [["one"], []]
    assert found.no_answer == [-4.0, 2.0]


def test_tags_of_one_sentence_come_together():
    features = {"tags": np.array([[-1, 0, -1, 1], [-1, 2, -1, -1], [-1, 0, 0, -1]]), "example": np.array([4, 4, 5])}
    prediction_outputs = np.array([[9, 1, 9, 1], [9, 0, 9, 9], [9, 2, 0, 9]])
    found = Tagging(8).predictions(prediction_outputs, features, [], None, ("O", "B-A", "I-A"))
    assert found.references == [["O", "B-A", "I-A"], ["O", "O"]]
    assert found.predicted == [["B-A", "B-A", "O"], ["I-A", "O"]]


def test_labels_are_what_was_predicted():
    for labels, expected, outputs in ((("no", "yes"), "classes", [[1, 0], [0, 1]]), ((), "numbers", [[1.0], [0.0]])):
        outputs, features = np.array(outputs), {"label": np.array([1.0, 1.0])}
        found = Classification(8).predictions(outputs, features, [], None, labels)
        assert (found.type, found.predicted, found.references, found.names) == (
            expected,
            [1.0, 0.0],
            [1.0, 1.0],
            ["0", "1"],
        )
