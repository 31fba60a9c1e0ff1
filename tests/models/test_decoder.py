import re
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig, T5DecoderConfig, abstract_params
from t5x_lite.models.decoder import padding_first

from ..slow import mostly_slow

SIZES = {"vocab_size": 29, "embed_dim": 12, "num_heads": 3, "mlp_dim": 7, "num_layers": 2}
BUCKETS = {"relative_buckets": 6, "relative_max_distance": 5, "head_dim": 5}
CONFIGS = {
    "pre-ln": GptConfig(**SIZES, max_length=16, head_dim=5, tied=False),
    "post-ln": GptConfig(**SIZES, max_length=16, norm_first=False),
    "t5": T5DecoderConfig(**SIZES, **BUCKETS),
    "prefix": T5DecoderConfig(**SIZES, **BUCKETS, gated=True, full_prefix=True, tied=False),
}
B, M, L = 2, 6, 5
RANDOM = np.random.default_rng(0)
IDS, TARGETS = (jnp.asarray(RANDOM.integers(0, 29, size=(B, length)), jnp.int32) for length in (M, L))
# The second row's inputs are three, with padding on either side.
VALID = jnp.array([[True] * M, [False, True, True, True, False, False]])


@pytest.fixture(scope="module", params=mostly_slow(CONFIGS, "pre-ln", "prefix"))
def model(request, make_params):
    """A module and random parameters of it."""
    module, ids = CONFIGS[request.param].build(), jnp.ones((1, 2), jnp.int32)
    return module, make_params(module, 0, ids, ids)


@pytest.fixture(scope="module")
def logits(model):
    """The compiled forward pass: `(inputs, decoder_inputs, inputs_valid)` to logits."""
    module, params = model
    apply = jax.jit(lambda *args: module.apply({"params": params}, *args[:2], inputs_valid=args[2]))
    return lambda *args: np.asarray(apply(*args))


@pytest.fixture(scope="module")
def language_model(model):
    """The compiled forward pass without inputs: decoder inputs to logits."""
    module, params = model
    return jax.jit(lambda ids: module.apply({"params": params}, ids[:, :0], ids))


@pytest.mark.parametrize("model", ["t5", "prefix"], indirect=True)
def test_a_target_gets_no_gradient_from_an_earlier_loss(model, influence):
    module, params = model
    length = M + L
    moved = influence(module, params, length, IDS, TARGETS)
    whole = np.arange(length)[None, :] <= np.arange(M, length)[:, None]
    assert (moved[~whole] == 0).all()
    assert (moved[whole] > 1e-5).all()


@pytest.mark.parametrize("model", ["post-ln", "prefix"], indirect=True)
def test_inputs_see_what_is_before_them_or_each_other_whole(model, influence):
    """Of the inputs alone what is said behind each shows what it has seen."""
    module, params = model
    moved = influence(module, params, M, IDS)
    behind = moved[np.triu_indices(M, 1)]
    assert (behind > 1e-5).all() if module.config.full_prefix else (behind == 0).all()
    assert (moved[np.tril_indices(M)] > 1e-5).all()


def test_two_parts_are_one_row(model, logits, language_model):
    said = logits(IDS, TARGETS, jnp.ones_like(VALID))
    whole = language_model(jnp.concatenate([IDS, TARGETS], axis=1))[:, M:]
    if model[0].config.full_prefix:
        assert np.abs(said - whole).max() > 1e-3
    else:
        np.testing.assert_allclose(said, whole, atol=1e-5)


def test_padding_of_the_inputs_counts_for_nothing(logits):
    before = logits(IDS, TARGETS, VALID)
    np.testing.assert_array_equal(logits(jnp.where(VALID, IDS, 5), TARGETS, VALID), before)
    alone = logits(IDS[:, 1:4], TARGETS, jnp.ones((B, 3), bool))
    np.testing.assert_allclose(alone[1], before[1], atol=1e-5)
    for shift in (-1, 2):  # all of it behind, all of it in front
        shifted = logits(jnp.roll(IDS, shift, axis=1), TARGETS, jnp.roll(VALID, shift, axis=1))
        np.testing.assert_allclose(shifted[1], before[1], atol=1e-5)
    assert np.abs(logits(IDS, TARGETS, jnp.ones_like(VALID)) - before)[1].max() > 1e-3


