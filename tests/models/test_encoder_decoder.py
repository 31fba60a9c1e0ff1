import re
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, TransformerConfig, abstract_params
from t5x_lite.models.encoder_decoder import InputEmbeddings

from ..slow import mostly_slow

SIZES = {"vocab_size": 29, "embed_dim": 12, "num_heads": 3, "mlp_dim": 7, "max_length": 10}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 2}
CONFIGS = {
    "bart": BartConfig(**SIZES, **LAYERS, num_decoder_heads=2, decoder_mlp_dim=5, output_bias=True),
    "transformer": TransformerConfig(**SIZES, **LAYERS),
    "untied": TransformerConfig(
        **SIZES, **LAYERS, positions="learned", norm_first=True, shared_embedding=False, tied=False
    ),
}
B, M, L = 2, 9, 7
RANDOM = np.random.default_rng(0)
IDS, TARGETS = (jnp.asarray(RANDOM.integers(0, 29, size=(B, length)), jnp.int32) for length in (M, L))
VALID = jnp.arange(M)[None, :] < jnp.array([[M], [4]])


@pytest.fixture(scope="module", params=mostly_slow(CONFIGS, "bart"))
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


@pytest.mark.parametrize("model", ["transformer"], indirect=True)
def test_a_target_gets_no_gradient_from_an_earlier_loss(model, influence):
    module, params = model
    moved = influence(module, params, L, IDS, TARGETS, inputs_valid=VALID)
    assert (moved[np.triu_indices(L, 1)] == 0).all()
    assert (moved[np.tril_indices(L)] > 1e-5).all()


def test_padding_of_the_inputs_counts_for_nothing(logits):
    before = logits(IDS, TARGETS, VALID)
    np.testing.assert_array_equal(logits(jnp.where(VALID, IDS, 5), TARGETS, VALID), before)
    alone = logits(IDS[:, :4], TARGETS[:, :3], VALID[:, :4])
    np.testing.assert_allclose(alone[1], before[1, :3], atol=1e-5)
    assert np.abs(logits(IDS, TARGETS, jnp.ones_like(VALID)) - before)[1].max() > 1e-3


def test_a_cache_gives_what_the_whole_row_gives(model, logits):
    """Two sequences for each of two inputs, first two tokens, then one at a time."""
    module, params = model
    rows = jnp.concatenate([TARGETS, (TARGETS + 3) % 29])[jnp.array([0, 2, 1, 3])]
    expected = np.stack([logits(IDS, TARGETS, VALID), logits(IDS, (TARGETS + 3) % 29, VALID)], 1).reshape(4, L, -1)

    def apply(*args, **kwargs):
        return module.apply({"params": params}, *args, **kwargs)

    start = jax.jit(lambda ids, valid: apply(ids, inputs_valid=valid, max_length=L, method="start_decoding").repeat(2))
    step = jax.jit(lambda tokens, cache, index: apply(tokens, cache, index, method="decode_step"))
    cache, said = start(IDS, VALID), []
    for first, last in [(0, 2), *((i, i + 1) for i in range(2, L))]:
        out, cache = step(rows[:, first:last], cache, jnp.int32(first))
        said.append(out)
    np.testing.assert_allclose(np.concatenate(said, axis=1), expected, atol=1e-5)


def test_packed_rows_give_the_logits_of_the_unpacked(model, logits):
    module, params = model
    segments = {
        "inputs_segments": jnp.array([[1, 1, 1, 1, 2, 2, 2, 2, 0]]),
        "decoder_segments": jnp.array([[1, 1, 1, 2, 2, 2, 0]]),
    }
    packed = jax.jit(module.apply)({"params": params}, IDS[:1], TARGETS[:1], **segments)
    expected = logits(IDS[0, :8].reshape(2, 4), TARGETS[0, :6].reshape(2, 3), jnp.ones((2, 4), bool))
    np.testing.assert_allclose(packed[0, :6].reshape(2, 3, -1), expected, atol=1e-5)


def test_logits_depend_on_the_order_of_the_inputs(logits):
    valid = jnp.ones_like(VALID)
    before = logits(IDS, TARGETS, valid)
    assert np.abs(logits(IDS[:, ::-1], TARGETS, valid) - before).max() > 1e-3


@pytest.mark.parametrize("model", ["bart", "untied"], indirect=True)
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_params_and_logits(model, logits):
    module, params = model
    half = module.config.build(dtype=jnp.bfloat16)
    abstract = jax.eval_shape(half.init, jax.random.key(0), IDS, TARGETS)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(abstract)} == {jnp.dtype(jnp.float32)}
    assert jax.eval_shape(lambda p: half.apply({"params": p}, IDS, method="encode"), params).dtype == jnp.bfloat16

    def cached(params):
        cache = half.apply({"params": params}, IDS, max_length=3, method="start_decoding")
        return jax.tree.leaves((cache.self_kv, cache.memory))

    assert {leaf.dtype for leaf in jax.eval_shape(cached, params)} == {jnp.dtype(jnp.bfloat16)}
    got, full = jax.jit(half.apply)({"params": params}, IDS, TARGETS, inputs_valid=VALID), logits(IDS, TARGETS, VALID)
    assert got.dtype == jnp.float32
    assert 1e-4 < float(jnp.sqrt(jnp.mean((got - full) ** 2)) / jnp.std(full)) < 0.1


