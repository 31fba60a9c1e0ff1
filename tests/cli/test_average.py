"""The mean of checkpoints on the command line: what it writes, what opens it, and what bad input says."""

import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.data import Bytes, Data, TextFiles, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import T5Config
from t5x_lite.objectives import SpanCorruption
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.open_model import average_checkpoints
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training import Evaluation, Experiment

SIZES = {"embed_dim": 8, "num_heads": 2, "head_dim": 4, "mlp_dim": 12, "num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.fixture(scope="module")
def experiment(text, tmp_path_factory) -> Experiment:
    return Experiment(
        model=T5Config(vocab_size=264, **SIZES),
        objective=SpanCorruption(input_length=24),
        data=Data(TextFiles((str(text),)), Bytes(), held_out=0.2, cache_dir=str(tmp_path_factory.mktemp("cache"))),
        optimizer=AdamW(Constant(1e-3)),
        steps=50,
        batch_size=4,
        evaluation=Evaluation(rows=4),
    )


@pytest.fixture(scope="module")
def write_run(experiment, make_params):
    """`write_run(folder, steps, ...)`: a run with other random parameters in the checkpoint of each step."""

    def write(folder: Path, steps: tuple[int, ...], experiment: Experiment = experiment, extra_ids: int = 0) -> Path:
        make_tokenizer(Bytes(extra_ids), None).save(folder / "tokenizer")
        ids = jnp.ones((1, 2), jnp.int32)
        for step in steps:
            params = make_params(experiment.model.build(), step, ids, ids)
            files = tokenizer_files(folder / "tokenizer")
            write_checkpoint(folder / "checkpoints", step, replace(experiment, seed=step), files, params)
        return folder

    return write


@pytest.fixture(scope="module")
def a_run(write_run, tmp_path_factory) -> Path:
    """Steps that text would sort in another order."""
    return write_run(tmp_path_factory.mktemp("run"), (5, 10, 20, 100))


def flat(path: Path) -> dict[str, np.ndarray]:
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(path).params), sep="/")


def assert_mean(path: Path, folders: list[Path]) -> None:
    expected, found = [flat(folder) for folder in folders], flat(path)
    assert set(found) == set(expected[0])
    for name, value in found.items():
        mean = np.mean([one[name].astype(np.float64) for one in expected], axis=0)
        np.testing.assert_array_equal(value, mean.astype(np.float32), err_msg=name)


@pytest.mark.slow
def test_the_last_of_a_run(run, a_run):
    status, out, err = run("average", a_run, "--last", 3)
    assert status == 0
    output = a_run / "averaged" / "last-3"
    assert out == f"{output}: the mean of 3 checkpoints (10, 20, 100)\n"
    assert err.count("reading") == 3
    assert_mean(output, [a_run / "checkpoints" / step for step in ("10", "20", "100")])
    opened = t5x_lite.load(output)
    assert opened.experiment.seed == 100
    assert opened.tokenizer.fingerprint == t5x_lite.load(a_run).tokenizer.fingerprint
    # The run itself is as it was.
    np.testing.assert_array_equal(
        flat(a_run)["token_embedding/embedding"], flat(a_run / "checkpoints" / "100")["token_embedding/embedding"]
    )
    status, out, err = run("average", a_run, "--last", 3)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is there already; remove it or choose another --output" in err


@pytest.mark.slow
def test_every_command_opens_it(run, a_run, tmp_path):
    output = tmp_path / "mean"
    assert run("average", a_run, "--last", 2, "--output", output)[0] == 0
    status, out, _ = run("evaluate", output)
    assert status == 0
    assert "perplexity" in out
    assert run("generate", output, "a <extra_id_0> b", "--max-length", 3)[0] == 0
    assert run("convert", output, tmp_path / "theirs")[0] == 0
    assert_mean(tmp_path / "theirs", [a_run / "checkpoints" / step for step in ("20", "100")])
    status, _, err = run("train", "configs/t5_tiny.py", "--workdir", output, "--steps", 1)
    assert status == 2
    assert "is one checkpoint of a run" in err


