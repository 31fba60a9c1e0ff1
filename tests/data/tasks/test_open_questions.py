"""Questions without a text: their records, and their answers as tokens."""

import json

import numpy as np
import pytest

from t5x_lite.data import ByteLevelBPE, JsonlFiles, OpenQuestions, SquadFiles, make_tokenizer
from t5x_lite.data.tasks.open_questions import OpenQuestion, OpenQuestionLayout
from t5x_lite.errors import InputError


@pytest.fixture
def questions(tmp_path):
    def write(*records, **options):
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return OpenQuestions(JsonlFiles((str(path),)), **options)

    return write


def test_one_answer_or_several(questions):
    source = questions(
        {"question": "Who?", "answers": ["Ann ", "Ann", "Bob", ""]}, {"question": "Where?", "answers": "Rome", "id": 7}
    )
    assert list(source.read()) == [OpenQuestion("Who?", ("Ann", "Bob")), OpenQuestion("Where?", ("Rome",), 7)]
    assert list(source.documents()) == ["Who?", "Where?"]
    unknown = questions({"question": "Who?"}, answers="")
    assert not unknown.has_answers and next(unknown.read()).answers == ()


@pytest.mark.parametrize("answers", [3, ["a", 3], {"text": "a"}])
def test_answers_that_are_no_texts(questions, answers):
    with pytest.raises(InputError, match="is neither a text nor a list of texts; correct it"):
        list(questions({"question": "Who?", "answers": answers}).read())


def test_answers_as_they_stand_in_a_text():
    """In byte-level BPE " Rome" and "Rome" are other tokens."""
    texts = ["Rome is old. In Rome they live, and in Rome they eat."] * 3
    tokenizer = make_tokenizer(ByteLevelBPE(vocab_size=300), lambda: iter(texts))
    layout = OpenQuestionLayout(16, num_answers=3, answer_length=4)
    examples = [OpenQuestion("Where?", ("Rome", "a very long answer that nobody gives")), OpenQuestion("Who?", ())]
    rows = layout.start(tokenizer.vocabulary)
    for document in layout.tokenize(examples, tokenizer, "punctuation"):
        rows.add(document)
    first, second = rows.take()
    pad_id = tokenizer.vocabulary.pad_id
    found = [tokenizer.decode(ids[ids != pad_id]) for ids in first["answers"]]
    assert found[0].strip() == "Rome" and found[1].strip() in ("Rome", "") and found[2] == ""
    assert np.all(second["answers"] == pad_id) and rows.too_long == 0
    rows.add([np.array([5]), [np.arange(9)]])
    assert rows.too_long == 1
    assert rows.first_too_long[1] == "its answer has 9 tokens and answer_length=4 is the most that is found"


def test_the_contexts_of_squad_are_a_corpus(tmp_path):
    paragraphs = [
        {"context": text, "qas": [{"id": f"{text}{n}", "question": "?", "answers": []} for n in range(2)]}
        for text in ("one", "two", "one")
    ]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    assert list(SquadFiles((str(path),)).documents()) == ["one", "two"]