@pytest.mark.parametrize("model", ["bart"], indirect=True)
def test_rows_beyond_the_positions(model):
    module, params = model
    long, apply = jnp.zeros((2, 11), jnp.int32), jax.eval_shape
    for args, kwargs in (
        ((long, TARGETS), {}),
        ((IDS, long), {}),
        ((IDS,), {"max_length": 11, "method": "start_decoding"}),
    ):
        with pytest.raises(InputError, match="length 11, .* positions for max_length=10; cut them to 10 ids"):
            apply(lambda p, args=args, kwargs=kwargs: module.apply({"params": p}, *args, **kwargs), params)


def test_every_parameter_has_logical_axes(model):
    boxed = jax.tree.leaves(abstract_params(model[0].config), is_leaf=lambda x: isinstance(x, nn.Partitioned))
    for leaf in boxed:
        assert isinstance(leaf, nn.LogicallyPartitioned)
        assert len(leaf.names) == leaf.value.ndim
        assert None not in leaf.names


def test_two_embeddings_are_read_by_their_sides(make_params):
    module, ids = CONFIGS["untied"].build(), jnp.ones((1, 2), jnp.int32)
    params = make_params(module, 0, ids, ids)
    encode = jax.jit(lambda params: module.apply({"params": params}, IDS, method="encode"))

    def moved(name):
        return encode(params | {name: jax.tree.map(lambda x: 2 * x, params[name])})

    before = encode(params)
    assert np.abs(moved("token_embedding") - before).max() > 1e-2
    np.testing.assert_array_equal(moved("decoder_token_embedding"), before)


def test_a_fixed_id_is_read_but_not_trained(make_params):
    """So the vector of padding, with which the decoder of a published Marian begins, stays zero."""
    config, ids = replace(CONFIGS["transformer"], tied=False, num_decoder_layers=1), jnp.ones((1, 2), jnp.int32)
    params = make_params(config.build(), 0, ids, ids)

    def logits(params, fixed_id):
        module = replace(config, fixed_id=fixed_id).build()
        return module.apply({"params": params}, jnp.array([[5, 3, 4]]), jnp.array([[5, 6, 7]]))

    @jax.jit
    def gradient(params):
        value, differentiate = jax.vjp(lambda params: logits(params, 5), params)
        return value, logits(params, None), differentiate(value)[0]

    fixed, trained, found = gradient(params)
    np.testing.assert_allclose(fixed, trained, atol=1e-6)
    rows = np.flatnonzero(np.abs(found["token_embedding"]["embedding"]).max(axis=1))
    assert rows.tolist() == [3, 4, 6, 7]


def test_rates_of_dropout_reach_embeddings_and_layers():
    """Which of a layer's rates drops what is tested with the layers."""
    rates = {"dropout_rate": 0.5, "attention_dropout_rate": 0.2, "mlp_dropout_rate": 0.3}
    config = replace(CONFIGS["transformer"], **rates)
    for layer in (config.layer(), config.decoder_layer()):
        assert {name: getattr(layer, name) for name in rates} == rates
    embedded, positions = jnp.ones((2, 3, 12)), jnp.arange(3)[None]
    rngs = {"dropout": jax.random.key(0)}
    dropped = InputEmbeddings(config).apply({}, embedded, positions, deterministic=False, rngs=rngs)
    assert 0.2 < (dropped == 0).mean() < 0.8


def test_what_the_decoder_reads_first():
    ids = {"pad_id": 3, "eos_id": 4}
    assert CONFIGS["transformer"].decoder_start_id(**ids) == 3
    assert CONFIGS["bart"].decoder_start_id(**ids) == 4
    assert replace(CONFIGS["bart"], start_id=0).decoder_start_id(**ids) == 0


@pytest.mark.parametrize("config", [BartConfig, TransformerConfig])
def test_every_number_of_the_config_is_checked(config):
    for field in fields(config):
        is_number = isinstance(field.default, (int, float)) and not isinstance(field.default, bool)
        if is_number or field.type == "int | None" or field.type == int | None:
            with pytest.raises(InputError, match=re.escape(f"{field.name}=-5")):
                config(**{field.name: -5})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embed_dim": 500}, "num_heads=12 does not divide embed_dim=500; choose a multiple of 12"),
        ({"num_decoder_heads": 7}, "num_decoder_heads=7 does not divide embed_dim=768"),
        ({"activation": "swish"}, "activation='swish' is unknown"),
        ({"start_id": 50_265}, "start_id=50265 is not an id below vocab_size=50265"),
        ({"fixed_id": 50_265}, "fixed_id=50265 is not an id below"),
        ({"dropout_rate": 1.0}, "dropout_rate=1.0"),
        ({"attention_dropout_rate": float("nan")}, "attention_dropout_rate=nan"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        BartConfig(**change)


def test_a_table_of_sinusoids_that_no_program_holds():
    with pytest.raises(InputError, match="max_length=1000000000 makes a table of .* choose 262144 or less"):
        TransformerConfig(max_length=10**9)
    TransformerConfig(max_length=262_144)
    TransformerConfig(positions="learned", max_length=10**9)


def test_positions_that_there_are_not():
    config = TransformerConfig()
    object.__setattr__(config, "positions", "rotary")  # past the checks of types that tests have
    with pytest.raises(InputError, match="positions='rotary' is unknown; choose sinusoidal or learned"):
        config.__post_init__()
