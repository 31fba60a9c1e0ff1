"""Choices, tags and answers from heads of tasks in a notebook."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from t5x_lite.errors import InputError

HEADS = ("multiple_choice", "tagging", "question_answering")
CONTEXT = "green bottles are hanging on the wall  and fall " * 4


@pytest.fixture(scope="module")
def tasks(bert, make_encoder):
    """A BERT with heads of tasks, without a run."""
    return make_encoder(replace(bert.config, heads=HEADS, num_classes=3))


@functools.cache
def compiled(module):
    return jax.jit(module.apply)


def outputs(model, rows, segments=None):
    """Every output for rows of ids, padded to one length for all tests so that it is compiled once."""
    padded = np.zeros((2, 3, 24), np.int32)
    for side, values in zip(padded, (rows, segments or []), strict=True):
        for number, row in enumerate(values):
            side[number, : len(row)] = row
    valid = np.arange(24)[None] < np.array([[len(row)] for row in [*rows, [], []][:3]])
    found = compiled(model.module)({"params": model.params}, *padded, inputs_valid=valid)
    return {name: np.asarray(value) for name, value in found.items()}


def test_abilities_are_those_of_the_heads(tasks, bert):
    assert tasks.abilities == ("encode", "choose", "tag", "answer")
    for method, arguments in (("choose", ("a", ["b", "c"])), ("tag", ("a",)), ("answer", ("a", "b"))):
        with pytest.raises(InputError, match=f"{method} needs the head"):
            getattr(bert, method)(*arguments)


def test_tags_are_those_of_the_first_piece_of_each_word(tasks):
    words = ["bottles", "are", "hanging", "on", "the", "wall"]
    vocabulary, encode = tasks.tokenizer.vocabulary, tasks.tokenizer.encode
    ids, firsts = [vocabulary.cls_id], []
    for word in words:
        firsts.append(len(ids))
        ids += encode(word)
    best = outputs(tasks, [[*ids, vocabulary.sep_id]])["tagging_logits"][0].argmax(axis=-1)
    expected = [(word, str(best[first])) for word, first in zip(words, firsts, strict=True)]
    assert tasks.tag(" ".join(words)) == expected
    assert tasks.tag([words, ["wall"]])[0] == expected
    with pytest.raises(InputError, match=r"sentences\[1\] has no words"):
        tasks.tag(["a", " "])


def test_long_sentences_have_a_tag_for_every_word(tasks):
    assert [word for word, _ in tasks.tag(CONTEXT)] == CONTEXT.split()


def test_an_answer_is_a_part_of_the_text_however_long_that_is(tasks):
    found = tasks.answer("what falls", CONTEXT)
    assert found.text and found.text in CONTEXT
    assert np.isfinite(found.no_answer)


def test_the_best_answer_has_the_highest_logits(tasks):
    context = "bottles fall on the wall"
    vocabulary, tokenizer = tasks.tokenizer.vocabulary, tasks.tokenizer
    question, (text, spans) = tokenizer.encode("what"), tokenizer.encode_with_offsets([context])[0]
    ids = [vocabulary.cls_id, *question, vocabulary.sep_id, *text.tolist(), vocabulary.sep_id]
    first = len(question) + 2
    logits = outputs(tasks, [ids], [[0] * first + [1] * (len(text) + 1)])["question_answering_logits"][0]
    inside = logits[first : first + len(text)]
    scores = {
        (begin, end): inside[begin, 0] + inside[end, 1] for begin in range(len(text)) for end in range(begin, len(text))
    }
    begin, end = max(scores, key=scores.get)
    found = tasks.answer("what", context)
    assert found.text == context[spans[begin, 0] : spans[end, 1]]
    assert found.no_answer == pytest.approx(logits[0].sum() - scores[begin, end], abs=1e-4)


def test_choices_share_one(tasks):
    choices = ["on the wall", "bottles", "fall and fall"]
    shares = tasks.choose("green bottles", choices)
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
    vocabulary, encode = tasks.tokenizer.vocabulary, tasks.tokenizer.encode
    a = [vocabulary.cls_id, *encode("green bottles"), vocabulary.sep_id]
    rows = [[*a, *encode(choice), vocabulary.sep_id] for choice in choices]
    segments = [[0] * len(a) + [1] * (len(row) - len(a)) for row in rows]
    exponentials = np.exp(outputs(tasks, rows, segments)["multiple_choice_logits"])
    np.testing.assert_allclose(shares, exponentials / exponentials.sum(), atol=1e-5)
    with pytest.raises(InputError, match="leaves nothing to choose"):
        tasks.choose("green", ["bottles"])
