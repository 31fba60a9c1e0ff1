import json
import logging
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder
from t5x_lite.data import Bytes, Data, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.objectives import SpanCorruption
from t5x_lite.pretrained import load
from t5x_lite.training.checkpoints import write_checkpoint
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.optimizers import Adafactor
from t5x_lite.training.workdir import tokenizer_files


def write_step(folder, step, t5, params, **model):
    module, _ = t5
    tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
    tokenizer.save(folder / "tokenizer")
    experiment = Experiment(
        model=replace(module.config, **model),
        objective=SpanCorruption(input_length=16),
        data=Data(tokenizer=Bytes()),
        optimizer=Adafactor(),
        steps=5,
        batch_size=8,
    )
    write_checkpoint(folder / "checkpoints", step, experiment, tokenizer_files(folder / "tokenizer"), params)
    return experiment


@pytest.fixture(scope="module")
def run(t5, tmp_path_factory):
    """A run with checkpoints at steps 9 and 10; every parameter of the first is half of the second's."""
    folder = tmp_path_factory.mktemp("run")
    write_step(folder, 9, t5, jax.tree.map(lambda leaf: leaf / 2, t5[1]))
    write_step(folder, 10, t5, t5[1])
    return folder


@pytest.fixture(scope="module")
def model(run):
    return load(run)


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


def test_calling_it_gives_the_logits_of_the_pure_function(model, t5_logits):
    inputs, targets = ["Zürich", "a"], ["ab", "c"]
    logits = model(inputs, targets)
    ids = np.array([[93, 198, 191, 117, 108, 102, 107, 1], [100, 1, 0, 0, 0, 0, 0, 0]], np.int32)
    expected = t5_logits(ids, np.array([[0, 100, 101], [0, 102, 1]], np.int32), ids != 0)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    from_ids = model(jnp.asarray(ids), jnp.array([[100, 101, 1], [102, 1, 0]]))
    np.testing.assert_array_equal(from_ids, logits)


def test_generate(model):
    one = model.generate("abc", max_length=6)
    assert isinstance(one, str)
    several = model.generate(["Something longer.", "abc"], max_length=6)
    assert several[1] == one
    ids = np.array([[100, 101, 102, 1]], np.int32)
    generated = np.asarray(model.generate_ids(jnp.asarray(ids), max_length=6))
    assert generated.shape == (1, 6)
    assert model.tokenizer.decode(generated[0].tolist()) == one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(([],), "texts=\\[\\]"), (("a", 0), "max_length=0"), (("<extra_id_100>",), "<extra_id_100>")],
)
def test_what_generate_refuses(model, arguments, message):
    with pytest.raises(InputError, match=message):
        model.generate(arguments[0], **({"max_length": arguments[1]} if len(arguments) > 1 else {}))


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
    with pytest.raises(InputError, match="none (holds no checkpoint|is no folder here)"):
        load(folder)


def test_a_name_that_is_not_in_the_hubs_cache(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="nobody/nothing is no folder here"):
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
    file = data_files(step)[0]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="10 cannot be read"):
        load(step)


def test_corrupted_arrays(run, tmp_path):
    step = copy_of(run, tmp_path)
    for file in data_files(step):
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle - 50 : middle + 50] = bytes(byte ^ 0xFF for byte in content[middle - 50 : middle + 50])
        file.write_bytes(content)
    with pytest.raises(InputError, match="10 cannot be read"):
        load(step)
    # Orbax asks for no result of its other reads, which asyncio would tell when Python exits.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def test_parameters_of_another_model(t5, tmp_path):
    write_step(tmp_path, 1, t5, t5[1], mlp_dim=18)
    with pytest.raises(
        InputError, match=r"4 parameters differ.*decoder/layers/feed_forward/wi/kernel with shape \(4, 12, 17\)"
    ):
        load(tmp_path)


def test_a_tokenizer_of_another_model(t5, tmp_path):
    smaller = dict(t5[1], token_embedding={"embedding": t5[1]["token_embedding"]["embedding"][:100]})
    write_step(tmp_path, 1, t5, smaller, vocab_size=100)
    with pytest.raises(InputError, match="259 ids, the model only 100"):
        load(tmp_path)
