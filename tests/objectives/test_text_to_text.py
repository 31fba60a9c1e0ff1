"""What all objectives that ask for a text have in common."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, BertConfig, ElectraConfig, ElectraPairConfig, GptConfig, T5Config
from t5x_lite.objectives import (
    BartDenoising,
    BertStyleDenoising,
    Deshuffling,
    DropTokens,
    MassStyleDenoising,
    PrefixLanguageModel,
    ReplaceSpans,
    SequenceToSequence,
    SpanCorruption,
    corrupt_rows,
)
from t5x_lite.objectives.text_to_text import kept_ids

PAD, EOS, UNK = 0, 1, 2
VOCABULARY = Vocabulary(120, PAD, EOS, UNK, first_sentinel_id=119, num_sentinels=15)
OBJECTIVES = {
    "prefix": PrefixLanguageModel(30),
    "BERT": BertStyleDenoising(30, noise_density=0.3, random_share=0.5),
    "MASS": MassStyleDenoising(30, noise_density=0.3),
    "deshuffling": Deshuffling(30),
    "replace": ReplaceSpans(30, noise_density=0.3),
    "drop": DropTokens(30, noise_density=0.3),
    "spans": SpanCorruption(30, noise_density=0.3),
}


@pytest.fixture(scope="module", params=OBJECTIVES)
def objective(request):
    return OBJECTIVES[request.param].for_vocabulary(VOCABULARY)


@pytest.fixture(scope="module")
def corrupt(objective):
    return jax.jit(lambda key, raw, first: corrupt_rows(objective, key, {"ids": raw}, first))


@pytest.fixture(scope="module")
def raw(objective):
    """Rows in which documents end, and unknown tokens stand."""
    raw = np.random.default_rng(0).integers(3, 100, size=(300, objective.layout.spec["ids"].size)).astype(np.int32)
    raw[:, 9], raw[:, 17] = EOS, UNK
    return raw


def test_sides_end_with_eos_and_then_padding(objective, corrupt, raw):
    features = corrupt(jax.random.key(0), raw, 0)
    for name, length in (("inputs", objective.input_length), ("targets", objective.target_length)):
        side = np.asarray(features[name])
        assert side.shape == (300, length)
        size = length - (side == PAD).sum(1)
        assert (size > 1).all()
        for row, end in zip(side, size, strict=True):
            assert row[end - 1] == EOS
            assert (row[end:] == PAD).all()
        if name == "inputs" and not objective.pads_inputs:
            assert (size == length).all()


def test_jit_of_vmap_equals_row_by_row(objective, corrupt, raw):
    key = jax.random.key(5)
    batch, corrupt_row = corrupt(key, raw, 10), jax.jit(objective.corrupt)
    for row in range(3):
        alone = corrupt_row(jax.random.fold_in(key, 10 + row), {"ids": raw[row]})
        for name, value in alone.items():
            np.testing.assert_array_equal(batch[name][row], value)


def test_the_key_decides(corrupt, raw):
    same = np.tile(raw[:1], (20, 1))
    first, again, other = (corrupt(jax.random.key(seed), same, 0) for seed in (0, 0, 1))
    pairs = [tuple(map(bytes, map(np.asarray, row))) for row in zip(first["inputs"], first["targets"], strict=True)]
    assert len(set(pairs)) > 10
    np.testing.assert_array_equal(first["inputs"], again["inputs"])
    assert (np.asarray(first["inputs"]) != np.asarray(other["inputs"])).any()


def test_rows_of_another_length(objective, raw):
    with pytest.raises(ValueError, match="columns .* takes"):
        objective.corrupt(jax.random.key(0), {"ids": jnp.asarray(raw[0, 1:])})


def test_kept_ids_that_are_too_many_are_cut_before_eos():
    row = jnp.arange(10, 16)
    assert kept_ids(row, row > 0, EOS, PAD, 4).tolist() == [10, 11, 12, EOS]
    assert kept_ids(row, row > 15, EOS, PAD, 3).tolist() == [EOS, PAD, PAD]


BERT, BART = BertConfig(vocab_size=120), BartConfig(vocab_size=120, max_length=32)
GPT, T5 = GptConfig(vocab_size=120, max_length=64), T5Config()
PAIR = ElectraPairConfig(
    ElectraConfig(vocab_size=9, heads=("masked_lm",)), ElectraConfig(vocab_size=9, heads=("replaced_token",))
)


@pytest.mark.parametrize(
    ("objective", "model", "message"),
    [
        (
            Deshuffling(32),
            BERT,
            "a BertConfig, an encoder; Deshuffling trains an encoder-decoder or a decoder",
        ),
        (SequenceToSequence(8, 8), PAIR, "model is a ElectraPairConfig, an encoder; SequenceToSequence"),
        (PrefixLanguageModel(33), BART, "input_length=33 with targets of 33 ids exceeds model.max_length=32"),
        (SequenceToSequence(9, 40), BART, "input_length=9 with targets of 40 ids exceeds model.max_length=32"),
        (PrefixLanguageModel(33), GPT, "targets of 33 ids, 65 together, exceeds model.max_length=64; choose shorter"),
        (SequenceToSequence(8, 8), GPT, "packed=True does not go with a GptConfig.*set objective.packed to False"),
    ],
)
def test_models_that_do_not_fit(objective, model, message):
    with pytest.raises(InputError, match=message):
        objective.check_model(model)


@pytest.mark.parametrize(
    ("objective", "model"),
    [
        (PrefixLanguageModel(32), BART),
        (PrefixLanguageModel(32), GPT),
        (SequenceToSequence(8, 57, packed=False), GPT),
        (BartDenoising(2000), T5),
        (SpanCorruption(50), GPT),
        (SpanCorruption(50), replace(BART, max_length=50)),
    ],
)
def test_models_that_fit(objective, model):
    """An encoder never does; one that ends before the rows do not either, which one of relative positions cannot."""
    assert objective.check_model(model) is None
    with pytest.raises(InputError, match="model is a BertConfig"):
        objective.check_model(BertConfig(vocab_size=100))
    if model is not T5:
        with pytest.raises(InputError, match="max_length=2"):
            objective.check_model(replace(model, max_length=2))


@pytest.mark.parametrize("kind", [Deshuffling, PrefixLanguageModel, SequenceToSequence, BartDenoising, DropTokens])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_length": 1}, "input_length=1 is too short for a row"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0 is not in"),
        ({"label_smoothing": float("nan")}, "label_smoothing=nan"),
        ({"z_loss": -1e-4}, "z_loss=-0.0001 is not in .0, inf.; choose 0"),
    ],
)
def test_fields_out_of_range(kind, change, message):
    with pytest.raises(InputError, match=message):
        kind(**change)
