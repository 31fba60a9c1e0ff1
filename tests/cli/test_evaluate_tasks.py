"""Evaluation of a run on the examples of a task: figures with intervals, answers as files, data without labels."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from t5x_lite.data import Choices, Data, JsonlFiles, LabeledTexts, Questions, TaggedWords, WordPiece, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig
from t5x_lite.objectives import Classification, MultipleChoice, QuestionAnswering, Tagging
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.open_model import open_checkpoint
from t5x_lite.runs.preparation import prepare
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training import Evaluation, Experiment

from ..slow import mostly_slow

WORDS = ("red", "green", "blue", "bottles", "chairs", "cats")
RANDOM = np.random.default_rng(0)


def words(count):
    return [WORDS[number] for number in RANDOM.integers(0, len(WORDS), count)]


def question(number):
    context = words(30)
    record = {"id": f"q{number}", "question": "which cats", "context": " ".join(context), "answers": [], "starts": []}
    if number % 3:
        start = len(" ".join(context[:20])) + 1
        record |= {"answers": [" ".join(context[20:22])], "starts": [start]}
    return record


def texts(number):
    return {"text": " ".join(words(4)), "label": ("no", "yes")[number % 2]}


def tags(number):
    count = 3 + number % 20
    return {"tokens": words(count), "tags": [("O", "B-A")[i % 2] for i in range(count)]}


def choice(number):
    return {"context": " ".join(words(4)), "choices": [" ".join(words(2)) for _ in range(3)], "label": number % 3}


TASKS = {
    "texts": (texts, LabeledTexts, {"labels": ("no", "yes")}, Classification(16)),
    "tags": (tags, TaggedWords, {"labels": ("O", "B-A")}, Tagging(16)),
    "questions": (question, Questions, {}, QuestionAnswering(24, 6, 4)),
    "choices": (choice, Choices, {}, MultipleChoice(16, 3)),
}


@pytest.fixture(scope="module")
def run_of_task(tmp_path_factory, make_params):
    """`run_of_task(kind)`: (a run before its first step, its held-out records)."""
    made: dict[str, tuple[Path, list[dict]]] = {}

    def make(kind):
        if kind in made:
            return made[kind]
        record, source, options, objective = TASKS[kind]
        folder = tmp_path_factory.mktemp(kind)
        records = {"train": [record(n) for n in range(12)], "dev": [record(n) for n in range(12, 31)]}
        for name, some in records.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some))
        train, dev = (source(JsonlFiles((str(folder / f"{name}.jsonl"),)), **options) for name in records)
        tokenizer = make_tokenizer(WordPiece(vocab_size=60), train.documents)
        tokenizer.save(folder / "run" / "tokenizer")
        model = BertConfig(
            vocab_size=60,
            embed_dim=8,
            num_heads=2,
            mlp_dim=12,
            num_layers=1,
            max_length=24,
            heads=(objective.head,),
            pooler=True,
        )
        experiment = Experiment(
            model=model,
            objective=objective,
            data=Data(train, WordPiece(vocab_size=60), held_out_source=dev, cache_dir=str(folder / "cache")),
            optimizer=AdamW(),
            steps=1,
            batch_size=4,
            evaluation=Evaluation(rows=5),
        )
        params = make_params(model.build(), 0, jnp.ones((1, 4), jnp.int32))
        files = tokenizer_files(folder / "run" / "tokenizer")
        write_checkpoint(folder / "run" / "checkpoints", 0, experiment, files, params)
        made[kind] = folder / "run", records["dev"]
        return made[kind]

    return make


@pytest.mark.parametrize("kind", mostly_slow(TASKS, "questions"))
def test_all_held_out_examples_are_answered_in_their_order(kind, run_of_task, run, tmp_path):
    folder, records = run_of_task(kind)
    status, out, error = run("evaluate", str(folder), "--out", str(tmp_path / "out"), "--json", "--submission", "jsonl")
    assert status == 0, error
    figures = json.loads(out)
    assert figures == json.loads((tmp_path / "out" / "scores.json").read_text())
    for name, (low, high) in figures["intervals"].items():
        assert low <= figures[name] <= high
    assert figures["intervals"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    fields = {"texts": "label", "tags": "tags", "questions": "answers", "choices": "label"}
    assert [line["reference"] for line in lines] == [record[fields[kind]] for record in records]
    names = [record.get("id", str(number)) for number, record in enumerate(records)]
    assert [line["example"] for line in lines] == names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["questions", "tags"])
def test_without_labels_there_are_predictions_alone(kind, run_of_task, run, tmp_path):
    folder, records = run_of_task(kind)
    keys = ("text", "tokens", "id", "question", "context", "choices")
    (tmp_path / "test.jsonl").write_text(
        "".join(json.dumps({key: record[key] for key in keys if key in record}) + "\n" for record in records)
    )
    arguments = ("--examples", str(tmp_path / "test.jsonl"), "--unlabeled", "--out", str(tmp_path / "out"))
    status, out, error = run("evaluate", str(folder), *arguments)
    assert status == 0, error
    assert out.strip() == f"answers are in {tmp_path / 'out'}"
    run("evaluate", str(folder), "--out", str(tmp_path / "with"))
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == sorted({path.name for path in (tmp_path / "with").iterdir()} - {"scores.json"})
    if kind == "questions":
        texts = [(tmp_path / name / "predictions.json").read_text() for name in ("out", "with")]
        assert texts[0] == texts[1]
        assert list(json.loads(texts[0])) == [record["id"] for record in records]
        contexts = {record["id"]: record["context"] for record in records}
        assert all(text in contexts[name] for name, text in json.loads(texts[0]).items())
    if kind == "tags":
        lines = (tmp_path / "out" / "predictions.txt").read_text().split("\n\n")
        assert [[line.split()[0] for line in block.splitlines()] for block in lines if block] == [
            record["tokens"] for record in records
        ]


def test_glue_and_superglue_have_their_columns(run_of_task, run, tmp_path):
    folder, records = run_of_task("texts")
    for submission, name in (("glue", "predictions.tsv"), ("superglue", "predictions.jsonl")):
        assert run("evaluate", str(folder), "--out", str(tmp_path / submission), "--submission", submission)[0] == 0
        lines = (tmp_path / submission / name).read_text().splitlines()
        if submission == "glue":
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[0] for line in lines[1:]] == list(map(str, range(len(records))))
            assert {line.split("\t")[1] for line in lines[1:]} <= {"no", "yes"}
        else:
            found = [json.loads(line) for line in lines]
            assert [line["idx"] for line in found] == list(range(len(records)))
            assert {line["label"] for line in found} <= {"no", "yes"}


@pytest.mark.parametrize(
    ("kind", "arguments", "sentence"),
    [
        (
            "texts",
            ("--submission", "squad", "--out", "out"),
            "submission='squad', has no room for the answers of Classification",
        ),
        ("texts", ("--metrics", "pearson"), "evaluation.metrics has 'pearson'"),
        ("texts", ("--unlabeled",), "--unlabeled makes predictions of examples; give --examples FILE"),
        ("texts", ("--examples", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_what_cannot_be(kind, arguments, sentence, run_of_task, run):
    status, _, error = run("evaluate", str(run_of_task(kind)[0]), *arguments)
    assert status == 2
    assert sentence in error


def test_unknown_labels_of_other_examples_are_counted(run_of_task, run, tmp_path):
    (tmp_path / "test.jsonl").write_text('{"text": "red", "label": "maybe"}\n{"text": "blue", "label": "maybe"}\n')
    status, _, error = run("evaluate", str(run_of_task("texts")[0]), "--examples", str(tmp_path / "test.jsonl"))
    assert status == 2
    assert "'maybe' 2 times, the first in" in error


def test_a_run_does_not_learn_from_unlabeled_examples(run_of_task):
    experiment = open_checkpoint(run_of_task("texts")[0]).experiment
    blind = replace(experiment.data, source=replace(experiment.data.source, label=""))
    with pytest.raises(InputError, match="data.source has no labels to learn"):
        prepare(replace(experiment, data=blind), Console(quiet=True))
