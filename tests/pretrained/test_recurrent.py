"""A recurrent encoder-decoder in a notebook: the methods of encoder-decoders, and its alignment as a map."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Bytes, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import RecurrentConfig
from t5x_lite.pretrained.decoders import PretrainedEncoderDecoder

from ..programs import like_new

CONFIG = RecurrentConfig(vocab_size=280, embed_dim=8, units=6, bidirectional=1, num_encoder_layers=1, initial_scale=0.5)


def opened(config):
    return PretrainedEncoderDecoder(config, config.build(), like_new(config), make_tokenizer(Bytes(extra_ids=0), iter))


@pytest.fixture(scope="module")
def model():
    return opened(CONFIG)


def test_what_it_writes_is_the_likeliest_by_its_logits(model):
    inputs = jnp.array([[70, 71, 1, 0, 0], [80, 81, 82, 83, 1]])
    written = model.generate_ids([[70, 71, 1], [80, 81, 82, 83, 1]], max_length=6)
    logits = model(inputs, jnp.asarray(np.where(written == 0, 1, written)))
    ends = np.cumsum(written == 1, axis=1) - (written == 1)
    assert (np.argmax(logits, axis=-1) == written)[ends == 0].all()
    beams = model.generate_ids([[70, 71, 1]], max_length=6, num_beams=3)
    assert beams.shape == (1, 6)


def test_its_alignment_is_the_weights_of_its_only_attention(model):
    (alignment,) = model.attention("abc", "xy").maps
    assert repr(alignment) == "cross: 1 layers of 1 heads, 3 tokens look at 4"
    np.testing.assert_allclose(alignment.weights.sum(axis=-1), 1, rtol=1e-5)
    longer = model.attention(["abc", "abcdefgh"], ["xy", "xy"])[0].maps[0].weights
    np.testing.assert_allclose(longer, alignment.weights, rtol=1e-4)


def test_texts_have_the_encoders_vectors(model):
    assert model.encode(["ab", "c"]).shape == (2, 12)
    assert opened(replace(CONFIG, attention="none")).encode(["ab", "c"]).shape == (2, 12)


def test_what_it_lacks_is_refused(model, tmp_path):
    without = opened(replace(CONFIG, attention="none"))
    with pytest.raises(InputError, match="a RecurrentConfig has no attention; use generate"):
        without.attention("abc", "xy")
    with pytest.raises(InputError, match="a RecurrentConfig has no vectors of positions"):
        model.plot_positions()
    with pytest.raises(InputError, match="RecurrentConfig has no Hugging Face counterpart"):
        model.export(tmp_path / "theirs")
