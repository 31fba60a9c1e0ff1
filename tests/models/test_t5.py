import re
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS as ALL_PRESETS
from t5x_lite.models import T5Config, T5EncoderConfig, abstract_params, num_params

from ..programs import apply
from ..slow import mostly_slow

# As published: the T5 paper's models, and the checkpoints of v1.1, mT5 and ByT5.
PUBLISHED = {
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-xl": 2_849_757_184,
    "t5-v1_1-xxl": 11_135_332_352,
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "byt5-small": 299_637_760,
    "byt5-base": 581_653_248,
}
# Xue et al. 2021 and Xue et al. 2022, table 1, in billions.
ROUNDED = {"mt5-xl": 3.7, "mt5-xxl": 13, "byt5-large": 1.23, "byt5-xl": 3.74, "byt5-xxl": 12.9}

PRESETS = {name: config for name, config in ALL_PRESETS.items() if isinstance(config, T5Config)}

IDS = np.random.default_rng(0).integers(3, 384, size=(2, 9)).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(3, 384, size=(2, 7)).astype(np.int32)
VALID = np.arange(9)[None, :] < np.array([[9], [6]])


@pytest.mark.parametrize("name", mostly_slow(PUBLISHED, "t5-small", "t5-v1_1-xxl"))
def test_published_parameter_counts(name):
    assert num_params(PRESETS[name]) == PUBLISHED[name]


def test_every_preset_has_a_published_count():
    assert set(PRESETS) == set(PUBLISHED) | set(ROUNDED)
    for name, billions in ROUNDED.items():
        assert num_params(PRESETS[name]) / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith("t5-v1_1-x")])
def test_parameter_counts_equal_those_of_transformers(name, torch, transformers):
    c = PRESETS[name]
    prefix = "MT5" if name.startswith("mt5") else "T5"
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=c.vocab_size,
        d_model=c.embed_dim,
        d_kv=c.head_dim,
        d_ff=c.mlp_dim,
        num_heads=c.num_heads,
        num_layers=c.num_encoder_layers,
        num_decoder_layers=c.num_decoder_layers,
        feed_forward_proj="gated-gelu" if c.gated else "relu",
    )
    with torch.device("meta"):
        model = getattr(transformers, f"{prefix}ForConditionalGeneration")(config)
    theirs = {id(p): p.numel() for p in model.parameters()}
    theirs.pop(
        id(model.lm_head.weight), None
    )  # Transformers 5 ties it when it builds a model, whatever the config says
    theirs.setdefault(id(model.shared.weight), model.shared.weight.numel())
    head = 0 if c.tied else model.lm_head.weight.numel()
    assert sum(theirs.values()) + head == num_params(c)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"embed_dim": 0}, "embed_dim=0"),
        ({"num_heads": -1}, "num_heads=-1"),
        ({"head_dim": 0}, "head_dim=0"),
        ({"mlp_dim": 0}, "mlp_dim=0"),
        ({"num_encoder_layers": 0}, "num_encoder_layers=0"),
        ({"num_decoder_layers": 0}, "num_decoder_layers=0"),
        ({"relative_buckets": 3}, "relative_buckets=3"),
        ({"relative_max_distance": 16}, "relative_max_distance=16.*more than 16"),
        ({"dropout_rate": 1.0}, "dropout_rate=1.0"),
        ({"dropout_rate": -0.1}, "dropout_rate=-0.1"),
        ({"dropout_rate": float("nan")}, "dropout_rate=nan"),
        ({"activation": "swish"}, "activation='swish'"),
        ({"norm_epsilon": -1e-6}, "norm_epsilon=-1e-06"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon=nan"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        T5Config(**change)


def test_every_number_of_the_config_is_checked():
    for field in fields(T5Config):
        if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
            with pytest.raises(InputError, match=re.escape(f"{field.name}=-5")):
                T5Config(**{field.name: -5})


def test_a_target_sees_nothing_behind_it(t5_logits):
    before = np.asarray(t5_logits(IDS, TARGETS, VALID))
    for position in (3, 6):
        changed = TARGETS.copy()
        changed[:, position] += 1
        after = np.asarray(t5_logits(IDS, changed % 384, VALID))
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position:] - before[:, position:]).max((0, 2)).min() > 1e-3