@pytest.mark.parametrize("model", ["pre-ln", "prefix"], indirect=True)
def test_the_inputs_alone_may_be_padded_too(model):
    module, params = model
    apply = jax.jit(lambda ids, valid: module.apply({"params": params}, ids, inputs_valid=valid))
    changed = apply(jnp.where(VALID, IDS, 5), VALID)
    np.testing.assert_array_equal(apply(IDS, VALID)[VALID], changed[VALID])
    shifted = apply(jnp.roll(IDS, -1, axis=1), jnp.roll(VALID, -1, axis=1))
    np.testing.assert_allclose(shifted[1, :3], changed[1, 1:4], atol=1e-5)


def test_a_cache_gives_what_the_whole_row_gives(model, logits):
    """Two sequences for each of two inputs, first two tokens, then one at a time."""
    module, params = model
    rows = jnp.concatenate([TARGETS, (TARGETS + 3) % 29])[jnp.array([0, 2, 1, 3])]
    expected = np.stack([logits(IDS, ids, VALID) for ids in (TARGETS, (TARGETS + 3) % 29)], 1).reshape(2 * B, L, -1)

    def apply(*args, **kwargs):
        return module.apply({"params": params}, *args, **kwargs)

    start = jax.jit(lambda ids, valid: apply(ids, inputs_valid=valid, max_length=L, method="start_decoding").repeat(2))
    step = jax.jit(lambda tokens, cache, index: apply(tokens, cache, index, method="decode_step"))
    cache, said = start(IDS, VALID), []
    for first, last in [(0, 2), *((i, i + 1) for i in range(2, L))]:
        out, cache = step(rows[:, first:last], cache, jnp.int32(first))
        said.append(out)
    np.testing.assert_allclose(np.concatenate(said, axis=1), expected, atol=1e-5)

    # A sequence goes on from the past of another one of the same input.
    taken = jnp.array([1, 1, 3, 2])
    after, _ = step(rows[:, L - 1 :], cache.take(taken), jnp.int32(L - 1))
    swapped = jnp.concatenate([rows[taken, : L - 1], rows[:, L - 1 :]], axis=1)
    for n in range(2):
        np.testing.assert_allclose(after[n::2, 0], logits(IDS, swapped[n::2], VALID)[:, -1], atol=1e-5)


@pytest.mark.parametrize("model", ["post-ln", "t5"], indirect=True)
def test_a_cache_without_inputs(model, language_model):
    module, params = model
    apply = jax.jit(
        lambda ids: module.apply(
            {"params": params},
            ids,
            module.apply({"params": params}, ids[:, :0], max_length=L, method="start_decoding"),
            jnp.int32(0),
            method="decode_step",
        )[0]
    )
    np.testing.assert_allclose(apply(TARGETS), language_model(TARGETS), atol=1e-5)


def test_packed_rows_give_the_logits_of_the_unpacked(model, language_model):
    module, params = model
    ids = jnp.concatenate([TARGETS[0], TARGETS[1]])[None]
    segments = jnp.array([[1] * L + [2] * L])
    said = jax.jit(lambda ids: module.apply({"params": params}, ids[:, :0], ids, decoder_segments=segments))(ids)
    np.testing.assert_allclose(said.reshape(2, L, -1), language_model(TARGETS), atol=1e-5)
    with pytest.raises(ValueError, match="decoder_segments are for rows without inputs"):
        module.apply({"params": params}, IDS, TARGETS, decoder_segments=jnp.ones_like(TARGETS))


@pytest.mark.parametrize("model", ["pre-ln", "t5"], indirect=True)
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_params_and_logits(model, logits):
    module, params = model
    half = module.config.build(dtype=jnp.bfloat16)
    abstract = jax.eval_shape(half.init, jax.random.key(0), IDS, TARGETS)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(abstract)} == {jnp.dtype(jnp.float32)}
    got, full = jax.jit(half.apply)({"params": params}, IDS, TARGETS, inputs_valid=VALID), logits(IDS, TARGETS, VALID)
    assert got.dtype == jnp.float32
    assert 1e-4 < float(jnp.sqrt(jnp.mean((got - full) ** 2)) / jnp.std(full)) < 0.1


