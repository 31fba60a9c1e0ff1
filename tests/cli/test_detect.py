import json
import re

import numpy as np
import pytest
from PIL import Image

from t5x_lite.cli.main import main
from t5x_lite.convert import export_folder
from t5x_lite.models import DetrConfig, ResNetConfig

from ..programs import like_new

CONFIG = DetrConfig(
    ResNetConfig((1, 1), (8, 12), bottleneck=False, stem_width=4, heads=(), frozen_norm=True),
    num_classes=2,
    num_queries=5,
    embed_dim=16,
    num_heads=2,
    mlp_dim=24,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect")
    processor = {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 32, "longest_edge": 40}}
    params = like_new(CONFIG)
    # It is sure of the first class.
    params["class_head"]["bias"] = params["class_head"]["bias"].at[0].add(10.0)
    export_folder(folder / "hf", CONFIG, params, None, labels=("cat", "dog"), image_processor=processor)
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def run(*arguments):
    return main(list(map(str, arguments)))


@pytest.mark.slow
def test_objects_are_printed_or_given_as_json(folder, capsys):
    assert run("detect", folder / "hf", folder / "0.png", folder / "1.png", "--threshold", 0, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in lines] == [str(folder / "0.png"), str(folder / "1.png")]
    assert len(lines[0]["objects"]) == 5
    assert {one["label"] for one in lines[0]["objects"]} <= {"cat", "dog"}
    assert run("detect", folder / "hf", folder / "0.png", "--threshold", 0) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == str(folder / "0.png")
    left, *_ = lines[0]["objects"][0]["box"]
    assert f"{left:.1f}" in others[0]


@pytest.mark.slow
def test_pictures_with_boxes_are_written(folder, tmp_path, capsys):
    assert run("detect", folder / "hf", folder / "0.png", "--threshold", 0, "--output", tmp_path / "a.png") == 0
    both = (folder / "0.png", folder / "1.png")
    assert run("detect", folder / "hf", *both, "--threshold", 0, "--output", tmp_path / "new") == 0
    assert run("attention", folder / "hf", folder / "0.png", "--out", tmp_path / "b.png") == 0
    for path in (tmp_path / "a.png", tmp_path / "b.png", tmp_path / "new/0.png", tmp_path / "new/1.png"):
        assert Image.open(path).size[0] > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "image is missing; write t5x-lite detect"),
        (("0.png", "--threshold", "2"), "threshold=2.0 is out of range"),
        (("0.png", "--output", "a.jpg"), "a.jpg"),
        (("0.png", "0.png", "--output", "new"), "would have two pictures named 0.png"),
        (("0.png", "1.png", "--output", "0.png"), "output=.*0.png is not a folder"),
        (("2.png",), "2.png"),
    ],
)
def test_what_is_wrong_ends_with_a_sentence_and_status_2(folder, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert run("detect", "hf", *arguments) == 2
    assert re.search(message, capsys.readouterr().err)
