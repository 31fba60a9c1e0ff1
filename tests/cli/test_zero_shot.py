"""Classes by their names alone: `classify` and `evaluate` with a model of pictures and texts."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from t5x_lite.convert import export_folder
from t5x_lite.data import ClipBPE, make_tokenizer
from t5x_lite.models import ClipConfig, ClipImageConfig, ClipTextConfig, ViTConfig
from t5x_lite.pretrained import load

from ..programs import like_new

MERGES = ["c a", "ca t</w>", "d o", "do g</w>", "o w", "ow l</w>"]
SIZE = 512 + len(MERGES) + 2
SIZES = {"embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_layers": 1}
TEMPLATES = ("a {}.", "{}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CLIP, a ViT, and pictures in folders of classes."""
    folder = tmp_path_factory.mktemp("zero_shot")
    (folder / "merges.txt.gz").write_bytes(gzip.compress("\n".join(["#version", *MERGES, ""]).encode()))
    tokenizer = make_tokenizer(ClipBPE(str(folder / "merges.txt.gz"), SIZE), iter)
    text = ClipTextConfig(vocab_size=SIZE, max_length=16, **SIZES)
    config = ClipConfig(ClipImageConfig(image_size=(8, 8), patch_size=4, **SIZES), text, projection_dim=6)
    export_folder(folder / "clip", config, like_new(config, 3), tokenizer)
    vit = ViTConfig(image_size=(8, 8), patch_size=4, **SIZES, num_classes=3)
    export_folder(folder / "vit", vit, like_new(vit), None)
    random = np.random.default_rng(0)
    for number in range(12):
        path = folder / "animals" / ("cat", "dog", "owl")[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (9, 14, 3), np.uint8)).save(path)
    (folder / "templates.txt").write_text("a {}.\n\n{}\n")
    (folder / "empty.txt").write_text("\n")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.mark.slow
def test_classes_by_their_names(run, folder):
    picture = "animals/cat/0.png"
    (expected,) = load(folder / "clip").zero_shot([picture], ["cat", "dog", "owl"], templates=TEMPLATES, top_k=2)
    names = ("--labels", "cat", "dog", "owl", "--templates", "templates.txt", "--top-k", "2")
    status, out, err = run("classify", "clip", picture, *names)
    assert (status, err) == (0, "")
    assert out.splitlines() == [picture, *(f"{one.probability:8.1%}  {one.label}" for one in expected)]
    status, again, _ = run("classify", "clip", picture, *names[:4], "--templates", *TEMPLATES, "--top-k", "2")
    assert again == out


@pytest.mark.slow
def test_evaluation_by_the_names_of_classes(run, folder):
    """The accuracy over all pictures is that of `zero_shot`, with its interval, and the predictions are written."""
    model = load(folder / "clip")
    files = sorted((folder / "animals").glob("*/*.png"))
    answers = model.zero_shot([str(file) for file in files], ["cat", "dog", "owl"], templates=TEMPLATES, top_k=1)
    hits = [answer.label == file.parent.name for (answer,), file in zip(answers, files, strict=True)]
    options = ("--templates", "templates.txt", "--out", "scores", "--json")
    status, out, err = run("evaluate", "clip", "--images", "animals", *options)
    assert status == 0, err
    figures = json.loads(out)
    assert figures["accuracy"] == pytest.approx(np.mean(hits))
    assert figures["examples"] == 12
    low, high = figures["intervals"]["accuracy"]
    assert low <= figures["accuracy"] <= high
    written = [json.loads(line) for line in (folder / "scores" / "predictions.jsonl").read_text().splitlines()]
    found = {Path(one["example"]).name: one["prediction"] == one["reference"] for one in written}
    assert found == {file.name: hit for file, hit in zip(files, hits, strict=True)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("classify", "clip", "animals/cat/0.png"),
            "labels is missing: a ClipConfig knows classes by their names; wri",
        ),
        (("classify", "vit", "animals/cat/0.png", "--labels", "cat"), "--labels=cat is for models of pictures and tex"),
        (("evaluate", "vit", "--images", "animals", "--templates", "{}"), "--templates={} is for classes that a model"),
        (("evaluate", "clip", "--images", "animals", "--templates", "a cat"), "'a cat' does not hold {} once"),
        (("evaluate", "clip", "--images", "animals", "--templates", "empty.txt"), "templates='empty.txt' is empty"),
        (("evaluate", "clip", "--images", "animals", "--templates", "no.txt"), "templates='no.txt'"),
        (("evaluate", "clip", "--images", "absent"), "absent"),
        (("classify", "clip", "animals/cat/0.png", "--labels", "cat", "--top-k", "2"), "top_k=2 is out of range"),
    ],
)
def test_bad_input_is_refused(run, arguments, message):
    status, _, err = run(*arguments)
    assert status == 2
    assert message in " ".join(err.split())
