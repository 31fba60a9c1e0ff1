"""What has to stand before the first step, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

import t5x_lite
from t5x_lite.data import Bytes, WordPiece
from t5x_lite.errors import InputError
from t5x_lite.models import abstract_params
from t5x_lite.objectives import Distillation, SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.preparation import check_memory, check_mesh, first_state, prepare
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training.initialization import FromModel, FromRun


@pytest.fixture(scope="module")
def begin(console, share_program):
    """`begin(experiment)`: its state before the first step, and how it was prepared."""

    def make(experiment):
        prepared = prepare(experiment, console)
        program = share_program(experiment, prepared.objective, make_mesh(experiment.mesh, jax.devices()[:1]))
        return first_state(program, prepared, console), prepared

    return make


@pytest.fixture
def written(console, tmp_path):
    """`written(experiment)`: a folder with a model of it, all zeros, and its tokenizer."""

    def write(experiment):
        prepare(experiment, console).store.tokenizer.save(tmp_path / "tokenizer")
        params = jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, np.float32), nn.unbox(abstract_params(experiment.model))
        )
        files = tokenizer_files(tmp_path / "tokenizer")
        write_checkpoint(tmp_path / "model" / "checkpoints", 0, experiment, files, params)
        return str(tmp_path / "model")

    return write


def flat(params):
    return traverse_util.flatten_dict(jax.device_get(params), sep="/")


@pytest.mark.slow
def test_a_student_begins_as_layers_of_its_teacher(experiment_of, run_of, begin):
    state, prepared = begin(experiment_of("DistilBERT"))
    ours, theirs = flat(state.params), flat(t5x_lite.load(run_of("teacher")).params)
    assert set(ours) < set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name][[1]] if "/layers/" in name else theirs[name], err_msg=name)
    assert int(state.step) == 0
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(state.opt_state))
    assert prepared.objective.frozen_model == experiment_of("teacher").model
    assert prepared.objective.vocabulary == prepared.store.tokenizer.vocabulary


def test_what_the_other_model_lacks_is_random(experiment_of, run_of, begin):
    """A BERT with a head for pairs begins with a masked language model's parameters."""
    experiment = experiment_of("BERT")
    start = FromModel(str(run_of("teacher")), layers=(0,))
    state, _ = begin(replace(experiment, start=start))
    fresh = flat(begin(experiment)[0].params)
    ours, theirs = flat(state.params), flat(t5x_lite.load(run_of("teacher")).params)
    for name, value in ours.items():
        expected = fresh[name] if name not in theirs else theirs[name][[0]] if "/layers/" in name else theirs[name]
        np.testing.assert_array_equal(value, expected, err_msg=name)
    assert {name.split("/")[0] for name in set(ours) - set(theirs)} == {"sentence_pair"}


def test_a_run_begins_with_the_whole_state_of_another(experiment_of, run_of, begin):
    experiment = replace(experiment_of("teacher"), start=FromRun(str(run_of("teacher"))), steps=8)
    state, prepared = begin(experiment)
    assert int(state.step) == 6
    ours, theirs = flat(state.params), flat(t5x_lite.load(run_of("teacher")).params)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    moments = jax.tree.leaves(state.opt_state)
    assert any(leaf.shape and np.abs(leaf).max() > 0 for leaf in moments)
    assert prepared.store.tokenizer.fingerprint == t5x_lite.load(run_of("teacher")).tokenizer.fingerprint
    # One of its checkpoints instead of the latest.
    earlier, _ = begin(replace(experiment, start=FromRun(str(run_of("teacher") / "checkpoints" / "3"))))
    assert int(earlier.step) == 3


def test_the_other_models_tokenizer_is_used(experiment_of, run_of, console):
    """A student and its teacher mean the same by an id, whatever the data's own tokenizer would be."""
    student = experiment_of("DistilBERT")
    student = replace(student, data=replace(student.data, tokenizer=WordPiece(vocab_size=60)))
    teacher = t5x_lite.load(run_of("teacher")).tokenizer
    assert prepare(student, console).store.tokenizer.fingerprint == teacher.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": Adafactor(Constant(0.1))}, "holds a run with AdamW, this one has Adafactor; give the same"),
        ({"steps": 6}, "steps=6 is not above the 6 that start.folder=.* has done; steps counts from the first run"),
        ({"num_layers": 1}, "holds a run of another model; give that model, or use FromModel"),
    ],
)
def test_runs_that_cannot_be_gone_on_with(experiment_of, run_of, begin, change, message):
    experiment = replace(experiment_of("teacher"), start=FromRun(str(run_of("teacher"))), steps=8)
    if "num_layers" in change:
        change = {"model": replace(experiment.model, **change)}
    with pytest.raises(InputError, match=message):
        begin(replace(experiment, **change))


