"""One's own text and pairs on the command line."""

import json
import re
from dataclasses import replace

import jax.numpy as jnp
import pytest

from t5x_lite.cli.arguments import DataOptions
from t5x_lite.data import (
    Bytes,
    Data,
    JsonlFiles,
    ParallelFiles,
    PythonDocs,
    TableFiles,
    TextFiles,
    TextTemplate,
    TextToText,
)
from t5x_lite.errors import InputError
from t5x_lite.models import T5Config
from t5x_lite.objectives import SequenceToSequence, SpanCorruption
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import ByteTokenizer
from t5x_lite.training import Evaluation, Experiment


def with_data(experiment, **paths):
    return DataOptions(**paths).apply(experiment)


MODEL = T5Config(
    vocab_size=264, embed_dim=8, num_heads=2, head_dim=4, mlp_dim=12, num_encoder_layers=1, num_decoder_layers=1
)


def tsv_pairs(*paths, sides=("0", "1"), **options):
    """Those in columns of tables, the first two unless `sides` says otherwise."""
    return TextToText(TableFiles(paths, columns=()), TextTemplate(*(f"{{{side}}}" for side in sides)), **options)


def jsonl_pairs(*paths, sides=("source", "target"), **options):
    """Those in the fields of objects."""
    return TextToText(JsonlFiles(paths), TextTemplate(*(f"{{{side}}}" for side in sides)), **options)


