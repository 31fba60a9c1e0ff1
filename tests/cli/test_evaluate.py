"""Evaluation of a run on pairs: what it writes to a test set, scored against the set's own targets."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import pytest

import t5x_lite
from t5x_lite.data import Bytes, Data, TableFiles, TextToText, make_tokenizer
from t5x_lite.metrics.scores import score
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import Predictions, SequenceToSequence
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training import Evaluation, Experiment

MAX_LENGTH = 10
TEST = [(f"{number} grüne Flaschen", f"{number} green bottles") for number in range(9)]
LONG = ("eins " * 9, "one")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Pairs to train on, a test set, and one with a source that is longer than a row."""
    folder = tmp_path_factory.mktemp("pairs")
    train = [(f"{number} Stühle", f"{number} chairs") for number in range(60)]
    for name, pairs in {"train": train, "test": TEST, "long": [*TEST, LONG]}.items():
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return folder


@pytest.fixture(scope="module")
def a_run(folder, make_params) -> Path:
    """A run before its first step: random parameters."""
    sizes = {"vocab_size": 264, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "max_length": 64}
    experiment = Experiment(
        model=TransformerConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1),
        objective=SequenceToSequence(input_length=36, target_length=36),
        data=Data(
            TextToText(TableFiles((str(folder / "train.tsv"),), ("source", "target"))),
            Bytes(),
            held_out=0.3,
            cache_dir=str(folder / "cache"),
        ),
        optimizer=AdamW(),
        steps=1,
        batch_size=4,
        evaluation=Evaluation(rows=2, num_texts=3, max_length=MAX_LENGTH),
    )
    make_tokenizer(Bytes(), None).save(folder / "run" / "tokenizer")
    ids = jnp.ones((1, 2), jnp.int32)
    params = make_params(experiment.model.build(), 0, ids, ids)
    files = tokenizer_files(folder / "run" / "tokenizer")
    write_checkpoint(folder / "run" / "checkpoints", 0, experiment, files, params)
    return folder / "run"


def figures(run, *arguments) -> dict:
    status, out, _ = run("evaluate", *arguments, "--json")
    assert status == 0
    return json.loads(out)


@pytest.mark.slow
def test_a_test_set(run, folder, a_run):
    """All of it, whatever the run evaluates on while it trains."""
    found = figures(run, a_run, "--pairs", folder / "test.tsv", "--metrics", "chrf", "exact_match")
    answers = t5x_lite.load(a_run).generate([source for source, _ in TEST], max_length=MAX_LENGTH)
    expected = score(Predictions("texts", answers, [(target,) for _, target in TEST]), ("chrf", "exact_match"))
    assert {name: found[name] for name in expected.figures} == pytest.approx(expected.figures)
    assert found["signatures"] == expected.signatures
    tokens, words = sum(len(target) + 1 for _, target in TEST), sum(len(target.split()) for _, target in TEST)
    assert found["tokens"] == tokens
    assert math.log(found["word_perplexity"]) == pytest.approx(found["loss"] * tokens / words)


def test_beams_on_what_the_run_held_out(run, a_run):
    status, out, _ = run("evaluate", a_run, "--metrics", "bleu", "--num-beams", 3, "--alpha", 1.0)
    assert status == 0
    assert "word perplexity" in out
    assert out.count("BLEU") == 2
    assert "\nBLEU: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in out


def test_without_metrics_nothing_is_decoded(run, folder, a_run):
    found = figures(run, a_run, "--pairs", folder / "test.tsv", "--rows", 1)
    assert set(found) == {"loss", "accuracy", "perplexity", "word_perplexity", "tokens", "unigram_loss"}
    assert found["tokens"] < sum(len(target) + 1 for _, target in TEST)


@pytest.mark.slow
def test_what_is_longer_than_a_row_is_decoded_all_the_same(run, folder, a_run):
    status, out, err = run("evaluate", a_run, "--pairs", folder / "long.tsv", "--metrics", "chrf", "--json")
    assert status == 0
    assert "1 of 10 pairs left out, longer than a row" in err
    assert json.loads(out)["tokens"] == sum(len(target) + 1 for _, target in TEST)
    pairs = [*TEST, (LONG[0].strip(), LONG[1])]
    answers = t5x_lite.load(a_run).generate([source for source, _ in pairs], max_length=MAX_LENGTH)
    expected = score(Predictions("texts", answers, [(target,) for _, target in pairs]), ("chrf",)).figures
    assert json.loads(out)["chrf"] == pytest.approx(expected["chrf"])


BAD = {
    "no such metric": (["RUN", "--metrics", "meteor"], "--metrics"),
    "no beams": (["RUN", "--metrics", "bleu", "--num-beams", 0], "evaluation.num_beams=0 is too small"),
    "no texts": (["RUN", "--metrics", "bleu", "--num-texts", 0], "evaluation.num_texts=0 is too small"),
    "beams of nothing": (["RUN", "--num-beams", 2], "--num-beams=2 is for decoded texts, and no metric asks for any"),
    "no beams to penalize": (["RUN", "--metrics", "bleu", "--alpha", 0.5], "--alpha=0.5 is for beams"),
    "an encoder writes nothing": (["BERT", "--metrics", "bleu"], "has no answers for; leave it out"),
    "two corpora": (["RUN", "--pairs", "TEST", "--text", "TEST"], "two corpora"),
    "no such pairs": (["RUN", "--pairs", "absent.tsv"], "absent.tsv"),
    "no use for pairs": (["BERT", "--pairs", "TEST"], "--pairs goes with objectives on pairs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(run, folder, a_run, make_run, name):
    arguments, expected = BAD[name]
    places = {"RUN": a_run, "TEST": folder / "test.tsv", "BERT": make_run("bert") if "BERT" in arguments else None}
    status, out, err = run("evaluate", *(places.get(argument, argument) for argument in arguments))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert expected in err
