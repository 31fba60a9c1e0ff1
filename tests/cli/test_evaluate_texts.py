"""Evaluation of a run that answers tasks by texts: other splits, data without labels, formats of benchmarks."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow_datasets as tfds

from t5x_lite.data import Bytes, Data, JsonlFiles, LabelTemplate, TextToText, make_tokenizer
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tasks import glue
from t5x_lite.training import Evaluation, Experiment

F = tfds.features
WORDING = LabelTemplate("say: {text}", labels=("a", "b"), words=("x", "y"))


@pytest.fixture(scope="module")
def write_run(make_params):
    """`write_run(folder, source, held_out_source)`: a run before its first step."""

    def write(folder, source, held_out_source=None):
        tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
        tokenizer.save(folder / "run" / "tokenizer")
        sizes = {"vocab_size": 264, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "max_length": 64}
        model = TransformerConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1)
        experiment = Experiment(
            model=model,
            objective=SequenceToSequence(input_length=40, target_length=16),
            data=Data(source, Bytes(), held_out_source=held_out_source, cache_dir=str(folder / "cache")),
            optimizer=AdamW(),
            steps=1,
            batch_size=4,
            evaluation=Evaluation(rows=4, num_texts=4, metrics=("exact_match", "f1"), max_length=3),
        )
        ids = jnp.ones((1, 4), jnp.int32)
        params = make_params(model.build(), 0, ids, ids)
        files = tokenizer_files(folder / "run" / "tokenizer")
        write_checkpoint(folder / "run" / "checkpoints", 0, experiment, files, params)
        return str(folder / "run")

    return write


@pytest.fixture(scope="module")
def of_glue(tmp_path_factory, write_run, write_dataset):
    """A run on CoLA, whose test set hides its labels and comes in another order than the benchmark's."""
    folder = tmp_path_factory.mktemp("glue")
    label = F.ClassLabel(names=["unacceptable", "acceptable"])
    cola = F.FeaturesDict({"sentence": F.Text(), "label": label, "idx": np.int32})

    def examples(labels):
        return [{"sentence": f"They {3 * n}.", "label": label, "idx": 4 - n} for n, label in enumerate(labels)]

    splits = {"train": examples([1, 0]), "validation": examples([0, 1, 1]), "test": examples([-1] * 5)}
    write_dataset(folder / "glue" / "cola" / "2.0.0", cola, "cola", **splits)
    task = glue.COLA.at(str(folder))
    return write_run(folder, task.pairs(task.train), task.pairs(task.dev))


@pytest.fixture(scope="module")
def of_files(tmp_path_factory, write_run):
    """A run on files, a part of which is held out."""
    folder = tmp_path_factory.mktemp("files")
    lines = [json.dumps({"text": f"number {n}", "label": "ab"[n % 2], "idx": 9 - n}) for n in range(8)]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return write_run(folder, TextToText(JsonlFiles((str(folder / "train.jsonl"),)), WORDING)), folder


@pytest.mark.slow
def test_a_hidden_test_set_is_answered_in_the_format_of_glue(of_glue, run, tmp_path):
    arguments = ("--split", "test", "--unlabeled", "--out", str(tmp_path / "out"), "--submission", "glue")
    status, out, error = run("evaluate", of_glue, *arguments)
    assert status == 0, error
    assert out.strip() == f"answers are in {tmp_path / 'out'}"
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "CoLA.tsv"
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["index", "prediction"]
    assert [row[0] for row in rows] == list("01234")
    assert {row[1] for row in rows} <= {"0", "1"}
    assert "5 of 5 answers are no class's word and stand as the first class" in error


@pytest.mark.slow
def test_a_split_is_scored_and_answered(of_glue, run, tmp_path):
    arguments = ("--split", "validation", "--out", str(tmp_path / "out"), "--submission", "glue", "--json")
    status, out, error = run("evaluate", of_glue, *arguments)
    assert status == 0, error
    figures = json.loads(out)
    assert set(figures["intervals"]) == {"exact_match", "f1"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["CoLA.tsv", "scores.json"]
    assert len((tmp_path / "out" / "CoLA.tsv").read_text().splitlines()) == 4


def test_unlabeled_files_are_answered_a_line_each(of_files, run, tmp_path):
    (tmp_path / "test.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    arguments = ("--examples", str(tmp_path / "test.jsonl"), "--unlabeled", "--out", str(tmp_path / "out"))
    status, _, error = run("evaluate", of_files[0], *arguments)
    assert status == 0, error
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [line["input"] for line in lines] == ["say: one", "say: two"]
    assert all(set(line) == {"input", "prediction"} for line in lines)


def test_superglue_of_files(of_files, run, tmp_path):
    run_folder, folder = of_files
    arguments = ("--examples", str(folder / "train.jsonl"), "--submission", "superglue", "--out", str(tmp_path / "out"))
    status, _, error = run("evaluate", run_folder, *arguments)
    assert status == 0, error
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [line["idx"] for line in lines] == list(range(9, 1, -1))
    assert {line["label"] for line in lines} <= {"a", "b"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--split", "test"), "--split=test is of a dataset of TensorFlow Datasets, and this run has TextToText"),
        (("--split", "test", "--examples", "a.jsonl"), "--examples and --split are two sets of examples"),
        (("--submission", "glue"), "--submission=glue is the format of files; give --out FOLDER"),
        (("--submission", "glue", "--out", "out"), "submission='glue' is for the examples of one task"),
        (("--submission", "conll", "--out", "out"), "submission='conll', has no room for the answers of LabelTemplate"),
    ],
)
def test_what_cannot_be(arguments, sentence, of_files, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, error = run("evaluate", of_files[0], *arguments)
    assert status == 2
    assert sentence in error
    assert not (tmp_path / "out").exists()


def test_another_split_of_a_dataset_must_be_there(of_glue, run):
    status, _, error = run("evaluate", of_glue, "--split", "dev")
    assert status == 2
    assert "split='dev'" in error
