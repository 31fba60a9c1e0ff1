"""What a folder says beside architecture and weights goes out as it came in, by way of a run too."""

import json
from dataclasses import replace

import numpy as np
import pytest

import t5x_lite
from t5x_lite.cli.commands.checkpoints import convert
from t5x_lite.convert import export_folder
from t5x_lite.convert.origin import Origin
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, BertConfig, GptConfig, RobertaConfig, T5Config

from ..slow import mostly_slow

SIZES = {"vocab_size": 30, "embed_dim": 4, "num_heads": 2, "mlp_dim": 5}
ENCODER = SIZES | {"num_layers": 1, "max_length": 6}
STACKS = SIZES | {"num_encoder_layers": 1, "num_decoder_layers": 1}
LABELS = {"id2label": {"0": "bad", "1": "so so", "2": "good"}, "label2id": {"bad": 0, "so so": 1, "good": 2}}
CASES = {
    "a classifier": (
        BertConfig(**ENCODER, heads=("classification",), num_classes=3),
        LABELS | {"problem_type": "multi_label_classification", "pad_token_id": 7},
    ),
    "a number": (
        BertConfig(**ENCODER, heads=("classification",), num_classes=1),
        {"id2label": {"0": "stars"}, "problem_type": None},
    ),
    "xlm-roberta": (
        RobertaConfig(**ENCODER, pad_id=3),
        {"model_type": "xlm-roberta", "pad_token_id": 3, "bos_token_id": 5, "cls_token_id": 5, "eos_token_id": 9},
    ),
    "mt5": (
        T5Config(**STACKS, head_dim=3, tied=False, scale_output=False, gated=True, activation="gelu_tanh"),
        {"model_type": "mt5", "pad_token_id": 4, "eos_token_id": [8, 9], "decoder_start_token_id": 6},
    ),
    "bart": (
        BartConfig(**STACKS, max_length=9),
        {"pad_token_id": 4, "eos_token_id": 8, "bos_token_id": None, "decoder_start_token_id": 6},
    ),
    "gpt2": (GptConfig(**ENCODER), {"pad_token_id": 4, "eos_token_id": 29, "bos_token_id": 28}),
    "gpt2 with ids of a larger vocabulary": (GptConfig(**ENCODER), {"bos_token_id": 50_256, "eos_token_id": 50_256}),
}
FACTS = {"model_type", "problem_type", *LABELS}


def facts(folder) -> dict:
    described = json.loads((folder / "config.json").read_text())
    return {name: value for name, value in described.items() if name in FACTS or name.endswith("_token_id")}


@pytest.fixture
def write(tmp_path, params_of):
    """A folder with these facts, and none of the ids that are not among them."""

    def write(config, stated):
        folder = tmp_path / "theirs"
        export_folder(folder, config, params_of(config), None)
        described = json.loads((folder / "config.json").read_text())
        kept = {n: v for n, v in described.items() if not n.endswith("_token_id") or n.startswith("forced")}
        (folder / "config.json").write_text(json.dumps(kept | stated))
        return folder

    return write


@pytest.mark.parametrize("case", mostly_slow(CASES, "a classifier"))
def test_facts_go_out_as_they_came_in(write, tmp_path, case):
    folder = write(*CASES[case])
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 3} | CASES[case][1]))
    t5x_lite.load(folder).export(tmp_path / "ours")
    convert([str(folder), str(tmp_path / "run")])
    convert([str(tmp_path / "run"), str(tmp_path / "again")])
    for out in (tmp_path / "ours", tmp_path / "again"):
        assert facts(out) == facts(folder)
        assert json.loads((out / "generation_config.json").read_text())["num_beams"] == 3
    assert (tmp_path / "again/config.json").read_text() == (tmp_path / "ours/config.json").read_text()


def test_classes_have_their_names(write):
    labels = t5x_lite.load(write(*CASES["a classifier"]))._labels
    assert labels == ("bad", "so so", "good")


@pytest.mark.parametrize("names", [{"0": "bad", "2": "good"}, {"0": "bad", "1": "good"}, {}])
def test_labels_that_do_not_number_the_classes_are_left_out(write, tmp_path, names):
    folder = write(CASES["a classifier"][0], {"id2label": names, "label2id": {}})
    model = t5x_lite.load(folder)
    assert model._labels == ("0", "1", "2")
    model.export(tmp_path / "ours")
    assert facts(tmp_path / "ours")["id2label"] == {str(number): f"LABEL_{number}" for number in range(3)}


def test_padding_is_what_the_folder_says(write):
    """Without a tokenizer too: rows give the same beside padding and alone."""
    model = t5x_lite.load(write(*CASES["a classifier"]))
    alone, padded = (model(np.array([ids]))["hidden"] for ids in ([5, 6, 9], [5, 6, 9, 7, 7]))
    np.testing.assert_allclose(alone, padded[:, :3], atol=1e-6)
    masked = model(np.array([[5, 6, 9, 8, 8]]), valid=np.array([[True, True, True, False, False]]))
    np.testing.assert_allclose(masked["hidden"][:, :3], alone, atol=1e-6)


def test_ids_beyond_the_vocabulary_are_not_written(params_of, tmp_path):
    """A run without a tokenizer has ids of its own, not those of the published models."""
    config = CASES["gpt2"][0]
    export_folder(tmp_path / "theirs", config, params_of(config), None)
    model = replace(t5x_lite.load(tmp_path / "theirs"), origin=None)
    model.export(tmp_path / "ours")
    assert all(
        token_id is None or token_id < 30 for token_id in facts(tmp_path / "ours").values() if token_id != "gpt2"
    )


@pytest.mark.parametrize(
    "stated",
    [{"eos_token_id": "2"}, {"pad_token_id": True}, {"id2label": ["a"]}, {"label2id": {"a": "0"}}, {"problem_type": 3}],
)
def test_values_of_other_types_are_refused(write, stated):
    folder = write(CASES["a classifier"][0], stated)
    with pytest.raises(InputError, match=f"{next(iter(stated))}=.* in config.json is not valid"):
        t5x_lite.load(folder)
    with pytest.raises(InputError, match="is not what was written"):
        Origin("bert", "{")
