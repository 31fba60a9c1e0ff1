"""Recurrent encoder-decoders: the same whether a text is read whole or token by token, with padding or without."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.decoding import BeamSearch, Greedy, decode
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, RecurrentConfig, num_params
from t5x_lite.objectives import SequenceToSequence

from ..programs import like_new
from ..slow import mostly_slow

TINY = RecurrentConfig(vocab_size=40, embed_dim=7, units=5, initial_scale=0.5)
KINDS = {
    "sutskever": replace(TINY, attention="none", reverse_inputs=True),
    "bahdanau": replace(
        TINY,
        cell="gru",
        attention="additive",
        num_encoder_layers=1,
        num_decoder_layers=1,
        bidirectional=1,
        maxout_units=6,
        alignment_units=3,
    ),
    "dot": replace(TINY, attention="dot", num_encoder_layers=1, shared_embedding=True),
    "general, fed": replace(TINY, bidirectional=2, input_feeding=True),
    "concat, local": replace(TINY, cell="gru", attention="concat", window=2),
    "gnmt": replace(
        TINY, attention="concat", bidirectional=1, residual=True, num_encoder_layers=3, num_decoder_layers=4
    ),
}
INPUTS = np.random.default_rng(0).integers(3, 40, (3, 6)).astype(np.int32)
LENGTHS = np.array([6, 3, 1])
VALID = np.arange(6) < LENGTHS[:, None]
TARGETS = np.random.default_rng(1).integers(3, 40, (3, 5)).astype(np.int32)


@pytest.fixture(scope="module", params=mostly_slow(KINDS, "bahdanau", "general, fed"))
def model(request):
    config = KINDS[request.param]
    random, params = np.random.default_rng(2), like_new(config)
    moved = jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.1, x.shape), jnp.float32), params)
    return config.build(), moved


@jax.jit(static_argnums=0)
def logits_of(module, params, inputs, targets, valid):
    return module.apply({"params": params}, inputs, targets, inputs_valid=valid)


@pytest.fixture(scope="module")
def logits(model):
    return logits_of(*model, INPUTS, TARGETS, VALID)


def test_padding_does_not_matter(model, logits):
    for row in (1, 2):
        length = LENGTHS[row]
        alone = logits_of(*model, INPUTS[row : row + 1, :length], TARGETS[row : row + 1], VALID[row : row + 1, :length])
        np.testing.assert_allclose(alone[0], logits[row], atol=1e-6)


def test_token_by_token_with_a_state_is_teacher_forced(model, logits):
    """Of two sequences an input, one of which goes on from the other's state."""
    module, params = model
    start = jax.jit(
        lambda params: module.apply(
            {"params": params},
            jnp.asarray(INPUTS),
            inputs_valid=jnp.asarray(VALID),
            max_length=5,
            method="start_decoding",
        )
    )
    step = jax.jit(
        lambda params, ids, cache: module.apply({"params": params}, ids, cache, jnp.int32(0), method="decode_step")
    )
    cache, written = start(params).repeat(2), []
    for n in range(5):
        ids = np.repeat(TARGETS[:, n : n + 1], 2, axis=0)
        if n == 2:
            ids[1::2] = 3  # the second of each goes astray
        if n == 3:
            cache = cache.take(jnp.array([0, 0, 2, 2, 4, 4]))
        one, cache = step(params, jnp.asarray(ids), cache)
        written.append(one)
    written = jnp.concatenate(written, axis=1)
    np.testing.assert_allclose(written[0::2], logits, atol=1e-6)
    np.testing.assert_allclose(written[1::2, 3:], logits[:, 3:], atol=1e-6)
    assert np.abs(written[1::2, 2] - logits[:, 2]).max() > 1e-3


def test_no_target_sees_a_later_one(model):
    """Of the targets 30 to 34, which no input has, the second output has seen two."""
    module, params = model
    table = "token_embedding" if module.config.shared_embedding else "decoder_token_embedding"
    targets = np.tile(np.arange(30, 35, dtype=np.int32), (3, 1))

    def loss(embedding):
        given = params | {table: {"embedding": embedding}}
        return (logits_of(module, given, INPUTS % 30, targets, VALID)[:, 1] ** 2).sum()

    gradient = np.abs(jax.grad(loss)(params[table]["embedding"])).max(axis=1)
    assert (gradient[[32, 33, 34]] == 0).all()
    assert (gradient[[30, 31]] > 0).all()


def test_every_parameter_is_trained(model):
    module, params = model
    loss = jax.jit(jax.grad(lambda params: (logits_of(module, params, INPUTS, TARGETS, VALID) ** 2).sum()))
    for path, gradient in jax.tree.leaves_with_path(loss(params)):
        assert np.abs(gradient).max() > 0, jax.tree_util.keystr(path)


