"""Tagged words and questions on paragraphs."""

import json

import pytest

from t5x_lite.data.records.formats import ConllFiles, SquadFiles
from t5x_lite.errors import InputError

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP B-ORG
rejects VBZ I-VP O

# no word
Peter NNP I-NP B-PER
"""
CONLLU = """# sent_id = 1
1-2\tdon't\t_\t_
1\tdo\tdo\tAUX
2\tn't\tnot\tPART
2.1\tgo\tgo\tVERB

"""
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Cats",
            "paragraphs": [
                {
                    "context": "A cat sat.",
                    "qas": [
                        {"id": "1", "question": "Who?", "answers": [{"text": "A cat", "answer_start": 0}]},
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}


def test_sentences_of_words_with_tags(tmp_path):
    (tmp_path / "a.conll").write_text(CONLL)
    found = list(ConllFiles((str(tmp_path),)))
    assert [example.fields for example in found] == [
        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"tokens": ["Peter"], "tags": ["B-PER"]},
    ]
    assert [example.location.split(":")[-1] for example in found] == ["3", "7"]
    parts_of_speech = ConllFiles((str(tmp_path),), tag_column=1)
    assert next(iter(parts_of_speech)).fields["tags"] == ["NNP", "VBZ"]


def test_a_hash_within_a_sentence_is_a_word(tmp_path):
    (tmp_path / "a.conll").write_text("# a comment\nNo O\n# O\n1 O\n\n# another one\nPeter I-PER\n")
    first, second = ConllFiles((str(tmp_path),))
    assert first.fields == {"tokens": ["No", "#", "1"], "tags": ["O", "O", "O"]}
    assert (first.location.split(":")[-1], second.fields["tokens"]) == ("2", ["Peter"])


def test_ranges_and_empty_words_of_conllu_are_none(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    (example,) = ConllFiles((str(tmp_path),), token_column=1, tag_column=3)
    assert example.fields == {"tokens": ["do", "n't"], "tags": ["AUX", "PART"]}


def test_a_column_that_is_not_there(tmp_path):
    (tmp_path / "a.conll").write_text("EU B-ORG\nrejects\n")
    with pytest.raises(InputError, match=r"token_column=0 is missing in .*a.conll:2, which has 1 columns"):
        list(ConllFiles((str(tmp_path),)))
    with pytest.raises(InputError, match="token_column=1 is tag_column too"):
        ConllFiles((str(tmp_path),), token_column=1, tag_column=1)


def test_questions_with_and_without_answers(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(SQUAD))
    found = [example.fields for example in SquadFiles((str(tmp_path),))]
    assert found[0] == {
        "id": "1",
        "title": "Cats",
        "context": "A cat sat.",
        "question": "Who?",
        "answers": ["A cat"],
        "starts": [0],
    }
    assert (found[1]["answers"], found[1]["starts"]) == ([], [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "the key 'context' is missing"),
        ('{"data": ', "is not JSON of SQuAD"),
        ("[]", "is not JSON of SQuAD"),
    ],
)
def test_what_is_not_of_squad_is_refused(tmp_path, content, problem):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=problem):
        list(SquadFiles((str(tmp_path),)))


def test_articles_are_dealt_out_to_parts(tmp_path):
    articles = [
        {"paragraphs": [{"context": "A cat sat.", "qas": [{"id": str(number), "question": "Who?"}]}]}
        for number in range(5)
    ]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": articles}))
    parts = [SquadFiles((str(path),), 2, part) for part in (0, 1)]
    assert [[example.fields["id"] for example in part] for part in parts] == [["0", "2", "4"], ["1", "3"]]
    assert parts[0].fingerprint() != parts[1].fingerprint()
    with pytest.raises(InputError, match="part=2 is not one of parts=2"):
        SquadFiles((str(path),), 2, 2)
