"""Answers in the formats of benchmarks, with their names of examples and classes."""

import json

import pytest

from t5x_lite.data import JsonlFiles, LabelTemplate, Record, TagTemplate, TextTemplate, TextToText, Tfds
from t5x_lite.data.tasks.classification import LabeledText
from t5x_lite.errors import InputError
from t5x_lite.evaluation.submissions import count_unread, read_texts, submission_files, submission_of, task_of
from t5x_lite.objectives import Classification, Predictions, SequenceToSequence, Tagging
from t5x_lite.tasks import glue, reading, super_glue

EXAMPLES = JsonlFiles(("a.jsonl",))
CLASSES = LabelTemplate("{text}", labels=("no", "yes"))


def named(*names):
    return [LabeledText(("a",), 0.0, name) for name in names]


def test_glue_goes_by_the_datasets_own_index_and_names_of_classes():
    """A dataset's order need not be that of the benchmark."""
    answers = Predictions("classes", [1.0, 0.0, 1.0], [0.0] * 3, ["0", "1", "2"])
    for task, classes in ((glue.COLA, ("0", "1")), (glue.RTE, ("entailment", "not_entailment"))):
        files = submission_files("glue", answers, named(10, 2, 7), task.head_data().source.labels, task)
        expected = ["index\tprediction", f"2\t{classes[0]}", f"7\t{classes[1]}", f"10\t{classes[1]}"]
        assert {name: text.splitlines() for name, text in files.items()} == {task.submission: expected}


def test_the_file_of_another_benchmark_is_not_this_ones():
    answers = Predictions("classes", [1.0], [], ["0"])
    for submission, task in (("glue", super_glue.RTE), ("superglue", glue.COLA)):
        (name,) = submission_files(submission, answers, named(0), task.head_data().source.labels, task)
        assert name == {"glue": "predictions.tsv", "superglue": "predictions.jsonl"}[submission]


def test_numbers_are_written_as_they_are():
    files = submission_files(
        "glue", Predictions("numbers", [3.25, 0.5], [], ["0", "1"]), named(None, None), (), glue.STSB
    )
    assert files == {"STS-B.tsv": "index\tprediction\n0\t3.25\n1\t0.5\n"}


def test_superglue_has_its_own_words_for_true_and_false():
    answers = Predictions("classes", [1.0, 0.0], [], ["0", "1"])
    files = submission_files("superglue", answers, named("5", 3), ("False", "True"), super_glue.BOOLQ)
    assert files == {"BoolQ.jsonl": '{"idx": 5, "label": "true"}\n{"idx": 3, "label": "false"}\n'}


def test_multirc_has_a_paragraph_a_line():
    names = [{"paragraph": 4, "question": q, "answer": a} for q, a in ((0, 0), (0, 1), (1, 0))]
    names.append({"paragraph": 9, "question": 7, "answer": 2})
    files = submission_files(
        "superglue",
        Predictions("classes", [1, 0, 1, 1], [], list("0123")),
        named(*names),
        ("False", "True"),
        super_glue.MULTIRC,
    )
    first, second = map(json.loads, files["MultiRC.jsonl"].splitlines())
    answers = [{"idx": 0, "label": 1}, {"idx": 1, "label": 0}], [{"idx": 0, "label": 1}]
    assert first == {
        "idx": 4,
        "passage": {"questions": [{"idx": 0, "answers": answers[0]}, {"idx": 1, "answers": answers[1]}]},
    }
    assert second == {"idx": 9, "passage": {"questions": [{"idx": 7, "answers": [{"idx": 2, "label": 1}]}]}}


def test_record_goes_by_the_query():
    example = Record("", {"idx": {"passage": 0, "query": 12}, "answers": []})
    answers = read_texts(super_glue.RECORD.prompt, [example], [" Nuria "], labeled=False)
    files = submission_files("superglue", answers, [example], (), super_glue.RECORD)
    assert files == {"ReCoRD.jsonl": '{"idx": 12, "label": "Nuria"}\n'}


@pytest.mark.parametrize(
    ("examples", "task"),
    [
        (Tfds("glue/mnli:2.0.0", "test_mismatched"), glue.MNLI_MISMATCHED),
        (Tfds("glue/mnli", "test_matched"), glue.MNLI),
        (super_glue.WIC.test, super_glue.WIC),
        (Tfds("snli", "test"), None),
        (EXAMPLES, None),
        (None, None),
    ],
)
def test_the_task_of_a_dataset_is_found(examples, task):
    assert task_of(examples) is task


def test_texts_are_read_back():
    examples = [Record("a:1", {"text": "x", "label": "yes", "id": "q7"}), Record("a:2", {"text": "y", "label": "no"})]
    answers = read_texts(CLASSES, examples, ["yes", "perhaps"], labeled=True)
    assert (answers.predicted, answers.references, answers.names) == ([1, -1], [1, 0], ["q7", 1])
    assert count_unread(answers) == 1
    files = submission_files("glue", answers, examples, CLASSES.labels)
    assert files["predictions.tsv"].splitlines()[1:] == ["q7\tyes", "1\tno"]

    sentence = Record("a:1", {"tokens": ["Anna", "reads"], "tags": ["B-PER", "O"]})
    tags = read_texts(TagTemplate("ner: {tokens}"), [sentence], ["B-PER"], labeled=True)
    assert (tags.predicted, tags.references) == ([["B-PER", "O"]], [["B-PER", "O"]])

    question = Record("q", {"id": "q", "question": "?", "context": "c", "answers": {"text": []}})
    assert read_texts(reading.SQUAD_2_0.prompt, [question], ["unanswerable"], labeled=False).predicted == [""]

    wsc = {"text": "It fits if it is small.", "span1_text": "the box", "span2_text": "it", "span2_index": 3}
    read = [read_texts(super_glue.WSC.prompt, [Record("", wsc)], [text], labeled=False) for text in ("box", "it")]
    assert [one.predicted for one in read] == [[1], [0]]


def test_each_kind_of_answer_has_its_formats():
    assert submission_of(Tagging(8), EXAMPLES) == "conll"
    assert submission_of(Classification(8), EXAMPLES, "glue") == "glue"
    writer, pairs = SequenceToSequence(8, 8), TextToText(EXAMPLES, CLASSES)
    assert submission_of(writer, pairs) == "jsonl"
    assert submission_of(writer, pairs, "superglue") == "superglue"
    for source, submission, sentence in (
        (TextToText(EXAMPLES, TextTemplate("{a}", "{b}")), "glue", "answers of TextTemplate; choose jsonl"),
        (pairs, "conll", "answers of LabelTemplate; choose jsonl or glue or superglue"),
        (EXAMPLES, "squad", "answers of JsonlFiles; choose jsonl"),
    ):
        with pytest.raises(InputError, match=sentence):
            submission_of(writer, source, submission)
