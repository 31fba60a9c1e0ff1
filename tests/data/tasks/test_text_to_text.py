"""Examples of tasks as pairs of texts."""

import json

import pytest

from t5x_lite.data import AnswerTemplate, JsonlFiles, LabelTemplate, TableFiles, TextToText, UnrolledRecords
from t5x_lite.errors import InputError

WORDING = LabelTemplate("topic question: {text}", labels=("0", "1"), words=("sport", "art"), left_out=("-",))


@pytest.fixture
def table(tmp_path):
    """`table(*rows)`: examples with the columns text and label."""

    def write(*rows):
        path = tmp_path / "a.tsv"
        path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
        return TableFiles((str(path),))

    return write


def test_pairs_and_what_is_asked(table):
    source = TextToText(table(("Who won?", "0"), ("?", "-"), ("Who paints?", "1")), WORDING, prefix="task: ")
    first, second = "task: topic question: Who won?", "task: topic question: Who paints?"
    assert list(source.read()) == [(first, "sport"), (second, "art")]
    assert [(one.text, one.right) for one in source.eval_examples()] == [(first, ("sport",)), (second, ("art",))]
    assert source.classes == ("sport", "art")
    assert list(source.documents()) == [first, "sport", second, "art"]


def test_places_count_pairs(table, tmp_path):
    source = TextToText(table(("a", "0"), ("b", "-"), ("c", "1")), WORDING)
    assert [source.location(1), source.location(2)] == [f"{tmp_path}/a.tsv:2", f"{tmp_path}/a.tsv:4"]


def test_labels_that_are_not_known_are_counted(table, tmp_path):
    source = TextToText(table(("a", "2"), ("b", "0"), ("c", "other"), ("d", "2")), WORDING)
    counts = rf"'2' 2 times, 'other' 1 times, the first in {tmp_path}/a.tsv:2"
    problem = rf"label='label' has labels that labels=\('0', '1'\) does not know: {counts}"
    for read in (source.read, source.eval_examples):
        with pytest.raises(InputError, match=problem):
            list(read())


def test_a_column_that_is_missing(table):
    with pytest.raises(InputError, match=r"source='words' is missing in .*a.tsv:2, which has 'text', 'label'"):
        list(TextToText(table(("a", "0")), LabelTemplate("{words}", labels=("0", "1"))).read())


def test_no_pair_at_all_and_a_pair_without_an_input(table, tmp_path):
    with pytest.raises(InputError, match="holds no pairs"):
        list(TextToText(table(("a", "-")), WORDING).read())
    with pytest.raises(InputError, match=rf"{tmp_path}/a.tsv:3 has an empty source"):
        list(TextToText(table(("a", "0"), ("", "1")), LabelTemplate("{text}", labels=("0", "1"))).read())


def test_a_fingerprint_follows_examples_and_words(table):
    examples = table(("a", "0"))
    first = TextToText(examples, WORDING).fingerprint()
    assert first == TextToText(examples, WORDING).fingerprint()
    assert first != TextToText(examples, LabelTemplate("{text}", labels=("0", "1"))).fingerprint()
    assert first != TextToText(examples, WORDING, prefix="x").fingerprint()
    assert first != TextToText(table(("b", "0")), WORDING).fingerprint()


def test_an_example_of_several_answers_is_asked_once_and_may_be_learnt_several_times(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"q": "Who?", "answers": ["he", "she"]}) + "\n")
    source = TextToText(JsonlFiles((str(path),)), AnswerTemplate("{q}", each=True))
    assert list(source.read()) == [("Who?", "he"), ("Who?", "she")]
    assert [one.right for one in source.eval_examples()] == [("he", "she")]
    assert source.location(2) == f"{path}:1"


def test_records_of_several_examples_are_taken_apart(tmp_path):
    path = tmp_path / "race.jsonl"
    record = {"article": "It rained.", "questions": ["Why?", "When?"], "answers": ["B", "A"]}
    record["options"] = [["x", "y"], ["u", "v"]]
    path.write_text(json.dumps(record) + "\n")
    examples = UnrolledRecords(JsonlFiles((str(path),)), ("questions", "answers", "options"))
    prompt = LabelTemplate(
        "{questions} choice1: {options/0} choice2: {options/1} article: {article}", "answers", ("A", "B"), ("1", "2")
    )
    assert list(TextToText(examples, prompt).read()) == [
        ("Why? choice1: x choice2: y article: It rained.", "2"),
        ("When? choice1: u choice2: v article: It rained.", "1"),
    ]
    assert [example.location for example in examples] == [f"item 1 of {path}:1", f"item 2 of {path}:1"]
    for fields in (("questions", "article"), ("questions", "options/0/0")):
        with pytest.raises(InputError, match=r"are not lists of one length in .*:1 \(2, "):
            list(UnrolledRecords(JsonlFiles((str(path),)), fields))
