import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.objectives import corrupt_rows
from t5x_lite.optim.optimizers import Adafactor, AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, use_mesh


def begin(program):
    """The state before the first step, a teacher in it where there is one."""
    state, teacher = program.init(), program.objective.frozen_model
    if teacher is None:
        return state

    def init():
        ids = jnp.zeros((1, 2), jnp.int32)
        return nn.unbox(teacher.build().init(jax.random.key(9), ids, ids)["params"])

    return state.replace(frozen=jax.jit(init, out_shardings=program.state_shardings.frozen)())


def gradients(program, raw, state=None):
    """(loss, gradients) of the objective over a batch, on the program's mesh."""
    state, places = state or begin(program), program.state_shardings

    def compute(params, frozen, raw):
        with use_mesh(program.mesh):
            features = corrupt_rows(program.objective, jax.random.key(3), raw)
            (loss, weight, _), grads = program.gradients(params, features, jax.random.key(4), frozen)
        return loss / weight, jax.tree.map(lambda g: g / weight, grads)

    compiled = jax.jit(compute, in_shardings=(places.params, places.frozen, None))
    loss, grads = compiled(state.params, state.frozen, raw)
    return float(loss), traverse_util.flatten_dict(jax.device_get(grads), sep="/")


@pytest.fixture(scope="module")
def on_one_device(tiny, make_program, raw):
    return gradients(make_program(tiny), raw)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(MeshShape(2, 4), marks=pytest.mark.slow, id="data and fsdp"),
        pytest.param(MeshShape(1, tensor=2, sequence=4), marks=pytest.mark.slow, id="tensor and sequence"),
        pytest.param(MeshShape(1, 2, tensor=2, sequence=2), id="mixed"),
    ],
)
def test_eight_devices_compute_what_one_does(tiny, make_program, raw, on_one_device, shape):
    """With dropout on: the random numbers do not depend on the mesh either. Four do not divide the targets' length."""
    loss, grads = gradients(make_program(replace(tiny, mesh=shape), devices=8), raw)
    assert loss == pytest.approx(on_one_device[0], rel=1e-5)
    for name, expected in on_one_device[1].items():
        np.testing.assert_allclose(grads[name], expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=name)


def test_state_is_born_sharded(tiny, make_program):
    program = make_program(replace(tiny, mesh=MeshShape(2, 2, tensor=2)), devices=8)
    state = program.init()
    kernel = state.params["encoder"]["layers"]["feed_forward"]["wi"]["kernel"]
    assert kernel.shape == (1, 16, 24)
    assert kernel.addressable_shards[0].data.shape == (1, 8, 12)
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape == kernel.shape]
    assert moments
    assert all(leaf.addressable_shards[0].data.shape in {(1, 8, 12), (1, 12, 8)} for leaf in moments)


def test_moments_are_written_over_without_a_copy(tiny, make_program, raw):
    """The parameters' update reads what the moments' update overwrites."""
    program = make_program(replace(tiny, optimizer=AdamW()))
    shape = jax.tree.map(lambda column: jax.ShapeDtypeStruct(column.shape, column.dtype), raw)
    compiled = program.train_step.lower(program.abstract_state, shape).compile().as_text()
    assert len(set(re.findall(r"opt_state\w*__(mu|nu)__", compiled))) == 2
    assert not re.findall(r"copy\([^)]*opt_state", compiled)


