"""The moving average of the parameters: by its formula, on devices, in checkpoints, and where it is used."""

import functools
import signal
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from jax.sharding import SingleDeviceSharding

import t5x_lite
from t5x_lite.data import make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.optim.optimizers import ParameterAverage
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh
from t5x_lite.runs.checkpoints import read_checkpoint, read_state
from t5x_lite.runs.preparation import first_state, prepare
from t5x_lite.runs.records import Records, read_records
from t5x_lite.training.initialization import FromModel, FromRun

AVERAGE = ParameterAverage(decay=0.7)


@pytest.fixture(scope="module")
def averaged(tiny):
    return replace(tiny, average=AVERAGE)


@pytest.fixture(scope="module")
def make_program(tiny, share_program):
    """`make_program(experiment, devices)`: that of its runs."""
    objective = tiny.objective.for_vocabulary(make_tokenizer(tiny.data.tokenizer, None).vocabulary)

    def make(experiment, devices=1):
        return share_program(experiment, objective, make_mesh(experiment.mesh, jax.devices()[:devices]))

    return make


@pytest.fixture(scope="module")
def begun(console, make_program):
    """`begun(experiment)`: its state before the first step."""
    return lambda experiment: first_state(make_program(experiment), prepare(experiment, console), console)


def flat(tree) -> dict[str, np.ndarray]:
    return traverse_util.flatten_dict(jax.device_get(tree), sep="/")


@pytest.mark.parametrize(
    ("average", "keeps"),
    [
        (ParameterAverage(0.7), [2 / 11, 3 / 12, 4 / 13, 5 / 14]),
        (ParameterAverage(0.26), [2 / 11, 3 / 12, 0.26, 0.26]),
        (ParameterAverage(0.7, warmup=False), [0.7] * 4),
    ],
)
def test_the_average_follows_its_formula(average, keeps):
    params = [{"a": jnp.full(3, value), "b": {"c": jnp.float32(-value)}} for value in (5.0, 1.0, 2.0, 4.0, 8.0)]
    mean, expected = average.start(params[0]), 5.0
    for step, (keep, new) in enumerate(zip(keeps, params[1:], strict=True), start=1):
        mean = average.update(mean, new, jnp.int32(step))
        expected = keep * expected + (1 - keep) * float(new["a"][0])
        np.testing.assert_allclose(mean["a"], [expected] * 3, rtol=1e-6)
        np.testing.assert_allclose(mean["b"]["c"], -expected, rtol=1e-6)


@pytest.mark.slow
def test_it_is_kept_beside_the_parameters_by_the_compiled_step(averaged, tiny, make_program, raw):
    program, without = make_program(averaged), make_program(tiny)
    state, other, batch = program.init(), without.init(), jax.device_put(raw, batch_sharding(program.mesh))
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((state.params, state.average))]
    assert len(set(pointers)) == len(pointers), "the step gives its state away: nothing may lie there twice"
    expected = {name: value.astype(np.float64) for name, value in flat(state.params).items()}
    for step in range(1, 4):
        state, metrics = program.train_step(state, batch)
        other, _ = without.train_step(other, batch)
        keep = (1 + step) / (10 + step)
        for name, value in flat(state.params).items():
            expected[name] = keep * expected[name] + (1 - keep) * value
    for name, value in flat(state.average).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)
    # ... which trains as if there were no average: two programs, which may round in different orders.
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), state.params, other.params)
    assert other.average is None
    assert program.train_step._cache_size() == 1

    # A step that is not finite leaves the average as it was too.
    before = flat(state.average)
    poisoned = state.replace(params=jax.tree.map(lambda leaf: leaf * jnp.nan, state.params))
    state, metrics = program.train_step(poisoned, batch)
    assert not metrics["finite"]
    jax.tree.map(np.testing.assert_array_equal, flat(state.average), before)


def test_it_is_sharded_as_the_parameters(averaged, make_program):
    program = make_program(replace(averaged, mesh=MeshShape(2, 2, tensor=2)), devices=8)
    assert program.state_shardings.average == program.state_shardings.params
    kernel = program.state_shardings.average["encoder"]["layers"]["feed_forward"]["wi"]["kernel"]
    assert kernel.shard_shape((1, 16, 24)) == (1, 8, 12)


