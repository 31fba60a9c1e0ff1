"""Heads of tasks on models that read from left to right."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, EncoderConfig, GptConfig, T5Config, T5DecoderConfig, abstract_params

SIZES = {"vocab_size": 29, "embed_dim": 12, "num_heads": 3, "mlp_dim": 7, "max_length": 10, "num_classes": 5}
CONFIGS = {
    "BART": BartConfig(
        **SIZES,
        num_encoder_layers=1,
        num_decoder_layers=2,
        heads=("classification", "tagging", "question_answering"),
        head_dropout_rate=0.5,
    ),
    "GPT": GptConfig(**SIZES, num_layers=2, heads=("classification", "multiple_choice"), head_dropout_rate=0.5),
}
SHAPES = {
    "classification": (2, 5),
    "multiple_choice": (2,),
    "tagging": (2, 9, 5),
    "question_answering": (2, 9, 2),
}
IDS = jnp.asarray(np.random.default_rng(0).integers(1, 29, size=(2, 9)), jnp.int32)
VALID = jnp.arange(9)[None, :] < jnp.array([[9], [6]])


@pytest.fixture(scope="module", params=CONFIGS)
def model(request, make_params):
    """A module and random parameters of it."""
    module, ids = CONFIGS[request.param].build(), jnp.ones((1, 2), jnp.int32)
    return module, make_params(module, 0, ids, ids)


@pytest.fixture(scope="module")
def say(model):
    """`say(ids, valid, key=None)`: what each head says; with a key there is dropout, in the heads alone."""
    module, params = model

    def forward(m, ids, valid, key):
        hidden = m.hidden_states(ids, inputs_valid=valid)
        said = {}
        for head in module.config.heads:
            ends = {"inputs_valid": valid} if head in ("classification", "multiple_choice") else {}
            said[head] = getattr(m, f"{head}_logits")(hidden, **ends, deterministic=key is None)
        return said

    @jax.jit
    def apply(ids, valid, key):
        rngs = None if key is None else {"dropout": key}
        return module.apply({"params": params}, ids, valid, key, method=forward, rngs=rngs)

    return lambda ids, valid, key=None: jax.tree.map(np.asarray, apply(ids, valid, key))


def test_shapes(model, say):
    said = say(IDS, VALID)
    assert {head: logits.shape for head, logits in said.items()} == {head: SHAPES[head] for head in said}
    assert all(logits.dtype == np.float32 for logits in said.values())


def test_padding_changes_nothing(say):
    before, other = say(IDS, VALID), say(jnp.where(VALID, IDS, 3), VALID)
    alone = say(IDS[1:, :6], jnp.ones((1, 6), bool))
    for head, logits in before.items():
        np.testing.assert_array_equal(other[head][0], logits[0])
        of_text = logits[1, :6] if logits.ndim == 3 else logits[1]
        np.testing.assert_allclose(alone[head][0], of_text, atol=1e-5)
        said_again = other[head][1, :6] if logits.ndim == 3 else other[head][1]
        np.testing.assert_allclose(said_again, of_text, atol=1e-6)


def test_every_token_has_a_say_on_the_row(say):
    """Each changed by itself, in a row of its own."""
    length = 6
    rows = jnp.tile(IDS[:1], (9, 1))
    changed = rows.at[jnp.arange(9), jnp.arange(9)].set((IDS[0] + 1) % 28 + 1)
    valid = jnp.tile(jnp.arange(9)[None] < length, (9, 1))
    before, after = say(rows, valid), say(changed, valid)
    for head in {"classification", "multiple_choice"} & set(before):
        moved = np.abs(after[head] - before[head]).reshape(9, -1).max(axis=1)
        assert (moved[:length] > 1e-4).all()
        assert (moved[length:] < 1e-6).all()


def test_dropout_in_the_heads_is_driven_by_the_key(model, say):
    none, *some = (say(IDS, VALID, key) for key in (None, jax.random.key(0), jax.random.key(0), jax.random.key(1)))
    for head in model[0].config.heads:
        if head == "question_answering":  # its class in Transformers has none
            np.testing.assert_allclose(some[0][head], none[head], atol=1e-5)  # another program
            continue
        np.testing.assert_array_equal(some[0][head], some[1][head])
        assert np.abs(some[0][head] - some[2][head]).max() > 1e-2
        assert np.abs(some[0][head] - none[head]).max() > 1e-2


def test_heads_add_their_parameters_and_change_no_other(model):
    config = model[0].config
    shapes, without = (
        {path: leaf.shape for path, leaf in traverse_util.flatten_dict(nn.unbox(abstract_params(c)), sep="/").items()}
        for c in (config, replace(config, heads=()))
    )
    assert {path: shape for path, shape in shapes.items() if path in without} == without
    assert {path.split("/")[0] for path in set(shapes) - set(without)} == set(config.heads)
    bias = "classification/scores/bias" in shapes
    assert bias == isinstance(config, BartConfig)  # equation 3 of GPT's paper has none


def test_a_bart_reads_the_row_on_both_sides(make_params):
    """One position later, behind the last token of the row."""
    module, ids = CONFIGS["BART"].build(), jnp.ones((1, 2), jnp.int32)
    params = make_params(module, 0, ids, ids)
    decoder_inputs = jnp.concatenate([jnp.array([[IDS[0, 8]], [IDS[1, 5]]]), IDS[:, :-1]], axis=1)
    expected = jax.jit(module.apply)({"params": params}, IDS, decoder_inputs, inputs_valid=VALID)

    def through_read(m):
        return m.token_embedding.scores(m.hidden_states(IDS, inputs_valid=VALID)).dense()

    said = jax.jit(lambda params: module.apply({"params": params}, method=through_read))(params)
    np.testing.assert_allclose(said, expected, atol=1e-5)


def test_a_gpt_still_predicts_tokens(make_params):
    config, ids = CONFIGS["GPT"], jnp.ones((1, 2), jnp.int32)
    module, params = config.build(), make_params(config.build(), 0, ids, ids)

    def through_read(m):
        return m.token_scores(m.hidden_states(IDS, inputs_valid=VALID)).dense()

    said = jax.jit(lambda params: module.apply({"params": params}, method=through_read))(params)
    expected = jax.jit(module.apply)({"params": params}, IDS, inputs_valid=VALID)
    np.testing.assert_allclose(said, expected, atol=1e-5)


def test_which_models_can_have_which():
    assert EncoderConfig.task_heads == ("classification", "multiple_choice", "tagging", "question_answering")
    assert T5Config.task_heads == T5DecoderConfig.task_heads == ()


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (
            BartConfig,
            {"heads": ("multiple_choice",)},
            "'multiple_choice' is not a head of BartConfig; choose among classif",
        ),
        (
            GptConfig,
            {"heads": ("tagging",)},
            "'tagging' is not a head of GptConfig; choose among classification, multiple",
        ),
        (GptConfig, {"heads": ("classification",) * 2}, "names one of them twice"),
        (
            BartConfig,
            {"heads": ("tagging",), "tied": False},
            r"take the place of an output .*\(tied=False, output_bias=F",
        ),
        (BartConfig, {"heads": ("tagging",), "output_bias": True}, "output_bias=True.*; set tied to True"),
    ],
)
def test_heads_that_do_not_fit(config, change, message):
    with pytest.raises(InputError, match=message):
        config(**change)
