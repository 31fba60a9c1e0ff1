"""What a model writes, from the command line: a text-to-text model and a language model with random parameters."""

import jax
import jax.numpy as jnp
import pytest

from t5x_lite.data import Bytes, Data, make_tokenizer
from t5x_lite.models import GptConfig, T5Config
from t5x_lite.objectives import CausalLanguageModel, SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training import Experiment

WIDTHS = {"vocab_size": 384, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17}
RUNS = {
    "t5": (
        T5Config(**WIDTHS, head_dim=5, num_encoder_layers=1, num_decoder_layers=1),
        SpanCorruption(16),
    ),
    "gpt": (GptConfig(**WIDTHS, num_layers=1, max_length=48), CausalLanguageModel(32)),
}
TEXTS = ["seven green", "", "bottles", "on the wall"]


@pytest.fixture(scope="module")
def runs(make_params, tmp_path_factory):
    """Folders of runs, by name."""
    folders = {}
    for name, (config, objective) in RUNS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        make_tokenizer(Bytes(), lambda: iter(())).save(folders[name] / "tokenizer")
        experiment = Experiment(config, objective, Data(tokenizer=Bytes()), Adafactor(), steps=1, batch_size=8)
        ids = jnp.ones((1, 2), jnp.int32)
        params = jax.tree.map(lambda x: 3.0 * x, make_params(config.build(), 0, ids, ids))
        files = tokenizer_files(folders[name] / "tokenizer")
        write_checkpoint(folders[name] / "checkpoints", 0, experiment, files, params)
    return folders


@pytest.fixture(scope="module")
def models(runs):
    return {name: load(folder) for name, folder in runs.items()}


def one_line(text):
    return " ".join(text.splitlines())


def test_answers_are_those_of_the_notebook(run, runs, models):
    options = ("--max-length", 6, "--num-beams", 3, "--num-results", 2, "--alpha", 1.0, "--scores")
    status, out, err = run("generate", runs["t5"], "seven", "bottles", *options)
    assert (status, err) == (0, "")
    expected = models["t5"].generate(
        ["seven", "bottles"], max_length=6, num_beams=3, num_results=2, alpha=1.0, scores=True
    )
    lines = [f"{one.score:.4f}\t{one_line(one.text)}" for answer in expected for one in answer]
    assert out == "".join(f"{line}\n" for line in lines)


def test_file_in_file_out(run, runs, models, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    options = ("--max-length", 6, "--temperature", 1.0, "--seed", 3)
    status, out, err = run(
        "generate", runs["t5"], "--file", tmp_path / "in.txt", "--output", tmp_path / "out", *options
    )
    assert (status, out, err) == (0, "", "")
    inputs = [text for text in TEXTS if text]
    expected = map(one_line, models["t5"].generate(inputs, max_length=6, temperature=1.0, seed=3))
    assert (tmp_path / "out").read_text().split("\n") == [next(expected), "", next(expected), next(expected), ""]


def test_examples_and_scores_of_answers(run, runs, models, tmp_path):
    (tmp_path / "examples.tsv").write_text("1\t2\n3\t4\n")
    template = r"{input}>{output}\n"
    options = ("--examples", tmp_path / "examples.tsv", "--template", template)
    status, out, _ = run("generate", runs["gpt"], "5", "--max-length", "4", *options)
    assert status == 0
    pairs, written = [("1", "2"), ("3", "4")], "{input}>{output}\n"
    assert out == one_line(models["gpt"].generate("5", max_length=4, examples=pairs, template=written)) + "\n"
    status, out, _ = run("score", runs["gpt"], "5", "6", "9", "--answer-context", "A:", *options)
    assert status == 0
    scores = models["gpt"].score("5", ["6", "9"], examples=pairs, template=written, answer_context="A:")
    best = max(scores, key=lambda one: one.normalised)
    figures = [float(word) for word in out.splitlines()[0].split()[:3]]
    assert figures == pytest.approx([best.normalised, best.log_probability, best.per_token], abs=1e-3)
    assert out.splitlines()[0].endswith(best.answer)
    assert len(out.splitlines()) == 2


BAD = {
    "neither": (["generate", "t5"], "text is missing"),
    "both": (["generate", "t5", "a", "--file", "IN"], "exclude each other"),
    "no such file": (["generate", "t5", "--file", "absent.txt"], "absent.txt"),
    "empty file": (["generate", "t5", "--file", "EMPTY"], "is empty; give one text a line"),
    "no UTF-8": (["generate", "t5", "--file", "LATIN"], "line 1"),
    "output there": (["generate", "t5", "a", "--output", "IN"], "is there already"),
    "no folder": (["generate", "t5", "a", "--output", "absent/folder/out"], "lies in no folder"),
    "beams and sampling": (["generate", "t5", "a", "--num-beams", "2", "--top-p", "0.5"], "exclude each other"),
    "results": (["generate", "t5", "a", "--num-beams", "2", "--num-results", "3"], "num_results=3 exceeds"),
    "beam": (["generate", "t5", "a", "--num-beams", "385"], "num_beams=385 is wider than the vocabulary of 384"),
    "top p": (["generate", "t5", "a", "--top-p", "0"], "top_p=0.0 is not in (0, 1]"),
    "temperature": (["generate", "t5", "a", "--temperature", "-1"], "temperature=-1.0"),
    "too long": (["generate", "gpt", "a" * 40, "--max-length", "20"], "exceeds the 48 positions"),
    "template": (["generate", "gpt", "a", "--template", "{input}"], "is not a template"),
    "examples": (["generate", "gpt", "a", "--examples", "IN"], "has 0 tabs in line 1"),
    "examples of a T5": (["generate", "t5", "a", "--examples", "PAIRS"], "examples=[('a', 'b')] is for decoders"),
    "template of a T5": (["score", "t5", "a", "b", "--template", "{input}{output}"], "is for decoders"),
    "memory": (["generate", "t5", "a", "--max-length", "2000000000"], "max_length=2,000,000,000 tokens of 1 texts"),
    "beams": (["generate", "t5", "a", "--max-length", "99999999", "--num-beams", "300"], "300 for each, need about"),
    "beyond memory": (["generate", "t5", "a", "--max-length", str(10**30)], "max_length="),
    "no answers": (["score", "gpt", "a"], "answers are missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(run, runs, tmp_path, name):
    places = dict(runs)
    for file, content in {"IN": b"a\n", "PAIRS": b"a\tb\n", "EMPTY": b"", "LATIN": "caf\xe9".encode("latin-1")}.items():
        places[file] = tmp_path / file
        places[file].write_bytes(content)
    arguments, expected = BAD[name]
    status, out, err = run(*(places.get(argument, argument) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("t5x-lite: ")
    assert expected in err
    assert err.count("\n") == 1, "one sentence on one line"
    assert (tmp_path / "IN").read_bytes() == b"a\n"
