"""Tasks over datasets as TensorFlow Datasets leaves them on disk, read without TensorFlow."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import tensorflow_datasets as tfds

from t5x_lite.errors import InputError
from t5x_lite.tasks import glue, reading, sequences, super_glue

F = tfds.features
TEXT = F.Text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_dataset):
    """glue/stsb, glue/cola, super_glue/multirc, squad/v2.0 and conll2003 with an example or two in each split."""
    folder = tmp_path_factory.mktemp("tfds")

    # TFDS looks for the version that its own code has.
    versions = {"glue": "2.0.0", "super_glue": "1.0.2", "squad": "3.0.0", "conll2003": "1.0.0"}

    def write(name, features, splits, *examples):
        dataset, config = name.split("/")
        parts = {split: list(examples) for split in splits}
        write_dataset(folder / name / versions[dataset], F.FeaturesDict(features), config, **parts)

    three = ("train", "validation", "test")
    both = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32, "idx": np.int32}
    write("glue/stsb", both, three, {"sentence1": "a", "sentence2": "b", "label": 3.8, "idx": 0})
    cola = {"sentence": TEXT, "label": F.ClassLabel(names=["unacceptable", "acceptable"]), "idx": np.int32}
    write("glue/cola", cola, three[:2], {"sentence": "They drank the pub dry.", "label": 1, "idx": 0})
    write("glue/hidden", cola, ("test",), {"sentence": "They drank.", "label": -1, "idx": 7})
    numbers = F.FeaturesDict({"paragraph": np.int32, "question": np.int32, "answer": np.int32})
    texts = {"paragraph": TEXT, "question": TEXT, "answer": TEXT}
    multirc = texts | {"idx": numbers, "label": F.ClassLabel(names=["False", "True"])}
    example = {"paragraph": "<b>Sent 1: </b>It rained.", "question": "Why?", "label": 0}
    example["idx"] = {"paragraph": 3, "question": 5, "answer": 0}
    write("super_glue/multirc", multirc, three, example | {"answer": "no"}, example | {"answer": "yes", "label": 1})
    answers = F.Sequence({"text": TEXT, "answer_start": np.int32})
    squad = dict.fromkeys(("id", "title", "context", "question"), TEXT)
    squad |= {"answers": answers, "plausible_answers": answers, "is_impossible": np.bool_}
    question = {"id": "q1", "title": "t", "context": "He went.", "question": "Who?", "is_impossible": False}
    question["plausible_answers"] = {"text": [], "answer_start": []}
    write(
        "squad/v2.0",
        squad,
        three[:2],
        question | {"answers": {"text": ["He", "He"], "answer_start": [0, 0]}},
        question | {"id": "q2", "question": "Why?", "answers": {"text": [], "answer_start": []}},
    )
    tags = F.ClassLabel(names=list(sequences.CONLL_2003.head_data().source.labels))
    words = {"tokens": F.Sequence(TEXT), **{name: F.Sequence(tags) for name in ("pos", "chunks", "ner")}}
    sentence = {"tokens": ["Anna", "reads"], "pos": ["O", "O"], "chunks": ["O", "O"], "ner": ["B-PER", "O"]}
    write("conll2003/conll2003", words, ("train", "dev"), sentence)
    return folder


def test_pairs_of_tasks(folder):
    def pairs(task):
        return list(task.at(str(folder)).text_data().source.read())

    assert pairs(glue.STSB) == [("stsb sentence1: a sentence2: b", "3.8")]
    assert pairs(glue.COLA) == [("cola sentence: They drank the pub dry.", "acceptable")]
    read = "multirc question: Why? answer: {} paragraph: Sent 1: It rained."
    assert pairs(super_glue.MULTIRC) == [(read.format("no"), "False"), (read.format("yes"), "True")]
    assert pairs(reading.SQUAD_2_0) == [
        ("question: Who? context: He went.", "He"),
        ("question: Why? context: He went.", "unanswerable"),
    ]
    assert pairs(sequences.CONLL_2003) == [("ner sentence: Anna reads", "B-PER O")]
    assert "tensorflow" not in sys.modules


def test_what_is_asked_of_held_out_examples(folder):
    def answers_of(task):
        return [tuple(one)[1:] for one in task.at(str(folder)).text_data().held_out_source.eval_examples()]

    ((right, _),) = answers_of(glue.STSB)
    assert float(right[0]) == pytest.approx(3.8)
    assert answers_of(super_glue.MULTIRC) == [(("False",), "3 5"), (("True",), "3 5")]
    assert answers_of(reading.SQUAD_2_0) == [(("He",), ""), (("unanswerable",), "")]


def test_examples_for_heads(folder):
    def head(task):
        return task.at(str(folder)).head_data().source

    assert [(one.texts, one.label) for one in head(glue.COLA).read()] == [(("They drank the pub dry.",), 1.0)]
    assert [one.label for one in head(glue.STSB).read()] == [pytest.approx(3.8)]
    assert [one.texts[1] for one in head(super_glue.MULTIRC).read()] == ["Why? no", "Why? yes"]
    assert [(one.id, one.answers, one.starts) for one in head(reading.SQUAD_2_0).read()] == [
        ("q1", ("He", "He"), (0, 0)),
        ("q2", (), ()),
    ]
    assert [one.tags for one in head(sequences.CONLL_2003).read()] == [(1, 0)]


def test_a_dataset_that_was_not_prepared_and_needs_tensorflow(folder, tmp_path, capfd):
    """TFDS's code of SuperGLUE needs TensorFlow to say what is in it; what is on disk is read without."""
    assert len(list(super_glue.MULTIRC.at(str(folder)).train)) == 2
    with pytest.raises(InputError, match=r"name='super_glue/boolq' cannot be prepared here without TensorFlow"):
        list(super_glue.BOOLQ.at(str(tmp_path)).train)
    assert capfd.readouterr() == ("", "")


def test_labels_that_a_test_set_hides_are_not_known(folder):
    hidden = replace(glue.COLA.at(str(folder)).dev, name="glue/hidden", split="test")
    with pytest.raises(InputError, match="does not know: 'None' 1 times, the first in example 0 of split='test'"):
        list(glue.COLA.pairs(hidden).read())