def test_padding_of_the_inputs_counts_for_nothing(t5_logits):
    before = np.asarray(t5_logits(IDS, TARGETS, VALID))
    changed = np.where(VALID, IDS, 0)
    np.testing.assert_array_equal(t5_logits(changed, TARGETS, VALID), before)
    alone = t5_logits(IDS[:, :6], TARGETS, np.ones((2, 6), bool))
    np.testing.assert_allclose(alone[1], before[1], atol=1e-4)
    assert np.abs(t5_logits(changed, TARGETS, np.ones_like(VALID)) - before)[1].max() > 1e-3


def test_logits_depend_on_the_order_of_the_inputs(t5_logits):
    valid = np.ones_like(VALID)
    before = np.asarray(t5_logits(IDS, TARGETS, valid))
    assert np.abs(np.asarray(t5_logits(IDS[:, ::-1].copy(), TARGETS, valid)) - before).max() > 1e-3


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_params_and_logits(t5, t5_logits):
    module, params = t5
    half = module.config.build(dtype=jnp.bfloat16)
    abstract = jax.eval_shape(half.init, jax.random.key(0), IDS, TARGETS)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(abstract)} == {jnp.dtype(jnp.float32)}
    encoded = jax.eval_shape(lambda p: half.apply({"params": p}, jnp.asarray(IDS), method="encode"), params)
    assert encoded.dtype == jnp.bfloat16
    got = jax.jit(half.apply)({"params": params}, IDS, TARGETS, inputs_valid=VALID)
    full = t5_logits(IDS, TARGETS, VALID)
    assert got.dtype == jnp.float32
    error = float(jnp.sqrt(jnp.mean((got - full) ** 2)) / jnp.std(full))
    assert 1e-4 < error < 0.1


def test_output_is_scaled_where_the_config_says_so(t5, t5_logits):
    module, params = t5
    unscaled = replace(module.config, scale_output=False).build()
    got = jax.jit(unscaled.apply)({"params": params}, IDS, TARGETS, inputs_valid=VALID)
    np.testing.assert_allclose(got * 12**-0.5, t5_logits(IDS, TARGETS, VALID), rtol=1e-4, atol=1e-5)


def test_all_positions_of_a_row_share_what_is_dropped(t5, make_params):
    """As in Mesh TensorFlow: equal tokens that no position bias tells apart stay equal."""
    model = replace(t5[0].config, dropout_rate=0.3).build()
    ids = jnp.full((2, 5), 7)
    params = make_params(model, 0, ids, ids)
    params["encoder_position_bias"] = jax.tree.map(jnp.zeros_like, params["encoder_position_bias"])
    rngs = {"dropout": jax.random.key(0)}
    encode = jax.jit(
        lambda params: model.apply({"params": params}, ids, deterministic=False, rngs=rngs, method="encode")
    )
    encoded = encode(params)
    np.testing.assert_allclose(encoded, jnp.broadcast_to(encoded[:, :1], encoded.shape), atol=1e-5)
    assert jnp.abs(encoded[0] - encoded[1]).max() > 0.1  # each row has a mask of its own
    assert 0.1 < (encoded == 0).mean() < 0.5


def test_initial_parameters_have_the_published_scales():
    config = T5Config(
        vocab_size=4000, embed_dim=64, mlp_dim=256, head_dim=16, num_encoder_layers=2, num_decoder_layers=2, tied=False
    )
    ids = jnp.ones((1, 2), jnp.int32)
    params = nn.unbox(jax.jit(config.build().init)(jax.random.key(0), ids, ids))["params"]
    layers = params["decoder"]["layers"]
    # Mesh TensorFlow's T5: normal with these deviations.
    for kernel, deviation in (
        (params["token_embedding"]["embedding"], 1.0),
        (layers["self_attention"]["query"]["kernel"], (64 * 16) ** -0.5),
        (layers["self_attention"]["key"]["kernel"], 64**-0.5),
        (layers["cross_attention"]["value"]["kernel"], 64**-0.5),
        (layers["cross_attention"]["out"]["kernel"], (8 * 16) ** -0.5),
        (layers["feed_forward"]["wi"]["kernel"], 64**-0.5),
        (layers["feed_forward"]["wo"]["kernel"], 256**-0.5),
    ):
        assert float(kernel.std()) == pytest.approx(deviation, rel=0.05)
    assert (layers["feed_forward_norm"]["scale"] == 1).all()