@pytest.mark.slow
def test_checkpoints_by_name_and_of_several_runs(run, a_run, write_run, tmp_path):
    other = write_run(tmp_path / "other", (7, 8))
    named = [a_run / "checkpoints" / "5", a_run / "checkpoints" / "100"]
    assert run("average", *named, "--output", tmp_path / "named")[0] == 0
    assert_mean(tmp_path / "named", named)
    status, out, _ = run("average", a_run, other, named[0], "--last", 2, "--output", tmp_path / "several")
    assert status == 0
    assert "(20, 100, 7, 8, 5)" in out
    folders = [*(a_run / "checkpoints" / step for step in ("20", "100")), *(other / "checkpoints").iterdir(), named[0]]
    assert_mean(tmp_path / "several", folders)


@pytest.mark.slow
def test_the_mean_is_exact_where_single_precision_would_not_be(experiment, write_run, tmp_path):
    """A sum in float32 loses the one between two large numbers."""
    run = write_run(tmp_path / "run", (1,))
    params = jax.tree.map(np.asarray, t5x_lite.load(run).params)
    for step, value in enumerate((2.0**25, 1.0, -(2.0**25)), start=2):
        same = jax.tree.map(lambda leaf, value=value: np.full_like(leaf, value), params)
        write_checkpoint(run / "checkpoints", step, experiment, tokenizer_files(run / "tokenizer"), same)
    average_checkpoints([run / "checkpoints" / str(step) for step in (2, 3, 4)], tmp_path / "mean")
    np.testing.assert_array_equal(flat(tmp_path / "mean")["token_embedding/embedding"], np.float32(1 / 3))


def test_unlike_checkpoints_are_refused(run, a_run, experiment, write_run, tmp_path):
    last = a_run / "checkpoints" / "100"
    wider = replace(experiment, model=replace(experiment.model, mlp_dim=16))
    others = {
        "mlp_dim 16 there, 12 here": write_run(tmp_path / "wider", (1,), wider),
        "another tokenizer there": write_run(tmp_path / "tokenizer", (1,), extra_ids=3),
    }
    for message, other in others.items():
        status, out, err = run("average", other / "checkpoints" / "1", last, "--output", tmp_path / "mean")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"is unlike {last} " in err
        assert message in err
        assert not (tmp_path / "mean").exists()
    broken = tmp_path / "broken"
    shutil.copytree(a_run / "checkpoints" / "5", broken)
    (broken / "params").rename(broken / "lost")
    with pytest.raises(InputError, match="is not a checkpoint|cannot be read as a checkpoint"):
        average_checkpoints([broken, last], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


BAD = {
    "no run": (["average"], "RUN"),
    "too few": (["average", "RUN", "--last", 9], "last=9 exceeds the 4 checkpoints that "),
    "too few by default": (["average", "RUN"], "last=5 exceeds the 4 checkpoints"),
    "none": (["average", "RUN", "--last", 0], "last=0 is too small; choose 1 or more"),
    "no such folder": (["average", "absent/run"], "absent/run is not a folder"),
    "no checkpoints": (["average", "FOLDER"], "holds no checkpoints to average"),
    "one of several": (["average", "RUN", "absent", "--output", "OUTPUT"], "absent is not a folder"),
    "nowhere": (["average", "RUN/checkpoints/5", "RUN/checkpoints/10"], "give --output FOLDER"),
    "last of a checkpoint": (["average", "RUN/checkpoints/5", "--last", 2, "--output", "OUTPUT"], "leave it out"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(run, a_run, tmp_path, name):
    arguments, expected = BAD[name]
    places = {"FOLDER": tmp_path, "OUTPUT": tmp_path / "mean"}
    before = sorted(a_run.rglob("*"))
    given = [str(places.get(argument, argument)).replace("RUN", str(a_run)) for argument in arguments]
    status, out, err = run(*given)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("t5x-lite: ")
    assert expected in err
    assert sorted(a_run.rglob("*")) == before
    assert not list(tmp_path.iterdir())
