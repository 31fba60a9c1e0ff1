"""MASS: what the encoder reads and what the decoder sees of a row (Song et al. 2019, section 3.2 and figure 1)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, BertConfig, GptConfig, RecurrentConfig, T5Config
from t5x_lite.objectives import MaskedSequenceToSequence, corrupt_rows
from t5x_lite.tokenizers.vocabulary import Vocabulary

from ..programs import like_new

VOCABULARY = Vocabulary(size=60, pad_id=1, eos_id=2, unk_id=3, cls_id=0, sep_id=2, mask_id=59)
OBJECTIVE = MaskedSequenceToSequence(13).for_vocabulary(VOCABULARY)
ROWS = 4000
RAW = np.random.default_rng(0).integers(4, 59, (ROWS, 12)).astype(np.int32)
BART = BartConfig(
    vocab_size=60,
    embed_dim=12,
    num_heads=3,
    mlp_dim=17,
    num_encoder_layers=1,
    num_decoder_layers=1,
    max_length=16,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)


@pytest.fixture(scope="module")
def features():
    corrupt = jax.jit(lambda rows: corrupt_rows(OBJECTIVE, jax.random.key(0), {"ids": rows}))
    return jax.device_get(corrupt(RAW))


def test_half_of_a_row_is_one_span_at_any_place(features):
    starts = features["decoder_positions"][:, 0]
    np.testing.assert_array_equal(features["decoder_positions"], starts[:, None] + np.arange(6))
    counts = np.bincount(starts, minlength=7)
    assert counts.shape == (7,)
    assert np.abs(counts - ROWS / 7).max() < 5 * np.sqrt(ROWS / 7)
    at = features["decoder_positions"]
    np.testing.assert_array_equal(features["targets"], np.take_along_axis(RAW, at, axis=1))


def test_the_encoder_sees_the_rest_and_80_10_10_of_the_span(features):
    inputs, at = features["inputs"], features["decoder_positions"]
    assert (inputs[:, -1] == 2).all()
    hidden = np.zeros(RAW.shape, bool)
    np.put_along_axis(hidden, at, True, axis=1)
    np.testing.assert_array_equal(inputs[:, :-1][~hidden], RAW[~hidden])
    shown, count = inputs[:, :-1][hidden], hidden.sum()
    is_mask, as_it_is = shown == 59, shown == RAW[hidden]
    assert abs(is_mask.mean() - 0.8) < 5 * np.sqrt(0.16 / count)
    assert abs(as_it_is.mean() - 0.1 - 0.1 / 55) < 5 * np.sqrt(0.09 / count)


def test_the_decoder_reads_the_token_before_each_target(features):
    at = features["decoder_positions"]
    before = np.where(at > 0, np.take_along_axis(RAW, np.maximum(at - 1, 0), axis=1), -1)
    np.testing.assert_array_equal(features["decoder_inputs"], before)


def loss_of(params, features):
    return OBJECTIVE.loss(BART.build(), params, features, None)


def test_the_loss_is_that_of_the_span_at_its_positions(features):
    """The decoder's tables of positions are read where the span was."""
    params = like_new(BART, 1)
    few = jax.tree.map(lambda x: jnp.asarray(x[:3]), features)
    total, weight, _ = jax.jit(loss_of)(params, few)
    assert weight == 3 * 6
    gradient = jax.jit(jax.grad(lambda params: loss_of(params, few)[0]))(params)
    rows = np.abs(gradient["decoder_embeddings"]["position"]["embedding"]).max(axis=1) > 0
    assert set(np.flatnonzero(rows) - BART.position_offset) == set(
        np.asarray(few["decoder_positions"]).ravel().tolist()
    )
    start = np.where(few["decoder_inputs"] < 0, 2, few["decoder_inputs"])  # BART begins with EOS
    apply = jax.jit(BART.build().apply)
    logits = apply({"params": params}, few["inputs"], jnp.asarray(start), decoder_positions=few["decoder_positions"])
    log_probs = np.take_along_axis(
        np.asarray(jax.nn.log_softmax(logits)), np.asarray(few["targets"])[..., None], axis=2
    )
    assert float(total) == pytest.approx(-log_probs.sum(), rel=1e-5)
    predicted = jax.jit(lambda params: OBJECTIVE.predict(BART.build(), params, few))(params)
    np.testing.assert_array_equal(predicted, np.argmax(logits, axis=-1))


def test_where_there_is_no_mask_token_the_first_sentinel_is():
    t5 = Vocabulary(size=60, first_sentinel_id=59, num_sentinels=2)
    objective = replace(OBJECTIVE, random_share=0.0, mask_share=1.0).for_vocabulary(t5)
    features = corrupt_rows(objective, jax.random.key(0), {"ids": RAW[:5]})
    assert (np.asarray(features["inputs"]) == 59).sum() == 5 * 6
    with pytest.raises(InputError, match="has no mask token and no sentinels"):
        OBJECTIVE.for_vocabulary(Vocabulary(size=60))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (GptConfig(vocab_size=60, max_length=64), "GptConfig, whose decoder does not begin at any position"),
        (RecurrentConfig(vocab_size=60), "RecurrentConfig, whose decoder does not begin at any position"),
        (BertConfig(vocab_size=60), "BertConfig, an encoder"),
        (replace(BART, max_length=12), "exceeds model.max_length=12"),
    ],
)
def test_other_models_are_refused(model, message):
    with pytest.raises(InputError, match=message):
        OBJECTIVE.check_model(model)
    OBJECTIVE.check_model(T5Config(vocab_size=60))


def test_shares_above_one_are_refused():
    with pytest.raises(InputError, match="mask_share=0.8 and random_share=0.3 are more than 1 together"):
        MaskedSequenceToSequence(random_share=0.3)
