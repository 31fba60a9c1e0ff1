"""Tasks as values: the data that an experiment takes, and mixtures of them."""

import json

import pytest

from t5x_lite.data import (
    Bytes,
    Choices,
    ConllFiles,
    Data,
    Equal,
    JsonlFiles,
    LabeledTexts,
    Mixture,
    Questions,
    TableFiles,
    TaggedWords,
    TextToText,
    Tfds,
    UnrolledRecords,
)
from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import PartMetrics
from t5x_lite.tasks import glue, reading, sequences, super_glue
from t5x_lite.tasks.task import metrics_of_parts, mixture, text_classes

LABELS = ("negative", "positive")


@pytest.fixture
def own(tmp_path):
    """A task over one's own files."""
    for name, rows in (("train", [("a fine film", "positive"), ("dull", "negative")]), ("dev", [("good", "positive")])):
        text = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
        (tmp_path / f"{name}.tsv").write_text(text)
    train, dev = (TableFiles((str(tmp_path / f"{name}.tsv"),)) for name in ("train", "dev"))
    return text_classes("polarity", train, dev, labels=LABELS)


def test_the_same_task_as_text_to_text_and_with_a_head(own):
    text = own.text_data(tokenizer=Bytes())
    assert isinstance(text, Data)
    assert list(text.source.read()) == [
        ("polarity text: a fine film", "positive"),
        ("polarity text: dull", "negative"),
    ]
    assert list(text.held_out_source.read()) == [("polarity text: good", "positive")]
    head = own.head_data(tokenizer=Bytes())
    assert isinstance(head.source, LabeledTexts)
    assert [(one.texts, one.label) for one in head.source.read()] == [(("a fine film",), 1.0), (("dull",), 0.0)]
    assert head.tokenizer == text.tokenizer == Bytes()
    assert own.metrics == ("exact_match", "f1")


def test_a_task_without_a_dev_set_holds_out_a_part(own):
    task = text_classes("polarity", own.train, labels=LABELS)
    assert task.text_data(held_out=0.1).held_out_source is None
    assert task.head_data().held_out_source is None
    assert task.part().held_out_source is None


def test_a_template_and_words_of_ones_own(own):
    words, source = ("bad", "good"), "topic question: {text}"
    task = text_classes("polarity", own.train, labels=LABELS, words=words, source=source)
    assert next(task.pairs(task.train).read()) == ("topic question: a fine film", "good")
    assert task.pairs(task.train).classes == words


def test_every_head_has_the_source_of_its_objective():
    sources = {
        glue.MRPC: LabeledTexts,
        reading.SQUAD_2_0: Questions,
        sequences.CONLL_2003: TaggedWords,
        reading.RACE: Choices,
    }
    for task, source in sources.items():
        assert isinstance(task.head_data().source, source)
        assert task.head_data().held_out_source.examples == task.dev
    with pytest.raises(InputError, match="the task has no head: its answers are texts"):
        sequences.WMT14_EN_DE.head_data()


def test_races_questions_with_a_head(tmp_path):
    path = tmp_path / "a.jsonl"
    record = {"article": "It rained.", "questions": ["Why?", "When?"], "answers": ["B", "A"]}
    path.write_text(json.dumps(record | {"options": [["x", "y"], ["u", "v"]]}) + "\n")
    examples = UnrolledRecords(JsonlFiles((str(path),)), ("questions", "answers", "options"))
    found = [(one.context, one.choices, one.label) for one in reading.RACE.head(examples).read()]
    assert found == [("It rained.", ("Why? x", "Why? y"), 1), ("It rained.", ("When? u", "When? v"), 0)]


def test_tasks_of_tfds_in_another_folder():
    assert glue.COLA.at("/data").dev == Tfds("glue/cola", "validation", "/data")
    moved = reading.RACE.at("/data")
    assert {part.data_dir for part in moved.test.examples.sources} == {"/data"}
    assert moved.train.fields == reading.RACE.train.fields
    assert super_glue.MULTIRC.at("/data").train.examples.data_dir == "/data"
    assert super_glue.MULTIRC.at("/data").train.template == "{question} {answer}"


def test_a_field_composed_for_a_head(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"paragraph": "p", "question": "q?", "answer": "a", "label": "True"}) + "\n")
    composed = super_glue.ComposedRecords(JsonlFiles((str(path),)), "question_and_answer", "{question} {answer}")
    (example,) = super_glue.MULTIRC.head(composed).read()
    assert (example.texts, example.label) == (("p", "q? a"), 1.0)


def test_a_mixture_of_tasks_and_what_its_parts_are_scored_by(own):
    tasks = (own, glue.STSB)
    mixed = mixture(tasks, Equal())
    assert isinstance(mixed, Mixture)
    assert [(part.name, type(part.source)) for part in mixed.parts] == [
        ("polarity", TextToText),
        ("stsb", TextToText),
    ]
    assert mixed.rates == Equal()
    assert metrics_of_parts(tasks) == (
        PartMetrics("polarity", ("exact_match", "f1")),
        PartMetrics("stsb", ("pearson", "spearman")),
    )


def test_own_files_of_squad_and_conll(tmp_path):
    answers = [{"text": "he", "answer_start": 0}, {"text": "him", "answer_start": 0}]
    questions = [{"id": "1", "question": "Who?", "answers": answers}, {"id": "2", "question": "Why?", "answers": []}]
    data = {"data": [{"title": "t", "paragraphs": [{"context": "he went", "qas": questions}]}]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    task = reading.squad_files("own", (str(tmp_path / "a.json"),), may_be_unanswerable=True)
    assert list(task.pairs(task.train).read()) == [
        ("question: Who? context: he went", "he"),
        ("question: Why? context: he went", "unanswerable"),
    ]
    with pytest.raises(InputError, match="given='answers' is empty in question '2'"):
        list(reading.squad_files("own", (str(tmp_path / "a.json"),)).text_data().source.read())
    (tmp_path / "a.conll").write_text("Anna B-PER\nreads O\n")
    words = sequences.word_tags("names", ConllFiles((str(tmp_path / "a.conll"),)), labels=("O", "B-PER"))
    assert list(words.pairs(words.train).read()) == [("names sentence: Anna reads", "B-PER O")]
    assert [sentence.tags for sentence in words.head_data().source.read()] == [(1, 0)]
