"""The models that come with the package: small, described, as they were written, and good for something."""

import functools
import re
from pathlib import Path

import jax
import pytest
import yaml

import t5x_lite
from t5x_lite import InputError
from t5x_lite.checksums import file_names, find_damage
from t5x_lite.pretrained import PretrainedEncoder, PretrainedEncoderDecoder

ROOT = Path(t5x_lite.__file__).parent
NAMES = sorted(path.name for path in (ROOT / "demos").iterdir())


@pytest.fixture(scope="module")
def load():
    return functools.cache(lambda name: t5x_lite.load(f"demo/{name}", device="cpu"))


def test_there_are_three_of_ten_megabytes_together():
    assert NAMES == ["bert-novels", "de-en", "t5-novels"]
    assert sum(path.stat().st_size for path in (ROOT / "demos").glob("*/model.safetensors")) < 10_000_000


@pytest.mark.parametrize("name", NAMES)
def test_each_is_as_it_was_written(name):
    assert find_damage(ROOT / "demos" / name) == ""
    assert {"README.md", "config.json", "model.safetensors"} <= set(file_names(ROOT / "demos" / name))


@pytest.mark.parametrize("name", NAMES)
def test_its_card_says_what_it_is(name, load):
    _, header, text = (ROOT / "demos" / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert {"license", "library_name", "pipeline_tag"} <= set(yaml.safe_load(header))
    assert f"# demo/{name}" in text and f't5x_lite.load("demo/{name}")' in text
    count = sum(leaf.size for leaf in jax.tree.leaves(load(name).params))
    assert re.search(r"with ([\d,]+) parameters", text)[1] == f"{count:,}"
    config, *_ = re.findall(r"configs/demo_\w+\.py", text)
    if (configs := ROOT.parent / "configs").is_dir():  # in a clone
        assert (configs / Path(config).name).is_file()
    for part in ("## Figures", "## Training", "## Data", "seed 0", "minutes", "t5x_lite train", "t5x_lite evaluate"):
        assert part in text, part


def test_german_to_english(load):
    model = load("de-en")
    assert isinstance(model, PretrainedEncoderDecoder)
    texts = ["Wo ist der Bahnhof?", "Kannst du mir helfen?"]
    assert model.generate(texts, num_beams=4) == ["Where's the station?", "Can you help me?"]


def test_words_and_names_in_novels(load):
    model = load("bert-novels")
    assert isinstance(model, PretrainedEncoder)
    for text, token in {
        "Captain [MASK] stood on the deck of the ship.": "Ahab",
        "Prince [MASK] looked at her.": "Andrew",
        "Don [MASK] mounted his horse.": "Quixote",
    }.items():
        first, *_ = model.fill_mask(text)
        assert first.token == token and first.probability > 0.4
    neighbours = {token for token, _ in model.neighbours("Elizabeth", 6)}
    assert {"Jane", "Darcy", "Bingley"} <= neighbours


def test_blanks_in_novels(load):
    texts = {
        "He opened the <extra_id_0> and went out.": "He opened the door and went out.",
        "I have no <extra_id_0> of it.": "I have no doubt of it.",
        "Captain <extra_id_0> stood on the deck.": "Captain Ahab stood on the deck.",
    }
    assert load("t5-novels").fill_blanks(list(texts), num_beams=4) == list(texts.values())


def test_names_that_there_are_not(tmp_path, monkeypatch, load):
    message = (
        "demo/latin is not one of the models that come with t5x_lite: demo/bert-novels, demo/de-en, demo/t5-novels"
    )
    with pytest.raises(InputError, match=message):
        t5x_lite.load("demo/latin")
    monkeypatch.chdir(tmp_path)
    load("t5-novels").export("demo/de-en")  # a folder of the user's
    assert t5x_lite.load("demo/de-en").config == load("t5-novels").config
