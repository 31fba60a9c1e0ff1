"""What all encoders promise, whatever their family."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import (
    AlbertConfig,
    BertConfig,
    BigBird,
    DistilBertConfig,
    ElectraConfig,
    EncoderConfig,
    Linformer,
    RobertaConfig,
    abstract_params,
)

from ..slow import mostly_slow

# Every size differs from every other one.
SIZES = {"vocab_size": 40, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17, "num_layers": 2, "max_length": 9}
CONFIGS: dict[str, EncoderConfig] = {
    "bert": BertConfig(**SIZES, heads=("masked_lm", "sentence_pair", "span_boundary")),
    "roberta": RobertaConfig(**SIZES, heads=("masked_lm",), pad_id=2),
    "albert": AlbertConfig(**SIZES, heads=("masked_lm", "sentence_pair"), token_embed_dim=5),
    "distilbert": DistilBertConfig(**SIZES, heads=("masked_lm",), tied=False),
    "electra": ElectraConfig(**SIZES, heads=("masked_lm", "replaced_token"), token_embed_dim=5),
    "bigbird": BertConfig(**SIZES, heads=("masked_lm",), attention=BigBird(1, 1, 1)),
    "bigbird-etc": BertConfig(**SIZES, heads=("masked_lm",), attention=BigBird(1, 1, 1, num_global_tokens=2)),
    "linformer": BertConfig(**SIZES, heads=("masked_lm",), attention=Linformer(4, "none")),
}
B, L = 2, 9
IDS = np.random.default_rng(0).integers(3, 40, size=(B, L)).astype(np.int32)
VALID = np.arange(L)[None, :] < np.array([[L], [6]])
PADDED = np.where(VALID, IDS, 2).astype(np.int32)
SEGMENTS = (np.arange(L) > 3)[None].repeat(B, 0).astype(np.int32)


@dataclass(frozen=True)
class Tiny:
    """A tiny encoder, its parameters, and its compiled `__call__(inputs, segments, inputs_valid)`."""

    config: EncoderConfig
    params: Any
    call: Callable[..., dict[str, jax.Array]]


@pytest.fixture(scope="module", params=mostly_slow(CONFIGS, "bert", "albert", "bigbird-etc", "linformer"))
def tiny(request, make_params) -> Tiny:
    config = CONFIGS[request.param]
    module = config.build()
    params = make_params(module, 0, jnp.asarray(IDS), jnp.asarray(SEGMENTS))
    apply = jax.jit(lambda *args: module.apply({"params": params}, *args[:2], inputs_valid=args[2]))
    return Tiny(config, params, lambda *args: apply(*map(jnp.asarray, args)))


def test_what_an_encoder_says(tiny):
    said = tiny.call(IDS, SEGMENTS, VALID)
    shapes = {
        "hidden": (B, L, 12),
        "pooled": (B, 12),
        "masked_lm_logits": (B, L, 40),
        "sentence_pair_logits": (B, 2),
        "span_boundary_logits": (B, L, 40),
        "replaced_token_logits": (B, L),
    }
    names = {"hidden", *(f"{head}_logits" for head in tiny.config.heads)} | (
        {"pooled"} if tiny.config.pooler else set()
    )
    assert {name: value.shape for name, value in said.items()} == {name: shapes[name] for name in names}
    encoder = tiny.config.build()

    def by_methods(encoder):
        inputs = jnp.asarray(IDS), jnp.asarray(SEGMENTS)
        hidden = encoder.hidden_states(*inputs, inputs_valid=jnp.asarray(VALID))
        layers = encoder.encode_layers(*inputs, inputs_valid=jnp.asarray(VALID))
        return layers, encoder.masked_lm_logits(hidden[:, 2:5])

    layers, logits = jax.jit(lambda p: encoder.apply({"params": p}, method=by_methods))(tiny.params)
    assert layers.shape == (3, B, L, 12)
    np.testing.assert_allclose(layers[-1], said["hidden"], atol=1e-5)
    np.testing.assert_allclose(logits, said["masked_lm_logits"][:, 2:5], atol=1e-5)


def test_padding_counts_for_nothing(tiny):
    before = tiny.call(PADDED, SEGMENTS, VALID)
    changed = tiny.call(np.where(VALID, PADDED, 2), np.where(VALID, SEGMENTS, 0), VALID)
    other = tiny.call(np.where(VALID, PADDED, 7), SEGMENTS, VALID)
    for name, value in before.items():
        rows = value.ndim == 2 and name != "replaced_token_logits"
        for after in (changed, other):
            difference = np.abs(np.asarray(after[name] - value))
            assert (difference if rows else difference[VALID]).max() == 0
    seen = tiny.call(np.where(VALID, PADDED, 7), SEGMENTS, np.ones_like(VALID))
    assert np.abs(np.asarray(seen["hidden"] - before["hidden"]))[1, :6].max() > 1e-3


def test_the_order_of_the_ids_counts(tiny):
    valid = np.ones_like(VALID)
    swapped = IDS[:, [0, 2, 1, *range(3, L)]]
    before, after = (tiny.call(ids, 0 * SEGMENTS, valid)["hidden"] for ids in (IDS, swapped))
    assert np.abs(np.asarray(before - after))[:, 3:].max() > 1e-3


def test_segments_count_where_there_is_more_than_one(tiny):
    before, after = (np.asarray(tiny.call(IDS, segments, VALID)["hidden"]) for segments in (0 * SEGMENTS, SEGMENTS))
    assert (np.abs(before - after).max() > 1e-2) == (tiny.config.num_segments > 1)


def test_every_parameter_has_logical_axes(tiny):
    boxed = jax.tree.leaves(abstract_params(tiny.config), is_leaf=lambda x: isinstance(x, nn.Partitioned))
    for leaf in boxed:
        assert isinstance(leaf, nn.LogicallyPartitioned)
        assert len(leaf.names) == leaf.value.ndim
        assert None not in leaf.names


def test_the_tree_has_a_branch_for_each_part(tiny):
    parts = {"embeddings", "encoder", *tiny.config.heads}
    parts |= {"pooler"} if tiny.config.pooler else set()
    parts |= {"projection"} if tiny.config.projects_embeddings else set()
    parts |= {"global_tokens"} if tiny.config.num_global_tokens else set()
    assert set(tiny.params) == parts
    kernel = tiny.params["encoder"]["layers"]["feed_forward"]["wi"]["kernel"]
    assert kernel.shape == ((12, 17) if tiny.config.layers_share_parameters else (2, 12, 17))
    assert ("kernel" in tiny.params["masked_lm"]["scores"]) == (not tiny.config.tied)


@pytest.mark.parametrize("tiny", ["bert", "electra"], indirect=True)
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_params_and_logits(tiny):
    half = tiny.config.build(dtype=jnp.bfloat16)
    got = jax.jit(half.apply)({"params": tiny.params}, IDS, SEGMENTS)
    full = tiny.call(IDS, SEGMENTS, np.ones_like(VALID))
    for name, value in got.items():
        assert value.dtype == (jnp.float32 if name.endswith("logits") else jnp.bfloat16)
        error = float(jnp.sqrt(jnp.mean((value - full[name]) ** 2)) / jnp.std(full[name]))
        assert 1e-5 < error < 0.1


@pytest.mark.parametrize("tiny", ["bert"], indirect=True)
def test_initial_parameters_are_berts(tiny):
    config = replace(tiny.config, vocab_size=1000, embed_dim=96, mlp_dim=128)
    ids = jnp.zeros((1, 2), jnp.int32)
    params = nn.unbox(jax.jit(config.build().init)(jax.random.key(0), ids, ids))["params"]
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if path[-1].key in ("kernel", "embedding"):
            # A normal distribution cut off at two deviations keeps 0.88 of its own.
            assert float(jnp.abs(leaf).max()) <= 0.04
            if leaf.size > 1000:
                assert float(leaf.std()) == pytest.approx(0.0176, rel=0.1)
        else:
            assert (leaf == (1.0 if path[-1].key == "scale" else 0.0)).all()


@pytest.mark.parametrize("tiny", ["bert"], indirect=True)
def test_program_size_does_not_grow_with_depth(tiny):
    def program(layers):
        config = replace(tiny.config, num_layers=layers, dropout_rate=0.1)
        module, params = config.build(remat="full"), nn.unbox(abstract_params(config))

        def loss(params, ids):
            rngs = {"dropout": jax.random.key(0)}
            return module.apply({"params": params}, ids, method="hidden_states", deterministic=False, rngs=rngs).sum()

        return jax.jit(jax.grad(loss)).lower(params, jax.ShapeDtypeStruct((2, 8), jnp.int32)).as_text()

    assert len(program(12)) == pytest.approx(len(program(3)), rel=0.01)


def test_rows_that_are_too_long(tiny):
    with pytest.raises(InputError, match="length 10, .*max_length=9; cut them to 9 ids or choose a model"):
        abstract = jax.ShapeDtypeStruct((1, 10), jnp.int32)
        jax.eval_shape(tiny.config.build().init, jax.random.key(0), abstract)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (BertConfig, {"vocab_size": 0}, "vocab_size=0"),
        (BertConfig, {"max_length": 1}, "max_length=1 is too small; choose 2"),
        (BertConfig, {"embed_dim": 500}, r"num_heads=12 does not divide embed_dim=500; .*\(e\.g\. 504\)"),
        (BertConfig, {"activation": "swish"}, "activation='swish'"),
        (BertConfig, {"dropout_rate": 1.0}, "dropout_rate=1.0"),
        (BertConfig, {"attention_dropout_rate": float("nan")}, "attention_dropout_rate=nan"),
        (BertConfig, {"norm_epsilon": float("nan")}, "norm_epsilon=nan"),
        (BertConfig, {"heads": ("sentence_pair",), "pooler": False}, "'sentence_pair' need pooler=True"),
        (BertConfig, {"heads": ("masked_lm", "masked_lm")}, "twice"),
        (
            BertConfig,
            {"heads": ("replaced_token",)},
            "not a head of BertConfig; choose among masked_lm, sentence",
        ),
        (RobertaConfig, {"heads": ("sentence_pair",)}, "not a head of RobertaConfig"),
        (AlbertConfig, {"heads": ("span_boundary",)}, "not a head of AlbertConfig"),
        (DistilBertConfig, {"heads": ("sentence_pair",)}, "not a head of DistilBertConfig"),
        (ElectraConfig, {"heads": ("sentence_pair",)}, "not a head of ElectraConfig"),
        (RobertaConfig, {"pad_id": 50_265}, "pad_id=50265 is not an id of vocab_size=50265"),
        (RobertaConfig, {"max_length": 2**31 - 2}, "max_length=2147483646 and the 2 rows before the first position"),
    ],
)
def test_fields_out_of_range(config, change, message):
    with pytest.raises(InputError, match=message):
        config(**change)


@pytest.mark.parametrize("config", [type(config) for config in CONFIGS.values()])
def test_every_number_of_a_config_is_checked(config):
    for field in fields(config):
        if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
            with pytest.raises(InputError, match=re.escape(f"{field.name}=-5")):
                config(**{field.name: -5})
