"""Tagged words, questions and choices as tasks read them, and what is wrong with data."""

import json

import numpy as np
import pytest

from t5x_lite.data import (
    Choices,
    JsonlFiles,
    Questions,
    QuestionWindows,
    Tagged,
    TaggedWords,
    WordPiece,
    make_tokenizer,
)
from t5x_lite.errors import InputError


@pytest.fixture
def examples(tmp_path):
    """`examples(*records)`."""

    def write(*records):
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return JsonlFiles((str(path),))

    return write


def squad_fields(context="a cat sat here", answers=("cat",), starts=(2,), name="1"):
    return {"id": name, "question": "who?", "context": context, "answers": list(answers), "starts": list(starts)}


def test_tags_are_numbers_and_every_sentence_has_its_place(examples):
    source = TaggedWords(
        examples({"tokens": ["a", "b"], "tags": ["O", "B-X"]}, {"tokens": ["c"], "tags": ["O"]}), ("O", "B-X")
    )
    assert [(sentence.words, sentence.tags) for sentence in source.read()] == [(("a", "b"), (0, 1)), (("c",), (0,))]
    assert source.location(2).endswith("a.jsonl:2")
    assert list(source.documents()) == ["a b", "c"]
    assert source.classes == ("O", "B-X")


def test_unknown_tags_are_counted(examples):
    source = TaggedWords(
        examples({"tokens": ["a"], "tags": ["O"]}, {"tokens": ["a", "b"], "tags": ["X", "X"]}), ("O", "B-X")
    )
    with pytest.raises(InputError, match=r"tags='tags' has labels that .* does not know: 'X' 2 times.*a.jsonl:2; name"):
        list(source.read())


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "tags='tags' has 1 tags for 2 words"),
        ({"tokens": "a b", "tags": ["O"]}, "words='tokens' is 'a b'.* set words to a field with a list of texts"),
        ({"tokens": [], "tags": []}, "words='tokens' is"),
        ({"words": ["a"], "tags": ["O"]}, "words='tokens' is missing in .*, which has 'words', 'tags'"),
    ],
)
def test_words_and_tags_that_do_not_go_together(examples, record, problem):
    with pytest.raises(InputError, match=problem):
        list(TaggedWords(examples(record), ("O", "B-X")).read())


def test_words_without_a_token_are_unknown(corpus):
    tokenizer = make_tokenizer(WordPiece(vocab_size=150), corpus.documents)
    sentence = type("S", (), {"words": ("the", "\u200b", "model"), "tags": (0, 1, 0)})()
    ((ids, sizes, tags),) = Tagged(32).tokenize([sentence], tokenizer, "line")
    assert sizes[1] == 1 and ids[sizes[0]] == tokenizer.vocabulary.unk_id
    assert sizes.sum() == len(ids) and tags.tolist() == [0, 1, 0]


def test_answers_that_stand_elsewhere_are_counted(examples):
    wrong = squad_fields(starts=(3,), name="2"), squad_fields(answers=("dog",), name="3")
    with pytest.raises(
        InputError,
        match=r"starts of 2 of 4 questions do not point at their answers: .*a.jsonl:2 has 'cat' where .* has 'at '",
    ):
        list(Questions(examples(squad_fields(), *wrong, squad_fields(name="4"))).read())


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (squad_fields(starts=()), "are not a list of texts and a list of as many"),
        (squad_fields(starts=(-2,)), "are not a list of texts and a list of as many"),
        (squad_fields(answers=("cat",), starts=("2",)), "are not a list of texts and a list of as many"),
        (squad_fields() | {"question": " "}, "question='question' is empty"),
    ],
)
def test_questions_that_cannot_be_read(examples, record, problem):
    with pytest.raises(InputError, match=problem):
        list(Questions(examples(record)).read())


def test_a_question_has_a_name_of_its_own(examples):
    with pytest.raises(InputError, match="id='1' names two questions, the second in .*a.jsonl:2"):
        list(Questions(examples(squad_fields(), squad_fields())).read())


def test_the_tokens_of_an_answer_hold_it(corpus):
    tokenizer = make_tokenizer(WordPiece(vocab_size=150), corpus.documents)
    context = "the model  reads a row, of ids"
    for answer in ("model", "reads a", "row", "e", "ids"):
        question = type("Q", (), {"context": context, "question": "who", "answers": (answer,)})()
        question.starts = (context.index(answer),)
        ((_, ids, ends),) = QuestionWindows(32, 8, 8).tokenize([question], tokenizer, "line")
        spans = tokenizer.encode_with_offsets([context])[0].spans
        found = context[spans[ends[0], 0] : spans[ends[1], 1]]
        assert answer in found and len(ids) == len(spans)
        inner = context[spans[ends[0], 1] : spans[ends[1], 0]] if ends[0] < ends[1] else ""
        assert len(inner) <= len(answer)
    unanswered = type("Q", (), {"context": context, "question": "who", "answers": (), "starts": ()})()
    ((_, _, ends),) = QuestionWindows(32, 8, 8).tokenize([unanswered], tokenizer, "line")
    assert ends.dtype == np.int32 and len(ends) == 0


def test_choices_stand_behind_their_question(examples):
    records = [
        {"passage": "p", "ask": "Why?", "choices": ["x", "y"], "label": "B"},
        {"passage": "q", "ask": "Who?", "choices": ["u", "v"], "label": "A"},
    ]
    source = Choices(examples(*records), context="passage", question="ask", labels=("A", "B"))
    assert [(choice.context, choice.choices, choice.label) for choice in source.read()] == [
        ("p", ("Why? x", "Why? y"), 1),
        ("q", ("Who? u", "Who? v"), 0),
    ]
    columns = Choices(examples({"context": "c", "one": "x", "two": "y", "label": 1}), choices=("one", "two"))
    assert next(columns.read()).label == 1


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([{"context": "c", "choices": ["x", "y"], "label": 2}], r"labels=\('0', '1'\) does not know: '2' 1 times"),
        ([{"context": "c", "choices": ["x"], "label": 0}], "of a list of two texts or more"),
        (
            [{"context": "c", "choices": ["x"] * n, "label": 0} for n in (2, 3)],
            "a.jsonl:2 has 3 choices, those before it 2; give as many",
        ),
    ],
)
def test_choices_that_cannot_be_read(examples, records, problem):
    with pytest.raises(InputError, match=problem):
        list(Choices(examples(*records)).read())
