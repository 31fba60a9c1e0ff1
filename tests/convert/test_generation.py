"""A folder's defaults of generation, and those that Transformers reads in the folders that we write."""

import json
from dataclasses import replace

import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.convert.generation import read_generation
from t5x_lite.data import Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.models import BartConfig, TransformerConfig

SIZES = {"embed_dim": 4, "num_heads": 2, "mlp_dim": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
BART = BartConfig(vocab_size=30, max_length=9, **SIZES)
VOCABULARY = Vocabulary(30, pad_id=1, eos_id=2)
STATED = {"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2}


def read(folder, config=None, generation=None):
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_generation(folder, STATED if config is None else config, BART, VOCABULARY)


def test_nothing_is_forced_where_nothing_is_said(tmp_path):
    assert read(tmp_path) == GenerationDefaults()


def test_all_that_is_said(tmp_path):
    stated = STATED | {
        "decoder_start_token_id": 7,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": [2, 5],
        # An id alone, EOS, which stays possible, and a word of several.
        "bad_words_ids": [[9], [2], [3], [4, 5]],
    }
    expected = GenerationDefaults(start_id=7, forced_first_id=0, forced_last_id=2, suppressed_ids=(3, 9))
    assert read(tmp_path, stated) == expected
    assert read(tmp_path, {}, stated) == expected


def test_the_file_of_its_own_is_read_alone(tmp_path):
    config = STATED | {"forced_bos_token_id": 0, "bad_words_ids": [[3]]}
    assert read(tmp_path, config, STATED) == GenerationDefaults()
    assert read(tmp_path, config, {"pad_token_id": 1}) == GenerationDefaults(ends=False)


@pytest.mark.parametrize("eos", [None, 30, [], True])
def test_what_is_no_id_ends_no_text(tmp_path, eos):
    assert read(tmp_path, STATED | {"eos_token_id": eos}) == GenerationDefaults(ends=False)


@pytest.fixture
def export(tmp_path, params_of):
    def write(config, generation=None):
        export_folder(tmp_path, config, params_of(config), None, generation=generation)
        return tmp_path

    return write


@pytest.mark.parametrize(
    "generation",
    [None, GenerationDefaults(forced_first_id=0, forced_last_id=2, suppressed_ids=(3, 9))],
)
def test_exports_say_the_same_to_transformers(export, generation, transformers):
    """Its config of a BART or a Marian forces EOS at the end unless config.json has another value."""
    folder = export(BART, generation)
    assert import_folder(folder).generation == (generation or GenerationDefaults())
    theirs = transformers.BartForConditionalGeneration.from_pretrained(folder).generation_config
    expected = generation or GenerationDefaults()
    assert (theirs.forced_bos_token_id, theirs.forced_eos_token_id) == (
        expected.forced_first_id,
        expected.forced_last_id,
    )
    assert (theirs.bad_words_ids or []) == [[token_id] for token_id in expected.suppressed_ids]
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.decoder_start_token_id) == (1, 2, 2)


def test_a_start_of_its_own_is_the_models(export):
    config = replace(TransformerConfig(vocab_size=30, max_length=9, **SIZES), start_id=5)
    imported = import_folder(export(config))
    assert imported.config == config
    assert imported.generation == GenerationDefaults()


def test_what_theirs_forces_by_itself_is_read(tmp_path, transformers):
    sizes = {
        f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads", "ffn_dim")
    }
    config = transformers.BartConfig(vocab_size=30, d_model=4, max_position_embeddings=9, **sizes)
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path)
    assert import_folder(tmp_path).generation == GenerationDefaults(forced_last_id=2)
    (tmp_path / "generation_config.json").unlink()
    assert import_folder(tmp_path).generation == GenerationDefaults(forced_last_id=2)