def test_parts_of_a_batch_add_up_to_it(without_dropout, make_program, raw):
    whole = gradients(make_program(without_dropout), raw)
    parts = gradients(make_program(replace(without_dropout, accumulation=4)), raw)
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    for name, expected in whole[1].items():
        np.testing.assert_allclose(parts[1][name], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_steps_learn_compile_once_and_depend_on_nothing_but_the_state(tiny, make_program, raw):
    program = make_program(tiny)
    before = program.train_step._cache_size()
    state, losses = program.init(), []
    for _ in range(30):
        state, metrics = program.train_step(state, jax.device_put(raw))
        losses.append(float(metrics["loss"]))
    assert program.train_step._cache_size() - before <= 1
    assert np.mean(losses[-5:]) < losses[0] - 0.5
    again, metrics = program.train_step(program.init(), jax.device_put(raw))
    assert float(metrics["loss"]) == losses[0]
    assert int(again.step) == 1
    _, second = program.train_step(again, jax.device_put(raw))
    assert float(second["loss"]) == losses[1]
    # The same raw rows are corrupted afresh at each step.
    _, later = program.train_step(program.init().replace(step=jnp.int32(1)), jax.device_put(raw))
    assert float(later["loss"]) != losses[0]


def test_a_state_that_met_a_non_finite_loss_stays_as_it_was(tiny, make_program, raw):
    program = make_program(tiny)
    state = program.init()
    poisoned = state.replace(params=state.params | {"output": {"kernel": state.params["output"]["kernel"] * jnp.inf}})
    embedding = np.asarray(poisoned.params["token_embedding"]["embedding"])
    after, metrics = program.train_step(poisoned, jax.device_put(raw))
    assert not metrics["finite"]
    assert not after.finite
    assert int(after.step) == 0
    np.testing.assert_array_equal(after.params["token_embedding"]["embedding"], embedding)
    # ... also when the next batch would be fine.
    mended = after.replace(params=program.init().params)
    embedding = np.asarray(mended.params["token_embedding"]["embedding"])
    still, metrics = program.train_step(mended, jax.device_put(raw))
    assert not metrics["finite"]
    np.testing.assert_array_equal(still.params["token_embedding"]["embedding"], embedding)


def test_adafactor_runs_sharded(tiny, make_program):
    optimizer = Adafactor(Constant(0.01), min_dim_size_to_factor=4)
    one = make_program(replace(tiny, optimizer=optimizer))
    eight = make_program(replace(tiny, optimizer=optimizer, mesh=MeshShape(2, 2, tensor=2)), devices=8)
    random = np.random.default_rng(0)
    grads = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), one.abstract_state.params)

    def after_two_updates(program):
        places = program.state_shardings

        def update(params, opt_state, grads):
            with use_mesh(program.mesh):
                updates, opt_state = program.optimizer.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        kept = (places.params, places.opt_state)
        compiled = jax.jit(update, in_shardings=(*kept, places.params), out_shardings=kept)
        state = program.init()
        params, opt_state = compiled(state.params, state.opt_state, grads)
        return traverse_util.flatten_dict(jax.device_get(compiled(params, opt_state, grads)[0]), sep="/")

    right = after_two_updates(eight)
    for name, expected in after_two_updates(one).items():
        np.testing.assert_allclose(right[name], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_dimension_the_mesh_does_not_divide_is_named(tiny, make_program):
    model = replace(tiny.model, vocab_size=261)
    with pytest.raises(InputError, match=r"mesh.tensor=2 does not divide the 261 of axis 'vocab'"):
        make_program(replace(tiny, model=model, mesh=MeshShape(4, tensor=2)), devices=8)


families = pytest.mark.parametrize(
    "encoder",
    [
        *(pytest.param(family, marks=pytest.mark.slow) for family in ("BERT", "SpanBERT", "ALBERT")),
        *("RoBERTa", "ELECTRA", "DistilBERT"),
    ],
    indirect=True,
)
"""The quick suite has those with dropout, with two networks and with a teacher."""


@pytest.fixture(scope="module")
def encoder_on_one_device(encoder, make_program, encoder_rows):
    return gradients(make_program(encoder), encoder_rows)


@pytest.fixture(scope="module")
def encoder_on_eight(encoder, make_program):
    """(program, state) on a mixed mesh, the batch in two parts; in one where there is dropout, which each part has of
    its own."""
    accumulation = 1 if getattr(encoder.model, "dropout_rate", 0.0) else 2
    program = make_program(replace(encoder, mesh=MeshShape(1, 2, 2, 2), accumulation=accumulation), devices=8)
    return program, begin(program)


@families
def test_an_encoder_on_eight_devices_and_in_parts_computes_what_it_does_on_one_at_once(
    encoder_on_eight, encoder_rows, encoder_on_one_device
):
    program, state = encoder_on_eight
    tokens = (encoder_rows["ids"] != program.objective.vocabulary.pad_id).sum(1)
    assert tokens[0::2].sum() != tokens[1::2].sum()
    loss, grads = gradients(program, encoder_rows, state)
    assert loss == pytest.approx(encoder_on_one_device[0], rel=1e-5)
    for name, expected in encoder_on_one_device[1].items():
        # The softmax takes no notice of the keys' bias: what is below the floor is rounding.
        atol = max(1e-5 * np.abs(expected).max(), 1e-11)
        np.testing.assert_allclose(grads[name], expected, rtol=0, atol=atol, err_msg=name)


@families
def test_encoders_are_born_sharded(encoder_on_eight):
    """Parameters, Adam's two moments, and a teacher."""
    _, state = encoder_on_eight
    cut = ("wi/kernel", "wo/kernel", "query/kernel", "key/kernel", "value/kernel", "out/kernel", "token/embedding")
    parts = [
        (path, leaf.addressable_shards[0].data.size / leaf.size)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(cut)
    ]
    assert all(share == 1 / 4 for _, share in parts), parts
    assert len(parts) in {3 * 7, 3 * 13, 4 * 7}


def test_a_writer_on_eight_devices_and_in_parts_computes_what_it_does_on_one_at_once(writer, make_program, writer_rows):
    loss, grads = gradients(make_program(replace(writer, accumulation=1)), writer_rows)
    parts = gradients(make_program(replace(writer, mesh=MeshShape(1, 2, 2, 2)), devices=8), writer_rows)
    assert parts[0] == pytest.approx(loss, rel=1e-5)
    for name, expected in grads.items():
        atol = max(1e-5 * np.abs(expected).max(), 1e-11)
        np.testing.assert_allclose(parts[1][name], expected, rtol=0, atol=atol, err_msg=name)
