"""The commands on encoders: every objective inspected, one trained, and what bad input says."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from flax import linen as nn
from flax import traverse_util
from rich.console import Console

from t5x_lite.cli.commands.inspect import parameter_table, tree_lines
from t5x_lite.models import abstract_params
from t5x_lite.objectives import Distillation
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.open_model import open_model
from t5x_lite.runs.records import read_records
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training.initialization import FromModel


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", ["a segment of another document", "segments\nA ", "label\n", "sentence_pair/dense"]),
        pytest.param("spanbert", ["span boundaries\n", " > "], marks=pytest.mark.slow),
        pytest.param("roberta", ["<mask>"], marks=pytest.mark.slow),
        pytest.param("xlm-roberta", ["<mask>"], marks=pytest.mark.slow),
        pytest.param("albert", ["segments\nA ", "label\n", "in the text"], marks=pytest.mark.slow),
        ("electra", ["sampling", "\n generator ", "\n   masked_lm", "segments\nA "]),
    ],
)
def test_inspect(run, experiments, write_config, tmp_path, monkeypatch, family, expected):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = run("inspect", write_config(experiments[family], tmp_path / "config.py"))
    assert (status, err) == (0, "")
    mask = "<mask>" if "roberta" in family else "[MASK]"
    assert re.search(r"\binputs +8 x 32 ", out)
    for word in ("row 2", "\ntargets\n", mask, "[CLS] ", " [SEP]", *expected):
        assert word in out
    assert out.count("\ninputs\n") == 3
    assert "\nsampling\n" not in out, "random bits say nothing"


def test_inspect_lists_the_learning_rates_where_they_differ(experiments):
    """By parameter: frozen, or what the rate is multiplied by, from the lowest layer that is trained."""
    experiment = experiments["bert"]
    assert [column.header for column in parameter_table(experiment).columns][-1] == "count"
    optimizer = AdamW(Constant(1e-3), frozen=("embeddings/*",), frozen_layers=1, layerwise_decay=0.5)
    table = parameter_table(replace(experiment, optimizer=optimizer))
    names, *_, rates = (list(column.cells) for column in table.columns)
    names = full_names([str(name) for name in names])
    rate = dict(zip(names, rates, strict=True))
    assert rate["embeddings/token/embedding"] == "frozen"
    assert rate["encoder/layers/feed_forward/wi/kernel"] == "1 frozen, x 0.25"
    assert rate["sentence_pair/dense/kernel"] == rate["pooler/dense/bias"] == "x 1"
    decayed = parameter_table(replace(experiment, optimizer=AdamW(Constant(1e-3), layerwise_decay=0.5)))
    assert list(decayed.columns[-1].cells)[names.index("encoder/layers/feed_forward/wi/bias")] == "x 0.125 to x 0.25"


def full_names(lines):
    """The paths in a tree."""
    paths, above = [], []
    for line in lines:
        above = [*above[: (len(line) - len(line.lstrip())) // 2], line.strip()]
        paths.append("/".join(above))
    return paths


def test_the_tree_of_parameters_has_each_once_and_fits_80_columns(experiments):
    paths = ["a/b/c", "a/b/d", "a/e", "a/b[red]/f", "g", "h/i/j"]
    lines, found = zip(*tree_lines(paths), strict=True)
    assert [path for path in found if path is not None] == paths
    assert all(path in (None, full) for path, full in zip(found, full_names(lines), strict=True))
    for experiment in experiments.values():
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(parameter_table(experiment))
        shown = console.export_text()
        assert "…" not in shown
        names = {line[1:].split("  ")[0] for line in shown.splitlines()}
        assert not names & {"e", "le", "ale"}, "names are whole"
        for path in traverse_util.flatten_dict(nn.unbox(abstract_params(experiment.model)), sep="/"):
            assert re.search(rf"[ /]{path.split('/')[-1]} ", shown)


@pytest.mark.slow
def test_inspect_a_student_with_its_teacher(run, experiments, make_run, write_config, tmp_path):
    teacher, params = str(make_run("bert")), open_model(make_run("distilbert")).params
    student = replace(experiments["distilbert"], objective=Distillation(32, teacher=teacher), start=FromModel(teacher))
    config = write_config(student, tmp_path / "config.py")
    status, out, err = run("inspect", config)
    assert (status, err) == (0, "")
    assert out.count("\ntargets\n") == 3
    write_checkpoint(tmp_path / "run" / "checkpoints", 1, student, tokenizer_files(Path(teacher) / "tokenizer"), params)
    status, out, _ = run("evaluate", tmp_path / "run", "--json")
    assert status == 0, "held-out figures are of the masked language model, for which no teacher is needed"
    assert set(json.loads(out)) == {"loss", "accuracy", "perplexity", "tokens", "unigram_loss"}
    status, _, err = run("inspect", config, "--objective.teacher", str(tmp_path))
    assert (status, err.count("\n")) == (2, 1)
    assert "holds no checkpoint" in err


@pytest.mark.slow
def test_train_then_evaluate_then_fill_in(run, experiments, write_config, tmp_path):
    config, workdir = write_config(experiments["electra"], tmp_path / "config.py"), tmp_path / "run"
    status, out, err = run("train", config, "--workdir", workdir)
    assert (status, err) == (0, "")
    assert "detection accuracy" in out
    *_, step_line = (line for line in out.splitlines() if line.startswith("step 2/2  loss"))
    assert "detection loss" in step_line
    assert "gradient" not in step_line
    for record in read_records(workdir / "metrics.jsonl"):
        assert record["kind"] == "checkpoint" or {"detection_loss", "detection_accuracy", "replaced"} <= set(record)
    sample = (workdir / "samples.txt").read_text().split("--- held-out row ")[1]
    lines = dict(line.split(":", 1) for line in sample.splitlines()[1:] if line)
    assert "[MASK]" in lines["input"]
    # Commas may be tokens too, but never three of five.
    targets, answers = (lines[name].count(", ") for name in ("target", "model"))
    assert targets >= 2
    assert abs(targets - answers) <= 4
    status, out, _ = run("evaluate", workdir)
    assert status == 0
    assert all(word in out for word in ("accuracy", "perplexity", "unigram", "detection loss", "replaced"))
    status, out, _ = run("evaluate", workdir, "--json")
    figures = json.loads(out)
    held_out = json.loads((workdir / "held_out.json").read_text())
    # A perplexity is off by as much, relatively, as its loss is altogether: it follows from the loss, below.
    assert figures.keys() == held_out.keys()
    assert all(figures[name] == pytest.approx(held_out[name]) for name in held_out if name != "perplexity")
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert 0.0 < figures["unigram_loss"] < math.log(150)
    assert 0.0 <= figures["detection_accuracy"] <= 1.0
    status, out, _ = run("fill_mask", workdir, "The [MASK] stands on the [MASK].", "the [MASK]", "--top-k", "3")
    assert status == 0
    assert [len(block.splitlines()) for block in out.strip().split("\n\n")] == [3, 3, 3]
    assert all("%" in line for line in out.strip().splitlines() if line)


@pytest.mark.slow
def test_evaluate_pairs_on_other_text(run, make_run, text):
    status, out, _ = run("evaluate", make_run("bert"), "--json", "--text", text, "--rows", "12")
    assert status == 0
    figures = json.loads(out)
    assert {"pair_loss", "pair_accuracy"} <= set(figures)
    assert figures["pair_accuracy"] * 12 == pytest.approx(round(figures["pair_accuracy"] * 12), abs=1e-4)


BAD = {
    "no mask": (["fill_mask", "RUN", "the wall"], "texts[0] has no mask; write [MASK]"),
    "another mask": (["fill_mask", "RUN", "the <mask>"], "write [MASK]"),
    "no text": (["fill_mask", "RUN"], "text is missing"),
    "nothing to suggest": (["fill_mask", "RUN", "a [MASK]", "--top-k", "0"], "top_k=0"),
    "too long": (["fill_mask", "RUN", "[MASK] " * 50], "max_length=40"),
    "no such run": (["fill_mask", "absent/run/at/all", "[MASK]"], "is neither a folder here"),
    "no decoder": (["generate", "RUN", "the wall"], "a BertConfig has no generate; use encode and fill_mask"),
    "no such head": (["train", "CONFIG", "--model.heads", "masked_lm", "next_sentence"], "--model.heads"),
    "lacking head": (["train", "CONFIG", "--model.heads", "masked_lm"], "lacks sentence_pair"),
    "rows too long": (["train", "CONFIG", "--objective.input-length", "64"], "exceeds model.max_length=40"),
    "rows of one segment": (["inspect", "CONFIG", "--objective.input-format", "full-sentences"], "has no pairs"),
    "no share": (["inspect", "CONFIG", "--objective.mask-rate", "0"], "mask_rate=0.0 is not in (0, 1)"),
    "too small a vocabulary": (["inspect", "CONFIG", "--model.vocab-size", "50"], "model.vocab_size=50 is smaller"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(run, make_run, experiments, write_config, tmp_path, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    arguments, expected = BAD[name]
    config = write_config(experiments["bert"], tmp_path / "config.py")
    places = {"RUN": make_run("bert"), "CONFIG": config}
    workdir = ["--workdir", tmp_path / "run"] if arguments[0] == "train" else []
    status, _, err = run(*(places.get(argument, argument) for argument in arguments), *workdir)
    assert status == 2
    assert err.startswith("t5x-lite: ")
    assert expected in err
    assert err.count("\n") == 1, "one sentence on one line"
    assert not (tmp_path / "run").exists()
