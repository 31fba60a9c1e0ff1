"""Whole runs with a memory: stopped and gone on with, evaluated with more of it, loaded."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.cli.main import main
from t5x_lite.data import Data, LabeledTexts, SentencePiece, TableFiles
from t5x_lite.models import TransformerXLConfig, XLNetConfig
from t5x_lite.objectives import Classification, PermutationLanguageModel, SegmentLanguageModel
from t5x_lite.runs.records import read_records
from t5x_lite.training import Evaluation
from t5x_lite.training.initialization import FromModel, FromRun

pytestmark = pytest.mark.slow  # two runs come first; memories are tested by themselves in objectives/ and models/

XL = TransformerXLConfig(
    vocab_size=264,
    num_heads=2,
    head_dim=4,
    embed_dim=16,
    mlp_dim=16,
    num_layers=2,
    cutoffs=(100,),
    dropout_rate=0.1,
)


XLNET = XLNetConfig(
    vocab_size=80, num_heads=2, embed_dim=16, mlp_dim=16, num_layers=2, dropout_rate=0.1, heads=("permutation_lm",)
)


@pytest.fixture(scope="module")
def experiment(tiny):
    return replace(
        tiny, model=XL, objective=SegmentLanguageModel(16, memory_length=12), evaluation=Evaluation(every=3, rows=50)
    )


@pytest.fixture(scope="module")
def xlnet(experiment):
    return replace(
        experiment,
        model=XLNET,
        objective=PermutationLanguageModel(24, reused_length=10, memory_length=12),
        data=replace(experiment.data, tokenizer=SentencePiece(80, layout="xlnet", character_coverage=1.0)),
    )


@pytest.fixture(scope="module")
def runs(experiment, xlnet, train, tmp_path_factory):
    """(experiment, folder) by name."""
    found = {}
    for name, one in (("Transformer-XL", experiment), ("XLNet", xlnet)):
        found[name] = one, tmp_path_factory.mktemp("memory") / name
        train(*found[name], report=False)
    return found


@pytest.fixture(scope="module")
def run(runs):
    return runs["Transformer-XL"][1]


def params_of(workdir):
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(workdir).params), sep="/")


def losses(folder, kind="train"):
    return [record["loss"] for record in read_records(folder / "metrics.jsonl") if record["kind"] == kind]


@pytest.mark.parametrize("name", ["Transformer-XL", "XLNet"])
def test_stopped_and_gone_on_with_it_is_the_same_run(runs, name, train, tmp_path, stopped_after):
    experiment, run = runs[name]
    with stopped_after(3):
        train(experiment, tmp_path, report=False)
    assert len(losses(tmp_path)) < experiment.steps
    train(experiment, tmp_path, report=False)
    assert losses(tmp_path) == losses(run)
    assert losses(tmp_path, "held_out") == losses(run, "held_out")
    undisturbed, gone_on = params_of(run), params_of(tmp_path)
    for name, value in undisturbed.items():
        np.testing.assert_array_equal(gone_on[name], value, err_msg=name)


@pytest.mark.parametrize("memory_length", [12, 7])
def test_another_run_goes_on_from_it_with_its_memory_or_a_new_one(experiment, run, train, tmp_path, memory_length):
    """Of another length it begins empty."""
    objective = replace(experiment.objective, memory_length=memory_length)
    train(replace(experiment, objective=objective, start=FromRun(str(run)), steps=8), tmp_path, report=False)
    assert len(losses(tmp_path)) == 2


def test_evaluation_with_more_memory_or_none(run, capsys):
    found = {}
    for length in (None, 0, 12, 30):
        options = [] if length is None else ["--memory-length", str(length)]
        assert main(["evaluate", str(run), "--json", *options]) == 0
        found[length] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found[None]["loss"] == found[12]["loss"] == pytest.approx(losses(run, "held_out")[-1], abs=1e-6)
    assert len({one["loss"] for one in found.values()}) == 3
    assert len({one["tokens"] for one in found.values()}) == 1


@pytest.mark.parametrize("lengths", [(0, 8), (0, None), (8, 0)])
def test_a_run_without_a_memory_in_training_or_in_evaluation(experiment, train, tmp_path, stopped_after, lengths):
    """An array of length 0 could not be saved."""
    objective = SegmentLanguageModel(16, memory_length=lengths[0], evaluation_memory_length=lengths[1])
    without = replace(experiment, objective=objective, steps=4)
    with stopped_after(2):
        train(without, tmp_path, report=False)
    train(without, tmp_path, report=False)
    assert len(losses(tmp_path)) == 4


def test_a_memory_is_asked_of_models_that_have_one(tiny, train, tmp_path, capsys):
    train(replace(tiny, steps=1), tmp_path / "run", report=False)
    assert main(["evaluate", str(tmp_path / "run"), "--memory-length", "8"]) == 2
    assert "SpanCorruption has no memory" in capsys.readouterr().err


def test_a_notebook_opens_it(run):
    model = t5x_lite.load(run)
    assert len(model.generate("alpha beta", max_length=5)) > 0
    assert model.generate(["alpha", "alpha beta gamma"], max_length=4, num_beams=2) == [
        model.generate(text, max_length=4, num_beams=2) for text in ("alpha", "alpha beta gamma")
    ]


def test_xlnet_learns_a_task_and_answers(runs, train, tmp_path, capsys):
    """From its pretrained parameters; rows end with <cls>, which the head reads."""
    pretrained, folder = runs["XLNet"]
    rows = [f"{word} {number}\t{label}" for number in range(20) for word, label in (("alpha", "yes"), ("zeta", "no"))]
    (tmp_path / "examples.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    examples = TableFiles((str(tmp_path / "examples.tsv"),))
    experiment = replace(
        pretrained,
        model=replace(XLNET, heads=("classification",)),
        objective=Classification(16),
        data=Data(LabeledTexts(examples, labels=("no", "yes")), None, held_out=0.3),
        start=FromModel(str(folder)),
        steps=2,
        evaluation=Evaluation(every=0, rows=50),
    )
    train(experiment, tmp_path / "task", report=False)
    start, after = params_of(folder), params_of(tmp_path / "task")
    assert np.abs(after["token_embedding/embedding"] - start["token_embedding/embedding"]).max() < 0.1
    model = t5x_lite.load(tmp_path / "task")
    (best, other) = model.classify("alpha 3")
    assert {best.label, other.label} == {"yes", "no"}
    ids = model.tokenizer.encode("alpha 3")
    vocabulary = model.tokenizer.vocabulary
    row = np.array([[*ids, vocabulary.sep_id, vocabulary.cls_id]])
    segments = np.array([[0] * (len(ids) + 1) + [2]])
    logits = model(row, segments)["classification_logits"][0]
    assert best.probability == pytest.approx(float(jax.nn.softmax(logits).max()), rel=1e-5)
    last = model.encode("alpha 3", pooling="cls")
    np.testing.assert_allclose(last, model.encode("alpha 3", pooling="tokens")[-1], atol=1e-6)
    assert main(["evaluate", str(tmp_path / "task"), "--json"]) == 0
    assert "accuracy" in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_xlnet_goes_out_to_hugging_face_and_transformer_xl_does_not(runs, tmp_path, capsys):
    assert main(["convert", str(runs["XLNet"][1]), str(tmp_path / "xlnet")]) == 0
    again = t5x_lite.load(tmp_path / "xlnet")
    for name, value in params_of(runs["XLNet"][1]).items():
        np.testing.assert_array_equal(traverse_util.flatten_dict(again.params, sep="/")[name], value)
    assert again.tokenizer.vocabulary == t5x_lite.load(runs["XLNet"][1]).tokenizer.vocabulary
    assert main(["convert", str(runs["Transformer-XL"][1]), str(tmp_path / "xl")]) == 2
    assert "TransformerXLConfig" in capsys.readouterr().err