def test_a_hugging_face_folder_is_no_run(experiment_of, run_of, console, begin, share_program):
    experiment = replace(experiment_of("teacher"), start=FromRun(str(run_of("teacher"))), steps=8)
    _, prepared = begin(experiment)
    program = share_program(experiment, prepared.objective, make_mesh(experiment.mesh, jax.devices()[:1]))
    without_run = replace(prepared, start=replace(prepared.start, experiment=None))
    with pytest.raises(InputError, match="holds a model without the run that made it; use FromModel"):
        first_state(program, without_run, console)


def test_converted_parameters_are_no_run(experiment_of, run_of, begin, tmp_path):
    teacher = t5x_lite.load(run_of("teacher"))
    write_checkpoint(tmp_path / "checkpoints", 3, teacher.experiment, {}, teacher.params)
    experiment = replace(experiment_of("teacher"), start=FromRun(str(tmp_path)), steps=8)
    with pytest.raises(InputError, match="holds parameters alone"):
        begin(experiment)
    state, _ = begin(replace(experiment, start=FromModel(str(tmp_path))))
    assert int(state.step) == 0


def test_models_with_different_tokenizers_do_not_go_together(experiment_of, written, console):
    start = FromModel(written(experiment_of("RoBERTa")))
    with pytest.raises(InputError, match="have different tokenizers"):
        prepare(replace(experiment_of("DistilBERT"), start=start), console)


def test_what_does_not_fit_the_tokenizer(experiment_of, console):
    experiment = experiment_of("teacher")
    words = prepare(experiment, console).store.tokenizer.vocabulary
    small = replace(experiment, model=replace(experiment.model, vocab_size=words.size - 1))
    with pytest.raises(InputError, match=rf"model.vocab_size={words.size - 1} .* choose {words.size} or more"):
        prepare(small, console)
    with pytest.raises(InputError, match=r"the tokenizer has no \[CLS\] and no \[SEP\] token"):
        prepare(replace(experiment, data=replace(experiment.data, tokenizer=Bytes())), console)
    # RoBERTa's positions count the ids that are no padding.
    roberta = replace(experiment_of("RoBERTa"), data=experiment.data)
    with pytest.raises(InputError, match="model.pad_id=1 is not the tokenizer's 0; choose 0"):
        prepare(roberta, console)


def test_teachers_are_looked_at_before_anything_is_written(experiment_of, written, train, tmp_path):
    objective = Distillation(24, teacher=written(experiment_of("ELECTRA")))
    with pytest.raises(InputError, match="is a ElectraPairConfig without masked_lm"):
        train(replace(experiment_of("DistilBERT"), objective=objective), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_layers_of_a_model_that_shares_them(experiment_of, written, console):
    albert = experiment_of("ALBERT")
    start = FromModel(written(albert), layers=(0,))
    with pytest.raises(InputError, match=r"start.layers=\(0,\) chooses layers where all are one; leave it empty"):
        prepare(replace(albert, start=start), console)


@pytest.mark.parametrize(
    ("change", "mesh", "named"),
    [
        ({"batch_size": 12}, MeshShape(4, 2), "batch_size=12 .* multiple of 8"),
        ({}, MeshShape(1, tensor=8), "num_heads=4 is not divided by mesh.tensor=8"),
        ({"objective": SpanCorruption(20)}, MeshShape(1, sequence=8), "input_length=20 .* by mesh.sequence=8"),
        ({"remat": "offload"}, MeshShape(8), "remat='offload' .* devices of type cpu cannot; choose dots or full"),
    ],
)
def test_what_the_devices_cannot_do_is_named(tiny, change, mesh, named):
    with pytest.raises(InputError, match=named):
        check_mesh(replace(tiny, **change), make_mesh(mesh))


def test_what_no_machine_holds_is_refused_at_once(tiny):
    mesh = make_mesh(MeshShape())
    check_memory(tiny, mesh)
    deep = replace(tiny, model=replace(tiny.model, num_encoder_layers=1 << 30))
    for given in (deep, replace(tiny, batch_size=(1 << 31) - 8)):
        with pytest.raises(InputError, match=r"batch_size=\d+ take [\d,.]+ GB or more on all devices.* choose smaller"):
            check_memory(given, mesh)