def test_every_parameter_has_logical_axes():
    boxed = jax.tree.leaves(abstract_params(PRESETS["mt5-small"]), is_leaf=lambda x: isinstance(x, nn.Partitioned))
    for leaf in boxed:
        assert isinstance(leaf, nn.LogicallyPartitioned)
        assert len(leaf.names) == leaf.value.ndim
        assert None not in leaf.names


@pytest.mark.slow
def test_stacks_of_one_set_of_parameters(make_params):
    """Table 2 of Raffel et al. 2020: the encoder is the decoder without its cross-attention."""
    config = T5Config(vocab_size=384, embed_dim=12, head_dim=5, mlp_dim=17, num_encoder_layers=2, num_decoder_layers=2)
    shared, ids = replace(config, stacks_share_parameters=True), jnp.ones((1, 2), jnp.int32)
    params = make_params(shared.build(), 0, ids, ids)
    assert "encoder" not in params
    encoder = {
        "final_norm": params["decoder"]["final_norm"],
        "layers": {name: of for name, of in params["decoder"]["layers"].items() if "cross" not in name},
    }
    said, expected = (
        jax.jit(c.build().apply)({"params": p}, IDS, TARGETS)
        for c, p in ((shared, params), (config, params | {"encoder": encoder}))
    )
    np.testing.assert_allclose(said, expected, atol=1e-5)
    assert num_params(shared) == num_params(config) - sum(leaf.size for leaf in jax.tree.leaves(encoder))
    layers = nn.unbox(jax.jit(shared.build().init)(jax.random.key(0), ids, ids))["params"]["decoder"]["layers"]
    for kernels in (layers["self_attention"]["key"]["kernel"], layers["cross_attention"]["key"]["kernel"]):
        assert jnp.abs(kernels[0] - kernels[1]).min() > 0
    with pytest.raises(InputError, match="num_encoder_layers=2 and num_decoder_layers=3; make them equal"):
        replace(shared, num_decoder_layers=3)


def test_the_encoder_alone_is_that_of_the_whole(t5):
    module, params = t5
    names = ("vocab_size", "num_heads", "embed_dim", "mlp_dim", "head_dim", "gated", "activation", "norm_epsilon")
    buckets = {name: getattr(module.config, name) for name in ("relative_buckets", "relative_max_distance")}
    alone = T5EncoderConfig(
        **{name: getattr(module.config, name) for name in names},
        **buckets,
        num_layers=module.config.num_encoder_layers,
    )
    moved = {
        "embeddings": {"token": params["token_embedding"]},
        "position_bias": params["encoder_position_bias"],
        "encoder": params["encoder"],
    }
    assert jax.tree.map(jnp.shape, moved) == jax.tree.map(jnp.shape, nn.unbox(abstract_params(alone)))
    whole = jax.jit(lambda ids, valid: module.apply({"params": params}, ids, inputs_valid=valid, method="encode"))
    arrays = {"inputs": jnp.asarray(IDS), "inputs_valid": jnp.asarray(VALID)}
    outputs = apply(alone.build(), moved, **arrays, method="encode_layers")
    hidden = apply(alone.build(), moved, **arrays)["hidden"]
    np.testing.assert_allclose(hidden[VALID], whole(arrays["inputs"], arrays["inputs_valid"])[VALID], atol=1e-5)
    np.testing.assert_allclose(outputs[-1], hidden, atol=1e-6)
    np.testing.assert_array_equal(outputs[0], moved["embeddings"]["token"]["embedding"][IDS])
    with pytest.raises(InputError, match="is not a head of T5EncoderConfig"):
        replace(alone, heads=("masked_lm",))
    with pytest.raises(InputError, match="relative_max_distance=3 leaves no distances"):
        replace(alone, relative_max_distance=3, relative_buckets=8)