@pytest.mark.parametrize("method", [Greedy(), BeamSearch(3, num_results=2)], ids=["greedy", "beams"])
def test_it_writes_texts_whose_scores_are_its_own(model, method):
    module, params = model
    decoded = decode(
        module,
        params,
        jnp.asarray(INPUTS),
        method=method,
        start_ids=jnp.zeros(3, jnp.int32),
        max_length=4,
        inputs_valid=jnp.asarray(VALID),
        eos_id=None,
        pad_id=0,
    )
    for one in range(method.num_results):
        ids = np.asarray(decoded.ids[:, one])
        read = np.pad(ids[:, :-1], ((0, 0), (1, 0)))
        log_probs = jax.nn.log_softmax(logits_of(module, params, INPUTS, read, VALID))
        scores = np.take_along_axis(np.asarray(log_probs), ids[..., None], axis=2).sum((1, 2))
        penalty = method.length_penalty(4) if isinstance(method, BeamSearch) else 1.0
        np.testing.assert_allclose(decoded.scores[:, one], scores / penalty, rtol=1e-4)


def test_reversed_inputs_are_read_from_their_end():
    config = KINDS["sutskever"]
    params = like_new(config)
    backwards = np.where(VALID, np.take_along_axis(INPUTS, (LENGTHS[:, None] - 1 - np.arange(6)) % 6, axis=1), 0)
    forward = replace(config, reverse_inputs=False).build()
    expected = logits_of(forward, params, backwards, TARGETS, VALID)
    np.testing.assert_allclose(logits_of(config.build(), params, INPUTS, TARGETS, VALID), expected, atol=1e-6)


def test_dropout_follows_its_key():
    config = replace(KINDS["gnmt"], dropout_rate=0.5)
    params, module = like_new(config), config.build()

    @jax.jit
    def dropped(key):
        options = {"inputs_valid": jnp.asarray(VALID), "deterministic": False, "rngs": {"dropout": key}}
        return module.apply({"params": params}, jnp.asarray(INPUTS), jnp.asarray(TARGETS), **options)

    first, again, other = dropped(jax.random.key(1)), dropped(jax.random.key(1)), dropped(jax.random.key(2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(logits_of(module, params, INPUTS, TARGETS, VALID) - first).max() > 1e-3


def test_half_precision_is_near(model, logits):
    module, params = model
    half = logits_of(module.config.build(dtype=jnp.bfloat16), params, INPUTS, TARGETS, VALID)
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, logits, atol=0.1 * np.abs(logits).max())


def test_the_papers_sizes():
    """Of Sutskever et al. 64 M parameters are recurrent: four layers of 8 M in each of two stacks (section 3.4)."""
    shapes = jax.eval_shape(
        PRESETS["rnn-sutskever"].build().init, jax.random.key(0), *PRESETS["rnn-sutskever"].abstract_inputs()
    )
    params = nn.unbox(shapes["params"])
    matrices = jax.tree.leaves((params["encoder"], params["decoder"]))
    assert sum(leaf.size for leaf in matrices if leaf.ndim == 2) == 64_000_000
    # 160 M of the published 384 M are the table of 160,000 source words; ours has 80,000 rows.
    assert num_params(PRESETS["rnn-sutskever"]) == 304_000_000 + 8 * 4_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bidirectional": 3}, "bidirectional=3 exceeds num_encoder_layers=2"),
        (
            {"residual": True, "bidirectional": 2, "num_encoder_layers": 3},
            "bidirectional=2 with residual=True adds 10 features to the 5 .* choose 0, 1 or 3",
        ),
        ({"attention": "additive", "input_feeding": True}, "attention='additive' goes with neither"),
        ({"attention": "none", "window": 3}, "attention='none' has neither"),
        ({"attention": "dot", "bidirectional": 2}, "attention='dot' compares 5 units with the encoder's 10"),
        ({"units": 0}, "units=0"),
        ({"num_decoder_layers": 1001}, r"num_decoder_layers=1001 is not in \[1, 1000\]"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(TINY, **changes)


def test_what_it_does_not_do_is_refused_and_not_ignored():
    with pytest.raises(InputError, match="remat='full': the layers of a RecurrentConfig keep what they compute"):
        TINY.build(remat="full")


def test_packed_rows_are_refused():
    objective = SequenceToSequence(8, 8)
    with pytest.raises(InputError, match="packed=True does not go with a RecurrentConfig, .* set objective.packed to"):
        objective.check_model(TINY)
    replace(objective, packed=False).check_model(TINY)
