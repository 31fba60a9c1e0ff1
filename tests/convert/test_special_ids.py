"""A folder's config.json and its tokenizer agree."""

import json

import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.convert.generation import special_ids
from t5x_lite.data import ByteLevelBPE, SentencePiece, WordPiece, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, AlbertConfig, BertConfig, RobertaConfig

SIZES = {"vocab_size": 400, "embed_dim": 4, "num_heads": 2, "mlp_dim": 5, "num_layers": 1, "max_length": 6}


@pytest.fixture(scope="module")
def tokenizer(request):
    texts = [f"{i} the model reads a row of ids and writes another one {i * i}" for i in range(50)]
    return make_tokenizer(request.param, lambda: iter(texts))


@pytest.fixture
def export(tmp_path, params_of):
    def write(config, tokenizer):
        params = params_of(config)
        export_folder(tmp_path, config, params, tokenizer)
        return tmp_path, json.loads((tmp_path / "config.json").read_text())

    return write


@pytest.mark.parametrize(
    ("tokenizer", "config", "expected"),
    [
        (WordPiece(100), BertConfig(**SIZES), {"model_type": "bert", "pad_token_id": "pad_id"}),
        (
            ByteLevelBPE(300),
            RobertaConfig(**SIZES),
            {"model_type": "roberta", "pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"},
        ),
        (
            SentencePiece(60, layout="xlm-roberta"),
            RobertaConfig(**SIZES),
            {"model_type": "xlm-roberta", "pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"},
        ),
        (
            SentencePiece(60, layout="albert"),
            AlbertConfig(**SIZES),
            {"model_type": "albert", "pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"},
        ),
    ],
    indirect=["tokenizer"],
)
def test_model_and_tokenizer_travel_together(export, tokenizer, config, expected):
    folder, described = export(config, tokenizer)
    expected = {name: getattr(tokenizer.vocabulary, value, value) for name, value in expected.items()}
    assert {name: described[name] for name in expected} == expected
    imported = import_folder(folder)
    assert imported.config == config
    assert imported.tokenizer.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("tokenizer", [WordPiece(100)], indirect=True)
def test_the_tokenizers_ids_go_before_the_published_ones(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert vocabulary.sep_id != 77
    assert special_ids(tokenizer.vocabulary, bos_token_id=77, eos_token_id=77) == {
        "bos_token_id": vocabulary.cls_id,
        "eos_token_id": vocabulary.sep_id,
    }
    assert special_ids(None, bos_token_id=77) == {"bos_token_id": 77}


@pytest.mark.parametrize("tokenizer", [WordPiece(100)], indirect=True)
def test_positions_are_counted_by_the_padding_of_the_tokenizer(export, tokenizer):
    folder, _ = export(RobertaConfig(**SIZES, pad_id=5), tokenizer)
    with pytest.raises(InputError, match=f"pads with id {tokenizer.vocabulary.pad_id}, .* from pad_id=5"):
        import_folder(folder)


@pytest.mark.parametrize(
    ("vocab_size", "family"), [(PRESETS["xlm-roberta-base"].vocab_size, "xlm-roberta"), (400, "roberta")]
)
def test_without_a_tokenizer_xlm_r_is_told_by_its_vocabulary(export, vocab_size, family):
    config = RobertaConfig(**SIZES | {"vocab_size": vocab_size, "embed_dim": 2}, heads=("masked_lm",))
    folder, described = export(config, None)
    assert described["model_type"] == family
    assert described["architectures"] == [f"{'XLM' if family != 'roberta' else ''}RobertaForMaskedLM"]
    assert import_folder(folder).config == config
