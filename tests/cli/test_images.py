"""`classify`, `reconstruct` and `attention` on pictures."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from PIL import Image

from t5x_lite.convert import export_folder
from t5x_lite.data import JsonlFiles, LabeledTexts, make_tokenizer
from t5x_lite.models import MAEConfig, ResNetConfig, ViTConfig, abstract_params
from t5x_lite.objectives import Classification
from t5x_lite.pretrained import load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files

SIZES = {"image_size": (8, 8), "patch_size": 4, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_layers": 1}
DECODER = {"decoder_embed_dim": 8, "decoder_num_heads": 2, "decoder_mlp_dim": 8, "decoder_num_layers": 1}
CONFIGS = {
    "vit": ViTConfig(**SIZES, num_classes=3),
    "mae": MAEConfig(**SIZES, **DECODER),
    "resnet": ResNetConfig((1,), (8,), stem_width=4, num_classes=4),
}


def random_params(config):
    random = np.random.default_rng(0)
    abstract = nn.unbox(abstract_params(config))
    return jax.tree.map(lambda leaf: random.uniform(0.2, 1.0, leaf.shape).astype(np.float32), abstract)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, two pictures, and a file that is not one."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, config in CONFIGS.items():
        labels = ("cat", "dog", "owl") if name == "vit" else ()
        export_folder(folder / name, config, random_params(config), None, labels=labels)
    for seed, name in enumerate(("a.png", "b c.jpg")):
        pixels = np.random.default_rng(seed).integers(0, 256, (9, 14, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "text.txt").write_text("a text")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_classes_of_pictures(run, folder):
    expected = load(folder / "vit").classify([str(folder / "a.png"), str(folder / "b c.jpg")])
    status, out, err = run("classify", "vit", "a.png", "b c.jpg")
    assert (status, err) == (0, "")
    blocks = [block.splitlines() for block in out.strip().split("\n\n")]
    for block, name, classes in zip(blocks, ("a.png", "b c.jpg"), expected, strict=True):
        assert block == [name, *(f"{one.probability:8.1%}  {one.label}" for one in classes)]
    status, out, err = run("classify", "vit", "a.png", "b c.jpg", "--top-k", "1", "--json")
    (first, second) = map(json.loads, out.splitlines())
    assert first["input"] == "a.png" and second["input"] == "b c.jpg"
    assert first["classes"] == [{"label": expected[0][0].label, "probability": expected[0][0].probability}]


@pytest.mark.slow
def test_classes_of_texts(run, experiments, text, tmp_path):
    experiment = experiments["bert"]
    model = replace(experiment.model, heads=("classification",), num_classes=3)
    source = LabeledTexts(JsonlFiles(("absent.jsonl",)), ("text",), labels=("a", "b", "c"))
    data = replace(experiment.data, source=source)
    experiment = replace(experiment, model=model, objective=Classification(32), data=data)
    make_tokenizer(experiment.data.tokenizer, lambda: iter([text.read_text()])).save(tmp_path / "tokenizer")
    files = tokenizer_files(tmp_path / "tokenizer")
    write_checkpoint(tmp_path / "run" / "checkpoints", 0, experiment, files, random_params(experiment.model))
    status, out, err = run("classify", tmp_path / "run", "The cat stands", "and waits", "--top-k", "2", "--json")
    assert (status, err) == (0, "")
    answers = load(tmp_path / "run").classify(["The cat stands", "and waits"])
    for line, answer in zip(out.splitlines(), answers, strict=True):
        assert json.loads(line)["classes"] == [one._asdict() for one in answer[:2]]
    assert run("classify", tmp_path / "run", "The cat", "--top-k", "4")[2] == (
        "t5x-lite: top_k=4 is out of range; choose 1 to 3\n"
    )


@pytest.mark.slow
def test_a_reconstruction_and_a_rollout_are_written(run, folder):
    status, out, err = run("reconstruct", "mae", "a.png", "--output", "out.png", "--mask-ratio", "0.5", "--seed", "2")
    assert (status, err) == (0, "")
    assert out == "Reconstruction: 8 x 8 x 3 pixels, 2 of 4 patches were hidden\nout.png\n"
    expected = load("mae").reconstruct("a.png", mask_ratio=0.5, seed=2)
    assert (folder / "out.png").read_bytes() == expected.picture().png()
    status, out, err = run("attention", "vit", "a.png", "--out", "where.png")
    assert (status, err, out.splitlines()[-1]) == (0, "", "where.png")
    assert (folder / "where.png").read_bytes() == load("vit").attention("a.png").picture().png()


def test_a_model_of_pictures_becomes_a_run_and_goes_back(run, folder, tmp_path):
    for source, destination in (("vit", "run"), ("run", "back")):
        status, _, err = run("convert", tmp_path / source if source == "run" else source, tmp_path / destination)
        assert (status, err) == (0, "")
    for name in ("preprocessor_config.json", "config.json"):
        contents = [json.loads((path / name).read_text()) for path in (folder / "vit", tmp_path / "back")]
        assert contents[0] == contents[1]
    assert load(tmp_path / "run").classify("a.png") == load(folder / "vit").classify("a.png")


BAD = {
    "none": (["classify", "vit"], "image is missing; write t5x-lite classify vit cat.jpg"),
    "missing": (["classify", "vit", "no.png"], "no.png cannot be read (No such file or directory); correct the path"),
    "text": (["classify", "vit", "text.txt"], "text.txt: the picture is not a picture (it begins with b'a text');"),
    "top_k": (["classify", "vit", "a.png", "--top-k", "4"], "top_k=4 is out of range; choose 1 to 3"),
    "zero": (["classify", "vit", "a.png", "--top-k", "0"], "top_k=0"),
    "head": (["classify", "mae", "a.png"], "a MAEConfig has no classify; use encode, reconstruct and attention"),
    "model": (["reconstruct", "vit", "a.png", "--output", "a.png"], "a ViTConfig has no reconstruct; use classify"),
    "ratio": (["reconstruct", "mae", "a.png", "--output", "o.png", "--mask-ratio", "1"], "mask_ratio=1.0"),
    "seed": (["reconstruct", "mae", "a.png", "--output", "o.png", "--seed=-1"], "seed=-1 is out of range"),
    "output": (["reconstruct", "mae", "a.png", "--output", "a.gif"], "output=a.gif is not the name of a picture;"),
    "folder": (["reconstruct", "mae", "a.png", "--output", "no/a.png"], "output=no/a.png lies in no folder; make the"),
    "page": (["attention", "vit", "a.png"], "out=attention.html is not the name of a picture; choose one that ends in"),
    "layer": (
        ["attention", "vit", "a.png", "--out", "o.png", "--layer", "0"],
        "layer=0 is for texts, and a picture",
    ),
    "resnet": (["attention", "resnet", "a.png", "--out", "o.png"], "a ResNetConfig has no attention; use classify"),
    "tokens": (["neighbours", "vit", "cat"], "a ViTConfig reads no tokens; load a model of texts"),
    "masks": (["fill_mask", "vit", "a [MASK]"], "a ViTConfig has no fill_mask; use classify, encode and attention"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(run, folder, name):
    arguments, message = BAD[name]
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (folder / "o.png").exists()
