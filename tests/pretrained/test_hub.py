"""A model's card and its upload, with the hub's library in place of the hub."""

import json
import re
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalTokenNotFoundError

from t5x_lite.cli import main
from t5x_lite.errors import InputError
from t5x_lite.pretrained import load
from t5x_lite.pretrained.hub import model_card


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """(what was called, a folder for each repository)."""
    calls = []

    class Api:
        def __init__(self, **options):
            calls.append(("init", options))

        def create_repo(self, repo_id, **options):
            calls.append(("create", repo_id, options))
            if repo_id == "nobody/model":
                raise LocalTokenNotFoundError("Token is required, but no token found.\nmore")
            return f"https://hub/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            for path in Path(folder_path).iterdir():
                target = tmp_path / repo_id.replace("/", "_") / path.name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(path.read_bytes())

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return calls, tmp_path


def test_the_card_says_what_the_run_was(model):
    card = model_card(model, "user/tiny", license="apache-2.0", held_out={"loss": 1.25, "notes": "none"})
    header, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", card, re.DOTALL).groups()
    assert "license: apache-2.0" in header.splitlines()
    assert "pipeline_tag: text-generation" in header.splitlines()
    assert 't5x_lite.load("user/tiny")' in body
    assert "| loss | 1.25 |" in body
    assert "notes" not in body.split("## Training")[0]
    assert f"| steps | {model.experiment.steps} |" in body
    whole = json.loads(re.search(r"```json\n(.*?)\n```", body, re.DOTALL)[1])
    assert whole == json.loads(model.experiment.to_json())


def test_the_header_of_a_card_is_yaml_whatever_the_license_is(bert):
    card = huggingface_hub.ModelCard(model_card(bert, "user/bert", license="mine: [all\nlibrary_name: other"))
    assert (card.data.license, card.data.library_name) == ("mine: [all\nlibrary_name: other", "t5x_lite")


def test_the_card_of_a_model_without_a_run(bert):
    card = model_card(bert, "user/bert")
    assert "pipeline_tag: fill-mask" in card
    assert "license" not in card
    assert "## Training" not in card


def test_push(hub, model, run, capsys):
    calls, folder = hub
    assert model.push_to_hub("user/tiny", private=True, dtype="bfloat16") == "https://hub/user/tiny"
    assert ("create", "user/tiny", {"private": True, "exist_ok": True}) in calls
    pushed = load(folder / "user_tiny")
    assert pushed.config == model.config
    assert (folder / "user_tiny" / "README.md").read_text().startswith("---\nlibrary_name: t5x_lite\n")
    assert main(["push", str(run), "user/again", "--license", "mit"]) == 0
    assert capsys.readouterr().out == "https://hub/user/again\n"
    assert "license: mit" in (folder / "user_again" / "README.md").read_text()
    embedding = load(folder / "user_again").params["token_embedding"]["embedding"]
    np.testing.assert_array_equal(embedding, model.params["token_embedding"]["embedding"])


def test_without_a_login(hub, model):
    with pytest.raises(InputError, match="nobody/model cannot be written on the hub .*no token found.*hf auth login"):
        model.push_to_hub("nobody/model")