def lines_of(count, start=0):
    return "".join(f"Satz {n}\tsentence {n}\n" for n in range(start, start + count))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "train.tsv").write_text(lines_of(60))
    (folder / "dev.tsv").write_text(lines_of(5, 100))
    (folder / "long.tsv").write_text("".join(f"{n}\t{'x' * (40 if n == 3 else 4)}\n" for n in range(40)))
    (folder / "text.txt").write_text("\n".join(f"plain text {n}" for n in range(60)))
    records = ({"source": f"Satz {n}", "target": f"sentence {n}"} for n in range(8))
    (folder / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture(scope="module")
def experiment(folder):
    """On pairs, with a source for the held-out ones."""
    train, dev = (tsv_pairs(str(folder / f"{name}.tsv")) for name in ("train", "dev"))
    return Experiment(
        model=MODEL,
        objective=SequenceToSequence(input_length=32, target_length=36),
        data=Data(train, Bytes(), held_out_source=dev, cache_dir=str(folder / "cache")),
        optimizer=AdamW(Constant(1e-3)),
        steps=1,
        batch_size=8,
        evaluation=Evaluation(rows=10),
    )


def test_own_data_takes_the_place_of_the_configs(folder, experiment):
    tsv, jsonl, text = str(folder / "train.tsv"), str(folder / "test.jsonl"), str(folder / "text.txt")
    assert with_data(experiment) == experiment
    on_text = with_data(experiment, text=(text,)).data
    assert (on_text.source, on_text.held_out_source) == (TextFiles((text,)), None)
    on_pairs = with_data(experiment, pairs=(jsonl,), held_out_pairs=(tsv,)).data
    assert (on_pairs.source, on_pairs.held_out_source) == (jsonl_pairs(jsonl), tsv_pairs(tsv))
    assert with_data(experiment, pairs=(tsv, tsv)).data.held_out_source is None
    held_out = with_data(experiment, held_out_pairs=(jsonl,)).data
    assert (held_out.source, held_out.held_out_source) == (experiment.data.source, jsonl_pairs(jsonl))
    # All other fields stay.
    assert with_data(experiment, text=(text,)).data == replace(
        experiment.data, source=TextFiles((text,)), held_out_source=None
    )


@pytest.mark.parametrize(
    ("config", "tsv", "jsonl"),
    [
        (
            tsv_pairs("a", sides=("2", "1"), prefix="p", empty="skip"),
            tsv_pairs("TSV", sides=("2", "1"), prefix="p", empty="skip"),
            jsonl_pairs("JSON", prefix="p", empty="skip"),
        ),
        (
            jsonl_pairs("a", sides=("x", "y"), prefix="p"),
            tsv_pairs("TSV", prefix="p"),
            jsonl_pairs("JSON", sides=("x", "y"), prefix="p"),
        ),
        (
            TextToText(ParallelFiles(("source", "target"), ("a", "b")), prefix="p"),
            tsv_pairs("TSV", prefix="p"),
            jsonl_pairs("JSON", prefix="p"),
        ),
        (PythonDocs(), tsv_pairs("TSV"), jsonl_pairs("JSON")),
    ],
)
def test_own_pairs_are_read_as_the_configs(folder, experiment, config, tsv, jsonl):
    configured = replace(experiment, data=replace(experiment.data, source=config, held_out_source=None))
    for name, expected in (("train.tsv", tsv), ("test.jsonl", jsonl)):
        paths = (str(folder / name),)
        assert with_data(configured, pairs=paths).data.source == replace(
            expected, examples=replace(expected.examples, paths=paths)
        )


def test_what_does_not_go_together(folder, experiment):
    with pytest.raises(InputError, match="--text and --pairs are two corpora"):
        with_data(experiment, text=("a",), pairs=("b",))
    with pytest.raises(InputError, match="--pairs names files of JSON and others .*; give files of one kind"):
        with_data(experiment, pairs=(str(folder / "*.*s*"),))
    with pytest.raises(InputError, match="--held-out-pairs='absent.tsv': the file or folder does not exist"):
        with_data(experiment, held_out_pairs=("absent.tsv",))


@pytest.fixture(scope="module")
def trained(folder, experiment, make_params):
    """A run as if it had been trained: random parameters as its checkpoint of step 0."""
    workdir, ids = folder / "run", jnp.ones((1, 2), jnp.int32)
    ByteTokenizer(0).save(workdir / "tokenizer")
    params = make_params(MODEL.build(), 0, ids, ids)
    write_checkpoint(workdir / "checkpoints", 0, experiment, tokenizer_files(workdir / "tokenizer"), params)
    return workdir


@pytest.mark.slow
def test_evaluation_of_all_pairs_of_a_file(run, folder, trained):
    (folder / "one.tsv").write_text("Hallo\thello\n")
    for name, targets in (("test.jsonl", [f"sentence {n}" for n in range(8)]), ("one.tsv", ["hello"])):
        status, out, _ = run("evaluate", trained, "--json", "--pairs", folder / name)
        assert status == 0
        # Each target has its EOS.
        assert json.loads(out)["tokens"] == sum(len(target) + 1 for target in targets)
    status, out, err = run("evaluate", trained, "--text", folder / "text.txt")
    assert status == 2 and "has no pairs" in err and "--pairs" in err


def test_training_takes_own_pairs(run, folder, experiment, write_config):
    config = write_config(experiment, folder / "config.py")
    (folder / "bad.tsv").write_text("gut\tgood\nleer\t\n")
    for option in ("--pairs", "--held-out-pairs"):
        status, _, err = run("train", config, "--workdir", folder / "new", option, folder / "bad.tsv")
        assert status == 2 and "bad.tsv:2 has an empty target" in err and err.count("\n") == 1
        assert not (folder / "new").exists()


def test_inspect_tells_the_padding_and_shows_pairs(run, folder, experiment, write_config, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    config = write_config(experiment, folder / "config.py")
    status, out, _ = run("inspect", config)
    assert status == 0
    header, train, held_out = [line.split() for line in out[out.index(" split ") :].splitlines()[:3]]
    assert header == ["split", "pairs", "tokens", "rows", "padding", "pairs", "a", "row"]
    rows, padding, share = int(train[3]), float(train[4].rstrip("%")) / 100, float(train[5])
    assert train[:2] == ["train", "60"] and held_out[:2] == ["held-out", "5"]
    assert share == pytest.approx(60 / rows, abs=0.01)
    assert padding == pytest.approx(1 - int(train[2].replace(",", "")) / (rows * 68), abs=0.001)
    assert re.search(r"row\nSatz (\d+)  ->  sentence \1\nSatz (\d+)  ->  sentence \2\n", out)
    assert re.search(r"\d pairs: sources \d\d of 32 ids, targets \d\d of 36 ids\n", out)
    status, out, err = run("inspect", config, "--pairs", folder / "long.tsv")
    assert status == 2 and "long.tsv:4: the target has 41 ids" in err and "too_long='skip'" in err
    status, out, _ = run("inspect", config, "--pairs", folder / "long.tsv", "--objective.too-long", "skip")
    assert status == 0
    assert "1 of " in out and "pairs left out, longer than a row; the first at" in out and "long.tsv:4" in out


def test_inspect_of_text_tells_its_padding(run, folder, experiment, write_config):
    other = replace(
        experiment,
        objective=SpanCorruption(input_length=24),
        data=Data(TextFiles((str(folder / "text.txt"),)), Bytes(), held_out=0.2, cache_dir=str(folder / "cache")),
    )
    status, out, _ = run("inspect", write_config(other, folder / "text_config.py"))
    assert status == 0
    header, train, _ = [line.split() for line in out[out.index(" split ") :].splitlines()[:3]]
    assert header == ["split", "documents", "tokens", "rows", "padding"]
    assert train[-1] == "0.0%"
