"""A run to Hugging Face's names and back, for every family."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_lite
from t5x_lite import objectives
from t5x_lite.convert import export_folder, import_t5x
from t5x_lite.data import ByteLevelBPE, Vocabulary, make_tokenizer
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.models import BartConfig, GptConfig, TransformerConfig
from t5x_lite.objectives import (
    BartDenoising,
    CausalLanguageModel,
    MaskedLanguageModel,
    NextSentencePrediction,
    SentenceOrderPrediction,
    SequenceToSequence,
)
from t5x_lite.objectives.base import NoObjective
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files

from ..slow import mostly_slow
from ..t5x_checkpoints import tree, write_file

OBJECTIVES = {
    "bert": NextSentencePrediction,
    "spanbert": MaskedLanguageModel,
    "roberta": MaskedLanguageModel,
    "xlm-roberta": MaskedLanguageModel,
    "albert": SentenceOrderPrediction,
    "distilbert": MaskedLanguageModel,
}


@pytest.mark.parametrize("family", mostly_slow(OBJECTIVES, "bert", "roberta"))
def test_there_and_back(run, make_run, tmp_path, family):
    status, out, err = run("convert", make_run(family), tmp_path / "theirs")
    assert (status, err) == (0, "")
    assert ("left out: the span-boundary head" in out) == (family == "spanbert")
    status, _, err = run("convert", tmp_path / "theirs", tmp_path / "ours")
    assert (status, err) == (0, "")
    before, after = t5x_lite.load(make_run(family)), t5x_lite.load(tmp_path / "ours")
    kept = {name: value for name, value in before.params.items() if name != "span_boundary"}
    jax.tree.map(np.testing.assert_array_equal, after.params, kept)
    heads = tuple(head for head in before.config.heads if head != "span_boundary")
    assert after.config == replace(before.config, heads=heads)
    assert type(after.experiment.objective) is OBJECTIVES[family]
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    if family in ("bert", "albert"):
        masked = f"The {before.tokenizer.mask_token} stands on the wall"
        assert after.fill_mask(masked) == before.fill_mask(masked)


SHAPE = {"embed_dim": 6, "num_heads": 2, "mlp_dim": 24, "max_length": 9}
WRITERS = {
    "bart": (
        BartConfig(270, **SHAPE, num_encoder_layers=1, num_decoder_layers=2),
        ByteLevelBPE(270),
        BartDenoising(9),
    ),
    "marian": (
        TransformerConfig(270, **SHAPE, num_encoder_layers=2, num_decoder_layers=1),
        ByteLevelBPE(270),
        SequenceToSequence(9, 9),
    ),
    "gpt2": (GptConfig(270, **SHAPE, num_layers=2), ByteLevelBPE(270, layout="gpt2"), CausalLanguageModel(9)),
    "openai-gpt": (GptConfig(270, **SHAPE, num_layers=2, norm_first=False), ByteLevelBPE(270), CausalLanguageModel(9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", WRITERS)
def test_models_that_write_text_there_and_back(run, make_params, tmp_path, family):
    config, of_tokenizer, objective = WRITERS[family]
    tokenizer = make_tokenizer(of_tokenizer, lambda: iter(["the wall stands"] * 9))
    params = make_params(config.build(), 0, *[jnp.ones((1, 2), jnp.int32)] * 2)
    export_folder(tmp_path / "theirs", config, params, tokenizer)
    assert run("convert", tmp_path / "theirs", tmp_path / "ours")[0] == 0
    ours = t5x_lite.load(tmp_path / "ours")
    assert (ours.config, ours.experiment.objective) == (config, objective)
    jax.tree.map(np.testing.assert_array_equal, ours.params, params)
    assert run("convert", tmp_path / "ours", tmp_path / "again")[0] == 0
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()


@pytest.mark.parametrize(
    "family",
    [name if name == "marian" else pytest.param(name, marks=pytest.mark.slow) for name in WRITERS],
)
def test_what_a_folder_says_of_writing_stays_with_the_run(run, make_params, tmp_path, family):
    """Without a tokenizer too: forced and suppressed ids, an own start, what pads and what ends."""
    config = WRITERS[family][0]
    params = make_params(config.build(), 0, *[jnp.ones((1, 2), jnp.int32)] * 2)
    vocabulary = Vocabulary(config.vocab_size, pad_id=5, eos_id=7)
    says = GenerationDefaults(forced_first_id=9, forced_last_id=7, suppressed_ids=(5, 11))
    if isinstance(config, GptConfig):
        says = GenerationDefaults(ends=False)
    elif family == "marian":
        config = replace(config, start_id=8)
    export_folder(tmp_path / "theirs", config, params, None, vocabulary=vocabulary, generation=says)
    theirs = t5x_lite.load(tmp_path / "theirs")
    assert theirs.generation == says
    assert run("convert", tmp_path / "theirs", tmp_path / "ours")[0] == 0
    ours = t5x_lite.load(tmp_path / "ours")
    inputs = [[20, 21, 7], [22, 7]]
    for beams in (1, 2):
        expected = theirs.generate_ids(inputs, max_length=4, num_beams=beams)
        np.testing.assert_array_equal(ours.generate_ids(inputs, max_length=4, num_beams=beams), expected)
    assert run("convert", tmp_path / "ours", tmp_path / "again")[0] == 0
    assert (tmp_path / "again/config.json").read_bytes() == (tmp_path / "theirs/config.json").read_bytes()
    assert t5x_lite.load(tmp_path / "again").generation == says


@pytest.mark.slow
def test_of_a_pair_one_network(run, make_run, tmp_path):
    pair = t5x_lite.load(make_run("electra"))
    status, out, _ = run("convert", make_run("electra"), tmp_path / "theirs")
    assert status == 0
    assert "left out: the generator, which --part generator converts" in out
    discriminator = t5x_lite.load(tmp_path / "theirs")
    assert discriminator.config == pair.config.discriminator
    assert discriminator.detect_replacements("the wall") == pair.detect_replacements("the wall")
    assert run("convert", make_run("electra"), tmp_path / "other", "--part", "generator")[0] == 0
    assert t5x_lite.load(tmp_path / "other").fill_mask("the [MASK]") == pair.fill_mask("the [MASK]")
    # No objective trains a discriminator by itself.
    assert run("convert", tmp_path / "theirs", tmp_path / "ours")[0] == 0
    assert t5x_lite.load(tmp_path / "ours").experiment.objective == NoObjective()


@pytest.mark.slow
def test_an_encoder_without_heads(run, make_run, experiments, make_params, tmp_path):
    # A checkpoint is read with the classes that have been imported, and that is what the room imports.
    assert "NoObjective" in objectives.__all__
    model = replace(experiments["bert"].model, heads=())
    experiment = replace(experiments["bert"], model=model, objective=NoObjective())
    params = make_params(model.build(), 0, *[jnp.ones((1, 2), jnp.int32)] * 2)
    files = tokenizer_files(make_run("bert") / "tokenizer")
    write_checkpoint(tmp_path / "run" / "checkpoints", 0, experiment, files, params)
    for src, dst in (("run", "theirs"), ("theirs", "ours")):
        assert run("convert", tmp_path / src, tmp_path / dst)[0] == 0
    before, after = t5x_lite.load(tmp_path / "run"), t5x_lite.load(tmp_path / "ours")
    assert after.config == model
    np.testing.assert_array_equal(after.encode("the wall"), before.encode("the wall"))
    status, _, err = run("evaluate", tmp_path / "ours")
    assert status == 2
    assert "came without the heads of an objective" in err
    assert err.count("\n") == 1


def test_a_part_of_what_is_no_pair(run, make_run, tmp_path):
    status, _, err = run("convert", make_run("bert"), tmp_path / "theirs", "--part", "generator")
    assert (status, err.count("\n")) == (2, 1)
    assert "part=generator" in err
    assert "leave --part out" in err
    assert not (tmp_path / "theirs").exists()
    status, _, err = run("convert", make_run("electra"), tmp_path / "theirs", "--part", "decoder")
    assert status == 2
    assert "--part" in err


def test_a_checkpoint_of_t5x(run, tmp_path):
    """Into a run, with the tokenizer that one names, and from there to Hugging Face."""
    write_file(tmp_path / "checkpoint_7", tree(gated=True, vocab_size=300))
    tokenizer = make_tokenizer(ByteLevelBPE(290, layout="gpt2"), lambda: iter(["the wall"]))
    tokenizer.save(tmp_path / "tokenizer")
    options = ("--tokenizer", tmp_path / "tokenizer" / "tokenizer.json")
    status, _, err = run("convert", tmp_path, tmp_path / "run", *options)
    assert status == 0, err
    status, _, err = run("convert", tmp_path / "run", tmp_path / "exported")
    assert status == 0, err
    again = t5x_lite.load(tmp_path / "exported")
    assert again.tokenizer.encode("the wall") == tokenizer.encode("the wall")
    expected = import_t5x(tmp_path / "checkpoint_7").params
    jax.tree.map(np.testing.assert_array_equal, again.params, expected)
    status, _, err = run("convert", tmp_path / "run", tmp_path / "other", *options)
    assert status == 2
    assert "has its own tokenizer; leave tokenizer out" in err
