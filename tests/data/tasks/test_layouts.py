"""Rows of tags, of questions and of choices."""

from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.data import ChoiceSets, QuestionWindows, Tagged, Vocabulary
from t5x_lite.errors import InputError

WORDS = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
LIKE_ROBERTA = replace(WORDS, separators=2)


def ids(*values):
    return np.array(values, np.int32)


def test_sentences_that_are_too_long_go_on_where_a_word_ends():
    rows = Tagged(8).start(WORDS)
    sizes = [1, 3, 2, 2, 4, 1]
    rows.add([np.arange(10, 10 + sum(sizes), dtype=np.int32), ids(*sizes), ids(0, 1, 2, 3, 4, 5)])
    rows.add([ids(50), ids(1), ids(7)])
    rows.finish()
    made = rows.take()
    assert [row["example"] for row in made] == [0, 0, 0, 1]
    assert [row["ids"].tolist() for row in made] == [
        [2, 10, 11, 12, 13, 14, 15, 3],
        [2, 16, 17, 18, 19, 20, 21, 3],
        [2, 22, 3, 0, 0, 0, 0, 0],
        [2, 50, 3, 0, 0, 0, 0, 0],
    ]
    # A tag at the first piece of each word.
    assert made[0]["tags"].tolist() == [-1, 0, 1, -1, -1, 2, -1, -1]
    assert made[1]["tags"].tolist() == [-1, 3, -1, 4, -1, -1, -1, -1]
    assert made[2]["tags"].tolist() == [-1, 5, *[-1] * 6]
    assert (rows.documents, rows.tokens, rows.rows, rows.padding, rows.too_long) == (2, 14, 4, 10, 0)


def test_a_word_that_no_row_holds_is_cut_and_counted():
    rows = Tagged(8).start(WORDS)
    rows.add([np.arange(10, 20, dtype=np.int32), ids(1, 9), ids(0, 1)])
    made = rows.take()
    assert [row["ids"].tolist() for row in made] == [[2, 10, 3, 0, 0, 0, 0, 0], [2, 11, 12, 13, 14, 15, 16, 3]]
    assert rows.first_too_long == (
        1,
        "word 2 has 9 ids and length=8 (the objective's input_length) holds 6",
    )


@pytest.mark.parametrize("vocabulary", [WORDS, LIKE_ROBERTA])
@pytest.mark.parametrize("stride", [1, 2, 5, 100])
@pytest.mark.parametrize("size", [1, 4, 5, 23])
def test_windows_show_every_token_and_every_answer_that_fits(stride, size, vocabulary):
    length, question, between = 10, ids(50, 51, 52), [3] * vocabulary.separators
    room = length - 2 - len(between) - len(question)
    context = np.arange(size, dtype=np.int32) + 60
    seen, held = set(), set()
    for begin in range(size):
        end = min(begin + 1, size - 1)
        rows = QuestionWindows(length, stride, 4).start(vocabulary)
        rows.add([question, context, ids(begin, end)])
        for row in rows.take():
            window = context[row["window"] : row["window"] + room]
            expected = [2, 50, 51, 52, *between, *window, 3]
            assert row["ids"].tolist() == expected + [0] * (length - len(expected))
            seen |= set(window.tolist())
            start, stop = row["ends"]
            if start:
                assert row["ids"][start : stop + 1].tolist() == context[begin : end + 1].tolist()
                held.add(begin)
        assert rows.too_long == (begin not in held)
    assert seen == set(context.tolist())
    if stride < room:
        assert held == set(range(size))


def test_questions_without_answers_point_at_cls_and_long_ones_are_cut():
    rows = QuestionWindows(10, 4, 2).start(WORDS)
    rows.add([ids(50, 51, 52), ids(60, 61), ids()])
    (row,) = rows.take()
    assert row["ids"].tolist() == [2, 50, 51, 3, 60, 61, 3, 0, 0, 0]
    assert (row["ends"].tolist(), row["example"], row["window"]) == ([0, 0], 0, 0)
    assert rows.too_long == 0


def test_two_separators_leave_room_for_a_token_of_each():
    rows = QuestionWindows(8, 4, 4).start(LIKE_ROBERTA)
    rows.add([ids(50, 51, 52, 53), ids(60), ids(0, 0)])
    (row,) = rows.take()
    assert (row["ids"].tolist(), row["ends"].tolist()) == ([2, 50, 51, 52, 3, 3, 60, 3], [6, 6])
    choices = ChoiceSets(8, num_choices=2).start(LIKE_ROBERTA)
    choices.add([ids(10, 11, 12), ids(20, 21), ids(22), 1])
    (row,) = choices.take()
    assert row["ids"].tolist() == [[2, 10, 11, 3, 3, 20, 21, 3], [2, 10, 11, 12, 3, 3, 22, 3]]
    assert choices.too_long == 1


def test_each_choice_is_cut_for_itself_and_the_example_counted_once():
    rows = ChoiceSets(8, 2).start(WORDS)
    rows.add([ids(10, 11, 12, 13), ids(20), ids(21, 22, 23, 24), 1])
    (row,) = rows.take()
    assert row["ids"].tolist() == [[2, 10, 11, 12, 13, 3, 20, 3], [2, 10, 11, 12, 3, 21, 22, 3]]
    assert row["label"] == 1
    assert (rows.too_long, rows.documents, rows.padding) == (1, 1, 0)
    with pytest.raises(InputError, match="it has 1 choices, and objective.num_choices=2; set that to 1"):
        rows.add([ids(10), ids(20), 0])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Tagged(7), "length=7 is too small"),
        (lambda: QuestionWindows(16, 4, 13), "question_length=13 leaves no room for a text in length=16; choose 12"),
        (lambda: QuestionWindows(16, 0, 4), "stride=0 is too small; choose 1"),
        (lambda: ChoiceSets(8, 1), "num_choices=1 is too small; choose 2"),
    ],
)
def test_lengths_that_cannot_be(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
