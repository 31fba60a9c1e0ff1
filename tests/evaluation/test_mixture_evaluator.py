"""Runs on tasks and on mixtures of them: figures of each part, their means, and answers that are right in many ways."""

import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from rich.console import Console

from t5x_lite.cli.main import main
from t5x_lite.data import (
    AnswerTemplate,
    Bytes,
    Data,
    Equal,
    JsonlFiles,
    LabelTemplate,
    Mixture,
    Part,
    TextToText,
)
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import held_out_of
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs import loop
from t5x_lite.runs.open_model import open_model
from t5x_lite.runs.preparation import prepare
from t5x_lite.runs.records import read_records
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging, PartMetrics
from t5x_lite.training.step import Program

pytestmark = pytest.mark.slow  # a run comes first

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SIZES = {"vocab_size": 264, "embed_dim": 16, "num_heads": 4, "mlp_dim": 24, "max_length": 64}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Two tasks: whether the first word is 'one', and which word comes behind it."""
    folder = tmp_path_factory.mktemp("tasks")
    records = [{"text": f"{a} {b}", "label": str(a == "one"), "next": [b, a]} for a in WORDS for b in WORDS]

    def source(name, some, prompt):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in some))
        return TextToText(JsonlFiles((str(path),)), prompt)

    parts = [
        Part(name, source(f"{name}-train", records, prompt), source(f"{name}-dev", records[::7], prompt))
        for name, prompt in (
            ("label", LabelTemplate("first: {text}", labels=("False", "True"), words=("no", "yes"))),
            ("next", AnswerTemplate("next: {text}", "next")),
        )
    ]
    metrics = (PartMetrics("label", ("exact_match", "f1")), PartMetrics("next", ("squad",)))
    return Experiment(
        model=TransformerConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1, dropout_rate=0.0),
        objective=SequenceToSequence(input_length=40, target_length=48),
        data=Data(Mixture(tuple(parts), Equal()), Bytes(), cache_dir=str(folder / "cache")),
        optimizer=AdamW(Constant(1e-2)),
        steps=4,
        batch_size=8,
        evaluation=Evaluation(every=0, rows=100, num_texts=9, part_metrics=metrics, max_length=8),
        checkpoints=Checkpointing(every=2, keep_last=2, keep_best=0),
        logging=Logging(every=2),
    )


def train(experiment, workdir):
    printed = io.StringIO()
    loop.train(experiment, workdir, Console(file=printed, width=300), jax.devices()[:1])
    return printed.getvalue()


@pytest.fixture(scope="module")
def run(experiment, tmp_path_factory):
    """(folder, what was printed)"""
    folder = tmp_path_factory.mktemp("run")
    return folder, train(experiment, folder)


def test_every_part_has_figures_and_counts_the_same(run):
    workdir, printed = run
    (record,) = (one for one in read_records(workdir / "metrics.jsonl") if one["kind"] == "held_out")
    names = {"loss", "accuracy"}
    expected = {f"label/{name}" for name in names | {"exact_match", "f1"}}
    expected |= {f"next/{name}" for name in names | {"squad_exact_match", "squad_f1"}}
    assert {name for name in record if "/" in name} == expected
    for name in names:
        assert record[name] == pytest.approx((record[f"label/{name}"] + record[f"next/{name}"]) / 2)
    assert record["perplexity"] == pytest.approx(np.exp(record["loss"]))
    label = (record["label/exact_match"] + record["label/f1"]) / 2
    following = (record["next/squad_exact_match"] + record["next/squad_f1"]) / 200
    assert record["average_score"] == pytest.approx((label + following) / 2)
    assert "mixture, shares of examples: label 50.00%, next 50.00%" in printed
    assert "input:  first: one one" in printed
    assert "input:  next: one one" in printed


def program_of(experiment):
    prepared = prepare(experiment, Console(quiet=True))
    return Program(experiment, prepared.objective, make_mesh(MeshShape(), jax.devices()[:1])), prepared.store


def test_a_part_alone_has_the_same_figures(run, experiment):
    workdir, _ = run
    figures = json.loads((workdir / "held_out.json").read_text())
    part = experiment.data.source.parts[0]
    alone = replace(
        experiment,
        data=replace(experiment.data, source=part.source, held_out_source=part.held_out_source),
        evaluation=replace(experiment.evaluation, metrics=("exact_match", "f1"), part_metrics=()),
    )
    program, store = program_of(alone)
    params = jax.device_put(open_model(workdir).params, program.state_shardings.params)
    found = held_out_of(program, store).evaluate(params).figures
    for name in ("loss", "accuracy", "exact_match", "f1"):
        assert found[name] == pytest.approx(figures[f"label/{name}"], rel=1e-5)


def test_answers_go_into_a_folder_with_the_intervals_of_their_scores(run, capsys, tmp_path):
    workdir, _ = run
    assert main(["evaluate", str(workdir), "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "out" / "scores.json").read_text()) == printed
    held_out = json.loads((workdir / "held_out.json").read_text())
    for name, value in held_out.items():
        assert printed[name] == pytest.approx(value, rel=1e-5), name
    names = {"label/exact_match", "label/f1", "next/squad_exact_match", "next/squad_f1"}
    assert set(printed["intervals"]) == names
    for name in names:
        low, high = printed["intervals"][name]
        assert low <= printed[name] <= high
    lines = [json.loads(line) for line in (tmp_path / "out" / "next.jsonl").read_text().splitlines()]
    assert [(line["input"], line["references"]) for line in lines[:2]] == [
        ("next: one one", ["one"]),
        ("next: one eight", ["eight", "one"]),
    ]
    right = sum(line["prediction"] in line["references"] for line in lines) / len(lines)
    assert printed["next/squad_exact_match"] == pytest.approx(100 * right)
    assert (tmp_path / "out" / "label.jsonl").exists()


def test_one_part_has_the_figures_that_it_has_among_the_others(run, capsys, tmp_path):
    workdir, _ = run
    out = str(tmp_path / "out")
    assert main(["evaluate", str(workdir), "--part", "label", "--out", out, "--submission", "glue", "--json"]) == 0
    found, figures = json.loads(capsys.readouterr().out), json.loads((workdir / "held_out.json").read_text())
    for name in ("loss", "accuracy", "exact_match", "f1"):
        assert found[name] == pytest.approx(figures[f"label/{name}"], rel=1e-5)
    header, *rows = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    assert (header, len(rows)) == ("index\tprediction", 9)
    assert main(["evaluate", str(workdir), "--part", "other"]) == 2
    assert "--part=other is not a part of a mixture; choose one of label, next" in capsys.readouterr().err


def test_other_pairs_are_compared_with_what_the_parts_are_trained_on(run, capsys, tmp_path):
    """And scored by the given metrics."""
    path = tmp_path / "test.tsv"
    path.write_text("first: zero\tno\nfirst: One  TWO\tno\nnext: one two\ttwo\n")
    assert main(["evaluate", str(run[0]), "--pairs", str(path), "--metrics", "exact_match", "--json"]) == 0
    out, message = capsys.readouterr()
    assert 0 <= json.loads(out)["exact_match"] <= 1
    remark = "2 of 3 pairs stand in the training data too, 1 of them with the same answer; the first is "
    assert f"{remark}{path}:2" in message


def test_a_run_that_was_stopped_goes_on_bit_identically(run, experiment, tmp_path):
    train(replace(experiment, steps=2), tmp_path)
    assert "resuming from step 2" in train(experiment, tmp_path)
    whole, stopped = open_model(run[0]).params, open_model(tmp_path).params
    jax.tree.map(np.testing.assert_array_equal, whole, stopped)


def test_questions_know_every_answer_that_is_right(experiment):
    program, store = program_of(experiment)
    questions = held_out_of(program, store).parts["next"].questions
    assert len(questions) == 9
    assert [question.right for question in questions[:3]] == [("one",), ("eight", "one"), ("five", "two")]


@pytest.mark.parametrize("metric", ["f1", "referent", "group_match"])
def test_metrics_that_do_not_fit_are_refused_before_the_first_step(experiment, metric):
    program, store = program_of(experiment)
    experiment = replace(experiment, evaluation=Evaluation(part_metrics=(PartMetrics("next", (metric,)),)))
    program.experiment = experiment
    with pytest.raises(InputError, match=f"metric '{metric}' needs"):
        held_out_of(program, store)