@pytest.fixture(scope="module")
def run(averaged, tmp_path_factory, train):
    """A whole run that keeps an average."""
    workdir = tmp_path_factory.mktemp("averaged")
    train(averaged, workdir, report=False)
    return workdir


def state_at(workdir: Path, step: int, program):
    return read_state(workdir / "checkpoints" / str(step), program.abstract_state)


@pytest.mark.slow
def test_stopped_and_gone_on_with_it_is_the_same_run(averaged, run, tmp_path, train, make_program, monkeypatch):
    record = Records.train

    def stop_at_3(self, step, metrics):
        record(self, step, metrics)
        if step == 3:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Records, "train", stop_at_3)
        train(averaged, tmp_path)
    train(averaged, tmp_path, report=False)
    program = make_program(averaged)
    ours, undisturbed = (state_at(workdir, 6, program) for workdir in (tmp_path, run))
    jax.tree.map(np.testing.assert_array_equal, ours, undisturbed)
    assert not all((flat(ours.average)[name] == value).all() for name, value in flat(ours.params).items())
    losses = [
        [
            (record["step"], record["kind"], record["loss"])
            for record in read_records(workdir / "metrics.jsonl")
            if "loss" in record
        ]
        for workdir in (tmp_path, run)
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_everything_but_training_takes_the_average(averaged, run, make_program):
    program = make_program(averaged)
    state = state_at(run, 6, program)
    loaded = flat(t5x_lite.load(run).params)
    for name, value in flat(state.average).items():
        np.testing.assert_array_equal(loaded[name], value, err_msg=name)
    cpu = SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    at_four = flat(read_checkpoint(run / "checkpoints" / "4", lambda *_: cpu).params)
    jax.tree.map(np.testing.assert_array_equal, at_four, flat(state_at(run, 4, program).average))
    # The figures on held-out rows are the average's.
    from t5x_lite.evaluation.predictions import evaluate

    rows = averaged.data.prepare(averaged.objective.layout).held_out
    last = [record for record in read_records(run / "metrics.jsonl") if record["kind"] == "held_out"][-1]
    losses = [evaluate(program, params, rows, max_rows=10)["loss"] for params in (state.average, state.params)]
    assert last["loss"] == pytest.approx(losses[0], rel=1e-6)
    assert last["loss"] != pytest.approx(losses[1], rel=1e-6)


@pytest.mark.slow
def test_a_run_without_it_writes_what_it_always_wrote(tiny, run, begun, tmp_path, train):
    train(replace(tiny, steps=2), tmp_path, report=False)
    names = {path.name for path in (tmp_path / "checkpoints" / "2").iterdir() if path.is_dir()}
    assert "average" not in names
    assert {path.name for path in (run / "checkpoints" / "6").iterdir() if path.is_dir()} == names | {"average"}
    # An average can begin in a later phase; in the same run it would be another run.
    with pytest.raises(InputError, match=r"average.decay \(0.0 there, 0.7 here\)"):
        train(replace(tiny, average=AVERAGE, steps=4), tmp_path)
    state = begun(replace(tiny, average=AVERAGE, start=FromRun(str(tmp_path)), steps=8))
    assert int(state.step) == 2
    jax.tree.map(np.testing.assert_array_equal, flat(state.average), flat(state.params))


@pytest.mark.slow
def test_phases(averaged, tiny, run, begun):
    """The next phase goes on with both; a run from the model begins with the average twice, or once."""
    stored = flat(t5x_lite.load(run).params)
    state = begun(replace(averaged, start=FromRun(str(run)), steps=8))
    jax.tree.map(np.testing.assert_array_equal, flat(state.average), stored)
    assert any((flat(state.params)[name] != value).any() for name, value in stored.items())
    without = begun(replace(tiny, start=FromRun(str(run)), steps=8))
    assert without.average is None
    jax.tree.map(np.testing.assert_array_equal, flat(without.params), flat(state.params))
    model = begun(replace(averaged, start=FromModel(str(run))))
    jax.tree.map(np.testing.assert_array_equal, flat(model.params), stored)
    jax.tree.map(np.testing.assert_array_equal, flat(model.average), stored)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_out_of_range_is_named(decay):
    with pytest.raises(InputError, match=r"average.decay=.* is not (in \[0, 1\)|finite); choose e.g. 0.999"):
        ParameterAverage(decay)
