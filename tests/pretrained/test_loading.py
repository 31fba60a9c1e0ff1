import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from t5x_lite.convert import export_folder
from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.objectives import MaskedLanguageModel
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.parallel import MeshShape
from t5x_lite.pretrained import PretrainedEncoder, load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import WordPiece
from t5x_lite.training.experiment import Experiment


def test_where_the_parameters_go(run, t5):
    second = jax.devices()[1]
    model = load(run, second)
    assert {leaf.sharding for leaf in jax.tree.leaves(model.params)} == {SingleDeviceSharding(second)}
    sharded = load(run, MeshShape(fsdp=2))
    table = sharded.params["token_embedding"]["embedding"]
    assert table.sharding.shard_shape(table.shape) == (table.shape[0], table.shape[1] // 2)
    jax.tree.map(np.testing.assert_array_equal, sharded.params, t5[1])
    ids = np.array([[5, 6, 1]])
    logits = model(ids, ids)
    assert logits.devices() == {second}
    np.testing.assert_allclose(sharded(ids, ids), logits, atol=1e-5)


def test_in_another_type(run):
    exact, model = load(run), load(run, dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {jnp.dtype("bfloat16")}
    ids = np.array([[5, 6, 1]])
    logits = model(ids, ids)
    assert 0 < jnp.abs(logits - exact(ids, ids)).max() < 0.1 * jnp.abs(logits).max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "gpus"}, "device='gpus' is not here; choose one of cpu"),
        ({"device": 3}, "device=3 is not a device"),
        ({"device": MeshShape(data=3)}, "mesh data=3 fsdp=1 sequence=1 tensor=1 does not fill 8 devices"),
        ({"dtype": "int8"}, "dtype=int8 is not a type of parameters; choose float32"),
        ({"dtype": "floats"}, "dtype='floats' is not a type; choose float32"),
    ],
)
def test_a_device_or_a_type_that_there_is_not(run, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load(run, **arguments)


def copy_of(run, tmp_path):
    shutil.copytree(run / "checkpoints" / "10", tmp_path / "10")
    return tmp_path / "10"


def test_a_run_is_its_latest_step(model, t5):
    jax.tree.map(np.testing.assert_array_equal, model.params, t5[1])
    assert model.config == t5[0].config
    assert model.experiment.steps == 5
    assert model.tokenizer.encode("a") == [100]


def test_a_step_opens_by_itself_wherever_it_lies(run, t5, tmp_path):
    folder = tmp_path / "elsewhere"
    shutil.copytree(run / "checkpoints" / "9", folder)
    opened = load(str(folder))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b / 2), opened.params, t5[1])
    assert opened.tokenizer.encode("a") == [100]


def test_everything_lies_on_one_cpu_device(model):
    assert len(jax.devices()) == 8
    for leaf in jax.tree.leaves(model.params):
        assert leaf.devices() == {jax.devices("cpu")[0]}


def test_a_hugging_face_folder(model, tmp_path):
    export_folder(tmp_path / "full", model.config, model.params, model.tokenizer)
    opened = load(tmp_path / "full")
    jax.tree.map(np.testing.assert_array_equal, opened.params, model.params)
    assert opened.config == model.config
    assert opened.experiment is None
    assert {leaf.devices().pop() for leaf in jax.tree.leaves(opened.params)} == {jax.devices("cpu")[0]}
    assert opened.generate("abc", max_length=6) == model.generate("abc", max_length=6)

    export_folder(tmp_path / "bare", model.config, model.params, None)
    bare = load(tmp_path / "bare")
    with pytest.raises(InputError, match="without a tokenizer; give ids"):
        bare.generate("abc")
    ids = jnp.array([[100, 101, 102, 1]])
    np.testing.assert_array_equal(bare.generate_ids(ids, max_length=6), model.generate_ids(ids, max_length=6))


@pytest.mark.parametrize("make", [False, True])
def test_nothing_there(tmp_path, make, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "none"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match="none (holds no checkpoint|is neither a folder here)"):
        load(folder)


def test_a_name_that_is_not_in_the_hubs_cache(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="nobody/nothing is neither a folder here"):
        load("nobody/nothing")


def test_foreign_folders_and_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "ours"}))
    with pytest.raises(InputError, match="holds no checkpoint"):
        load(tmp_path)
    with pytest.raises(InputError):
        load(tmp_path / "config.json")
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    with pytest.raises(InputError, match="7 "):
        load(tmp_path)


def data_files(step):
    """The array data of the parameters, largest first."""
    files = [path for path in (step / "params").rglob("*") if path.is_file() and path.parent.name == "d"]
    assert files
    return sorted(files, key=lambda path: -path.stat().st_size)


@pytest.mark.parametrize("part", ["params", "experiment"])
def test_a_part_is_missing(run, tmp_path, part):
    step = copy_of(run, tmp_path)
    shutil.rmtree(step / part)
    with pytest.raises(InputError):
        load(step)


def test_truncated_arrays(run, tmp_path):
    step = copy_of(run, tmp_path)
    (step / "checksums.0.json").unlink()
    file = data_files(step)[0]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.warns(match="10 has files without a checksum"), pytest.raises(InputError, match="10 cannot be read"):
        load(step)


def test_a_flipped_bit_in_any_file_that_is_read(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    good, step = (tmp_path / "run" / "checkpoints" / name for name in ("9", "10"))
    for file in [path for path in step.rglob("*") if path.is_file() and path.stat().st_size]:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        name = file.relative_to(step).as_posix()
        with pytest.raises(InputError, match=f"10 is damaged: {name} is not what was written.*; use {good}, the last"):
            load(tmp_path / "run")
        file.write_bytes(content)
    assert load(step).config == load(run).config


def test_parameters_of_another_model(write_step, t5, tmp_path):
    write_step(tmp_path, 1, t5[1], mlp_dim=18)
    with pytest.raises(
        InputError, match=r"4 parameters differ.*decoder/layers/feed_forward/wi/kernel with shape \(4, 12, 17\)"
    ):
        load(tmp_path)


def test_a_tokenizer_of_another_model(write_step, t5, tmp_path):
    smaller = dict(t5[1], token_embedding={"embedding": t5[1]["token_embedding"]["embedding"][:100]})
    write_step(tmp_path, 1, smaller, vocab_size=100)
    with pytest.raises(InputError, match="259 ids, the model only 100"):
        load(tmp_path)


def test_an_encoders_run(bert, tmp_path):
    bert.tokenizer.save(tmp_path / "tokenizer")
    experiment = Experiment(
        bert.config, MaskedLanguageModel(32), Data(tokenizer=WordPiece()), Adafactor(), steps=1, batch_size=8
    )
    files = tokenizer_files(tmp_path / "tokenizer")
    write_checkpoint(tmp_path / "checkpoints", 1, experiment, files, bert.params)
    opened = load(tmp_path)
    assert isinstance(opened, PretrainedEncoder)
    assert opened.experiment == experiment
    text = "green [MASK] on the wall"
    assert opened.fill_mask(text) == bert.fill_mask(text)


def test_a_model_that_is_larger_than_a_device(run, monkeypatch):
    def exhausted(*arguments):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.")

    monkeypatch.setattr("t5x_lite.pretrained.open_model", exhausted)
    with pytest.raises(InputError, match=r"is larger than the memory of its device; give several, such as .*MeshShape"):
        load(run)
