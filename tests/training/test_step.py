import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.kernels.random_bits import HASH
from t5x_lite.objectives import corrupt_rows
from t5x_lite.parallel import MeshShape, use_mesh
from t5x_lite.training import step

from ..tiny_runs import ENCODERS


def draw(shapes, shardings, seed):
    """Random parameters on the program's devices; no initializer is compiled for them."""
    random = np.random.default_rng(seed)

    def leaf(path, shape):
        mean = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        return random.normal(mean, 0.2, shape.shape).astype(np.float32)

    return jax.device_put(jax.tree.map_with_path(leaf, shapes), shardings)


def gradients(program, raw, impl=None):
    """(loss, gradients) of the objective over a batch, on the program's mesh; `impl` draws the dropout."""
    shapes, shardings = program.abstract_state, program.state_shardings
    params, frozen = draw(shapes.params, shardings.params, 0), draw(shapes.frozen, shardings.frozen, 1)

    def compute(params, frozen, raw):
        with use_mesh(program.mesh):
            features = corrupt_rows(program.objective, jax.random.key(3), raw)
            (loss, weight, _), grads = program.gradients(params, features, jax.random.key(4, impl=impl), frozen)
        return loss / weight, jax.tree.map(lambda g: g / weight, grads)

    loss, grads = jax.jit(compute, in_shardings=(shardings.params, shardings.frozen, None))(params, frozen, raw)
    return float(loss), traverse_util.flatten_dict(jax.device_get(grads), sep="/")


def assert_same(actual, expected, rtol=0.0):
    """That two pairs of a loss and gradients are equal up to rounding."""
    assert actual[0] == pytest.approx(expected[0], rel=1e-5)
    for name, gradient in expected[1].items():
        # A norm's scale has a sum over all tokens of terms that cancel, which some processors round to 1.3e-5. The
        # softmax is invariant to the bias of keys, whose gradient is rounding below the floor.
        atol = max(2e-5 * np.abs(gradient).max(), 1e-7)
        np.testing.assert_allclose(actual[1][name], gradient, rtol=rtol, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def on_one_device(tiny, make_program, raw):
    return gradients(make_program(tiny), raw)


MIXED = MeshShape(1, 2, tensor=2, sequence=2)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(MeshShape(1, tensor=2, sequence=4), marks=pytest.mark.slow, id="tensor and sequence"),
        pytest.param(MIXED, id="mixed"),
    ],
)
def test_eight_devices_compute_what_one_does(tiny, make_program, raw, on_one_device, shape):
    """With dropout on: the random numbers do not depend on the mesh either. Four do not divide the targets' length."""
    assert_same(gradients(make_program(replace(tiny, mesh=shape), devices=8), raw), on_one_device)


@pytest.mark.slow
def test_dropout_by_the_hash_does_not_depend_on_the_mesh(tiny, make_program, raw, on_one_device):
    """In two parts of a batch, each of which draws its masks."""
    parts = replace(tiny, accumulation=2)
    one = gradients(make_program(parts), raw, HASH)
    assert_same(gradients(make_program(replace(parts, mesh=MIXED), devices=8), raw, HASH), one)
    assert all(np.isfinite(gradient).all() for gradient in one[1].values())
    assert one[0] == pytest.approx(on_one_device[0], rel=0.05)
    assert one[0] != pytest.approx(on_one_device[0], rel=1e-5)


@pytest.mark.parametrize("prng", ["threefry", "hash"])
def test_the_hash_draws_dropout_and_nothing_else(tiny, make_program, raw, monkeypatch, prng):
    """The key of the corruption is the same in both, that of dropout has the same words."""
    program, keys = make_program(replace(tiny, dropout_prng=prng)), {}
    corrupt, differentiate = step.corrupt_rows, program.gradients

    def corrupt_rows(objective, key, batch):
        keys["corruption"] = key
        return corrupt(objective, key, batch)

    def differentiated(params, features, key, frozen):
        keys["dropout"] = key
        return differentiate(params, features, key, frozen)

    monkeypatch.setattr(step, "corrupt_rows", corrupt_rows)
    monkeypatch.setattr(program, "gradients", differentiated)

    def draw(state, raw):
        with use_mesh(program.mesh):
            program._train_step(state, raw)
        return {name: jax.random.key_data(key) for name, key in keys.items()}

    state = program.abstract_state.replace(step=jnp.int32(3))
    names = jax.eval_shape(draw, state, raw)
    assert set(names) == {"corruption", "dropout"}
    assert keys["corruption"].dtype == jax.random.key(0).dtype
    assert keys["dropout"].dtype == jax.random.key(0, impl=HASH if prng == "hash" else None).dtype