def test_every_parameter_has_logical_axes(model):
    boxed = jax.tree.leaves(abstract_params(model[0].config), is_leaf=lambda x: isinstance(x, nn.Partitioned))
    for leaf in boxed:
        assert isinstance(leaf, nn.LogicallyPartitioned)
        assert len(leaf.names) == leaf.value.ndim
        assert None not in leaf.names


def test_rows_beyond_the_positions(make_params):
    module, ids = CONFIGS["pre-ln"].build(), jnp.ones((1, 2), jnp.int32)
    params = make_params(module, 0, ids, ids)
    for args, kwargs in (
        ((jnp.zeros((1, 17), jnp.int32),), {}),
        ((jnp.zeros((1, 9), jnp.int32), jnp.zeros((1, 8), jnp.int32)), {}),
        ((jnp.zeros((1, 9), jnp.int32),), {"max_length": 8, "method": "start_decoding"}),
    ):
        with pytest.raises(InputError, match="length 17, .* positions for max_length=16; cut them to 16 ids"):
            jax.eval_shape(lambda p, args=args, kwargs=kwargs: module.apply({"params": p}, *args, **kwargs), params)


def test_padding_goes_in_front_and_all_else_keeps_its_order():
    ids, valid = padding_first(IDS, VALID)
    assert ids[1, 3:].tolist() == IDS[1, 1:4].tolist()
    assert valid.tolist() == [[True] * 6, [False] * 3 + [True] * 3]
    np.testing.assert_array_equal(ids[0], IDS[0])


def test_the_last_input_is_read_behind_eos():
    assert CONFIGS["t5"].decoder_start_id(pad_id=3, eos_id=4) == 4


@pytest.mark.parametrize("norm_first", [True, False])
def test_initial_parameters_of_a_gpt(norm_first):
    """Normal with 0.02; the ends of GPT-2's residual branches less, by the square root of their number."""
    config = GptConfig(vocab_size=100, embed_dim=48, num_heads=4, mlp_dim=96, num_layers=2, norm_first=norm_first)
    params = nn.unbox(jax.jit(config.build().init)(jax.random.key(0), IDS))["params"]
    layers = params["decoder"]["layers"]
    ends = 0.01 if norm_first else 0.02
    for kernel, deviation in (
        (params["token_embedding"]["embedding"], 0.02),
        (layers["self_attention"]["query"]["kernel"], 0.02),
        (layers["self_attention"]["out"]["kernel"], ends),
        (layers["feed_forward"]["wi"]["kernel"], 0.02),
        (layers["feed_forward"]["wo"]["kernel"], ends),
    ):
        assert float(kernel.std()) == pytest.approx(deviation, rel=0.06)


def test_rates_of_dropout_reach_embeddings_and_layers(make_params):
    """Which of a layer's rates drops what is tested with the layers."""
    rates = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3}
    layer = replace(CONFIGS["pre-ln"], **rates).layer()
    assert {name: getattr(layer, name) for name in rates} == rates
    no_others = dict.fromkeys(rates, 0.0)
    module = replace(CONFIGS["pre-ln"], **no_others, embedding_dropout_rate=0.5, num_layers=1).build()
    params = {"params": make_params(module, 0, IDS)}
    drop = jax.jit(lambda key: module.apply(params, IDS, deterministic=False, rngs={"dropout": key}))
    assert np.abs(drop(jax.random.key(0)) - drop(jax.random.key(1))).max() > 1e-3


@pytest.mark.parametrize("config", [GptConfig, T5DecoderConfig])
def test_every_number_of_the_config_is_checked(config):
    for field in fields(config):
        is_number = isinstance(field.default, (int, float)) and not isinstance(field.default, bool)
        if is_number or field.name == "head_dim":
            with pytest.raises(InputError, match=re.escape(f"{field.name}=-5")):
                config(**{field.name: -5})


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (GptConfig, {"embed_dim": 500}, "num_heads=12 does not divide embed_dim=500; choose a multiple of 12"),
        (GptConfig, {"activation": "swish"}, "activation='swish' is unknown"),
        (GptConfig, {"embedding_dropout_rate": 1.0}, "embedding_dropout_rate=1.0"),
        (GptConfig, {"attention_scale": 0.0}, "attention_scale=0.0"),
        (T5DecoderConfig, {"relative_max_distance": 16}, "relative_max_distance=16.*more than 16"),
    ],
)
def test_fields_out_of_range(config, change, message):
    with pytest.raises(InputError, match=message):
        config(**change)
