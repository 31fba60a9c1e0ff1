"""Whole runs of the encoders: stopping and going on changes nothing, one run begins where another one ended."""

import json
import signal
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.objectives import MaskedLanguageModel
from t5x_lite.parallel import batch_sharding
from t5x_lite.runs.records import Records, read_records
from t5x_lite.training.initialization import FromRun

pytestmark = pytest.mark.slow  # runs of several families come first

FIGURES = {
    "BERT": {"pair_loss", "pair_accuracy"},
    "ELECTRA": {"detection_loss", "detection_accuracy", "replaced"},
    "DistilBERT": {"soft_loss", "cosine_loss"},
}
"""What each objective records beside the loss and the accuracy of the masked language model."""


OF_THE_MACHINE = {
    *("at", "tokens_per_second", "seconds_per_step", "host_seconds_per_step", "data_seconds_per_step"),
    *("memory_bytes", "peak_memory_bytes"),
}


def figures(workdir):
    """The records of the model, without the speeds and the memory."""
    return [
        {name: value for name, value in record.items() if name not in OF_THE_MACHINE}
        for record in read_records(workdir / "metrics.jsonl")
        if record["kind"] != "checkpoint"
    ]


def params_of(workdir):
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(workdir).params), sep="/")


@pytest.mark.parametrize("family", ["ELECTRA", "DistilBERT"])
def test_stopped_and_gone_on_with_it_is_the_same_run(
    family, experiment_of, run_of, train, programs, tmp_path, monkeypatch
):
    """Two networks, and a student whose teacher is read again."""
    undisturbed, experiment = run_of(family), experiment_of(family)
    record = Records.train

    def stop_at_3(self, step, metrics):
        record(self, step, metrics)
        if step == 3:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Records, "train", stop_at_3)
        train(experiment, tmp_path)
    assert 3 <= max(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) < 6
    train(experiment, tmp_path, report=False)

    assert figures(tmp_path) == figures(undisturbed)
    ours, expected = params_of(tmp_path), params_of(undisturbed)
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    # From the first state as from a restored one, it is one compiled program.
    assert programs[experiment].train_step._cache_size() == 1


@pytest.mark.parametrize("family", FIGURES)
def test_what_a_run_records(family, run_of, experiment_of):
    workdir = run_of(family)
    records = read_records(workdir / "metrics.jsonl")
    assert [record["step"] for record in records if record["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert [record["step"] for record in records if record["kind"] == "held_out"] == [3, 6]
    for record in records:
        if record["kind"] == "checkpoint":
            continue
        names = FIGURES[family] if record["kind"] == "train" or family != "DistilBERT" else set()
        assert {"loss", "accuracy"} | names <= set(record)
        figures = [value for name, value in record.items() if name not in ("kind", "at")]
        assert None not in figures and np.isfinite(figures).all()
    if family in ("BERT", "ELECTRA"):
        assert (workdir / "samples.txt").read_text().count("model:") == 5
        assert FIGURES[family] <= set(json.loads((workdir / "held_out.json").read_text()))
    assert t5x_lite.load(workdir).experiment == experiment_of(family)


def test_the_same_rows_are_masked_afresh_at_each_step(run_of, experiment_of, programs):
    """Dynamic masking (Liu et al. 2019, section 4.1); there is no dropout that could make the difference."""
    run_of("BERT")
    program = programs[experiment_of("BERT")]
    store = experiment_of("BERT").data.prepare(program.objective.layout)
    rows = jax.device_put(stack(store.train[:8]), batch_sharding(program.mesh))

    def loss(step):
        state = program.init()
        return float(program.train_step(state.replace(step=jnp.full_like(state.step, step)), rows)[1]["loss"])

    assert loss(0) == loss(0)
    assert len({loss(step) for step in range(5)}) == 5


def test_a_batch_that_asks_for_nothing_has_finite_figures(tiny, experiment_of, make_program):
    """Rows without text, in which nothing can be hidden."""
    run = experiment_of("SpanBERT")
    program = make_program(replace(tiny, model=run.model, objective=run.objective))
    words = program.objective.vocabulary
    ids = np.full((8, 24), words.pad_id, np.int32)
    ids[:, 0], ids[:, 1] = words.cls_id, words.sep_id
    _, metrics = program.train_step(program.init(), jax.device_put({"ids": ids}, batch_sharding(program.mesh)))
    assert all(np.isfinite(metrics[name]) for name in metrics), metrics
    assert metrics["objective"] == metrics["boundary_loss"] == 0


def test_another_teacher_is_refused(run_of, experiment_of, train, tmp_path):
    student, teacher = run_of("DistilBERT"), run_of("teacher")
    latest = teacher / "checkpoints" / "6"
    latest.rename(tmp_path / "6")
    try:
        with pytest.raises(InputError, match="began with another teacher; bring that one back"):
            train(replace(experiment_of("DistilBERT"), steps=7), student)
    finally:
        (tmp_path / "6").rename(latest)


def test_the_teacher_is_no_part_of_the_checkpoint(run_of, experiment_of):
    names = {path.split("/")[0] for path in params_of(run_of("DistilBERT"))}
    assert names == {"embeddings", "encoder", "masked_lm"}
    assert len(params_of(run_of("DistilBERT"))["encoder/layers/feed_forward/wi/kernel"]) == 1


def test_phase_two_goes_on_with_other_rows_where_phase_one_ended(run_of, experiment_of, train, tmp_path):
    """BERT's own way (Devlin et al. 2019, A.2): the step, and with it the learning rate and the data, counts on."""
    first = experiment_of("teacher")
    longer = replace(first, objective=MaskedLanguageModel(20), start=FromRun(str(run_of("teacher"))), steps=9)
    train(longer, tmp_path / "second", report=False)
    records = read_records(tmp_path / "second" / "metrics.jsonl")
    assert [record["step"] for record in records if record["kind"] == "train"] == [7, 8, 9]
    assert sorted(path.name for path in (tmp_path / "second" / "checkpoints").iterdir()) == ["9"]
    # Once it has a checkpoint of its own, it goes on from there and needs the first run no more.
    moved = run_of("teacher").rename(tmp_path / "moved")
    try:
        train(replace(longer, steps=10), tmp_path / "second", report=False)
    finally:
        moved.rename(run_of("teacher"))
    records = read_records(tmp_path / "second" / "metrics.jsonl")
    assert [record["step"] for record in records if record["kind"] == "train"] == [7, 8, 9, 10]