def test_state_is_born_sharded(tiny, make_program):
    """With the values that one device draws."""
    state = make_program(replace(tiny, mesh=MIXED), devices=8).init()
    kernel = state.params["encoder"]["layers"]["feed_forward"]["wi"]["kernel"]
    assert kernel.shape == (1, 16, 24)
    assert kernel.addressable_shards[0].data.shape == (1, 8, 12)
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape == kernel.shape]
    assert moments
    assert all(leaf.addressable_shards[0].data.shape in {(1, 8, 12), (1, 12, 8)} for leaf in moments)
    expected = jax.device_get(make_program(tiny).init().params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), jax.device_get(state.params), expected)


@pytest.mark.slow
def test_zero1_updates_as_one_device_does_with_moments_sharded_over_copies(tiny, make_program, raw):
    """Its devices hold an eighth of the moments and a half of the parameters, before and after a step."""
    program = make_program(replace(tiny, mesh=MeshShape(4, 2), zero1=True), devices=8)
    state, expected = program.init(), make_program(tiny).init()
    for _ in range(2):
        state, metrics = program.train_step(state, jax.device_put(raw))
        expected, expected_metrics = make_program(tiny).train_step(expected, jax.device_put(raw))
        assert float(metrics["loss"]) == pytest.approx(float(expected_metrics["loss"]), rel=1e-5)
        assert float(metrics["gradient_norm"]) == pytest.approx(float(expected_metrics["gradient_norm"]), rel=1e-4)
        matrices = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim > 1]
        assert len(matrices) > 20
        assert {leaf.addressable_shards[0].data.size * 8 == leaf.size for leaf in matrices} == {True}
        for leaf in jax.tree.leaves(state.params):
            assert leaf.addressable_shards[0].data.size * 2 == leaf.size
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4 * np.abs(b).max()),
        jax.device_get((state.params, state.opt_state)),
        jax.device_get((expected.params, expected.opt_state)),
    )


def test_moments_are_written_over_without_a_copy(tiny, make_program, raw):
    """The parameters' update reads what the moments' update overwrites."""
    program = make_program(tiny)
    shape = jax.tree.map(lambda column: jax.ShapeDtypeStruct(column.shape, column.dtype), raw)
    compiled = program.train_step.lower(program.abstract_state, shape).compile().as_text()
    assert len(set(re.findall(r"opt_state\w*__(mu|nu)__", compiled))) == 2
    assert not re.findall(r"copy\([^)]*opt_state", compiled)


@pytest.mark.slow
def test_parts_of_a_batch_add_up_to_it(without_dropout, make_program, raw):
    parts = gradients(make_program(replace(without_dropout, accumulation=4)), raw)
    assert_same(parts, gradients(make_program(without_dropout), raw), rtol=1e-4)


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


def test_a_dimension_the_mesh_does_not_divide_is_named(tiny, make_program):
    model = replace(tiny.model, vocab_size=261)
    with pytest.raises(InputError, match=r"mesh.tensor=2 does not divide the 261 of axis 'vocab'"):
        make_program(replace(tiny, model=model, mesh=MeshShape(4, tensor=2)), devices=8)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name not in ("BERT", "RoBERTa")], indirect=True)
def test_an_encoder_on_eight_devices_and_in_parts_computes_what_it_does_on_one_at_once(
    encoder, make_program, encoder_rows
):
    # Every microbatch draws its dropout.
    accumulation = 1 if getattr(encoder.model, "dropout_rate", 0.0) else 2
    program = make_program(replace(encoder, mesh=MIXED, accumulation=accumulation), devices=8)
    tokens = (encoder_rows["ids"] != program.objective.vocabulary.pad_id).sum(1)
    assert tokens[0::2].sum() != tokens[1::2].sum()
    assert_same(gradients(program, encoder_rows), gradients(make_program(encoder), encoder_rows))
    # Parameters, Adam's two moments, and a teacher.
    sharded = ("wi/kernel", "wo/kernel", "query/kernel", "key/kernel", "value/kernel", "out/kernel", "token/embedding")
    shares = [
        (path, np.prod(leaf.sharding.shard_shape(leaf.shape)) / leaf.size)
        for path, leaf in jax.tree.leaves_with_path(program.abstract_state)
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(sharded)
    ]
    assert all(share == 1 / 4 for _, share in shares), shares
    assert len(shares) in {3 * 7, 3 * 13, 4 * 7}


@pytest.mark.slow
def test_a_writer_on_eight_devices_and_in_parts_computes_what_it_does_on_one_at_once(writer, make_program, writer_rows):
    program = make_program(replace(writer, mesh=MIXED), devices=8)
    assert_same(gradients(program, writer_rows), gradients(make_program(replace(writer, accumulation=1)), writer_rows))
