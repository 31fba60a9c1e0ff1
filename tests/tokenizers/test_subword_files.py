import json

import pytest

from t5x_lite.data import ByteLevelBPE, TokenizerFile, WordPiece, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import is_trained, saved_config
from t5x_lite.tokenizers.subword import special_tokens

TEXT = "The Model, réads a row of ids!"


def opened(config):
    return make_tokenizer(config, lambda: iter(()))


@pytest.fixture(scope="module")
def cased(corpus):
    texts = [text.title() + " ré " + text for text in corpus.texts]
    return make_tokenizer(WordPiece(300, lowercase=False), lambda: iter(texts))


@pytest.fixture(scope="module")
def byte_level(corpus):
    return make_tokenizer(ByteLevelBPE(400), corpus.documents)


@pytest.fixture
def vocab_txt(cased, tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in cased.description["model"]["vocab"]))
    return tmp_path / "vocab.txt"


@pytest.fixture
def vocab_json(byte_level, tmp_path):
    model = byte_level.description["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    return tmp_path / "vocab.json"


def test_a_vocabulary_in_lines(cased, vocab_txt):
    tokenizer = opened(WordPiece(file=str(vocab_txt), lowercase=False))
    assert tokenizer.fingerprint == cased.fingerprint
    assert opened(WordPiece(file=str(vocab_txt.parent), lowercase=False)).fingerprint == cased.fingerprint
    lower = opened(WordPiece(file=str(vocab_txt)))
    assert lower.encode(TEXT) == cased.encode("the model, reads a row of ids!")


def test_a_config_beside_the_vocabulary_says_how_to_normalize(cased, vocab_txt):
    config = vocab_txt.parent / "tokenizer_config.json"
    config.write_text(json.dumps({"do_lower_case": False}))
    assert opened(WordPiece(file=str(vocab_txt))).fingerprint == cased.fingerprint
    config.write_text(json.dumps({"do_lower_case": True, "strip_accents": False}))
    assert opened(WordPiece(file=str(vocab_txt))).encode("Ré") == cased.encode("ré") != cased.encode("re")
    config.write_text("{")
    with pytest.raises(InputError, match=r"tokenizer_config\.json cannot be read as JSON"):
        opened(WordPiece(file=str(vocab_txt)))


def test_a_vocabulary_with_merges(byte_level, vocab_json):
    for path in (vocab_json, vocab_json.parent):
        assert opened(ByteLevelBPE(file=str(path))).fingerprint == byte_level.fingerprint
    (vocab_json.parent / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": True}))
    assert opened(ByteLevelBPE(file=str(vocab_json))).encode("row") == byte_level.encode(" row")


def test_a_tokenizer_json_comes_first(cased, vocab_txt, tmp_path):
    vocab_txt.write_text("nothing\n")
    (tmp_path / "tokenizer.json").write_text(cased.to_json())
    assert opened(WordPiece(file=str(tmp_path))).fingerprint == cased.fingerprint
    assert opened(TokenizerFile(str(tmp_path))).fingerprint == cased.fingerprint
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert opened(WordPiece(file=str(tmp_path))).encode("Ré") == cased.encode("re")


def test_what_was_saved_has_a_config(cased, byte_level, tmp_path):
    for name, tokenizer in {"cased": cased, "bytes": byte_level}.items():
        tokenizer.save(tmp_path / name)
        config = saved_config(tokenizer, tmp_path / name)
        assert not is_trained(config)
        assert opened(config).fingerprint == tokenizer.fingerprint


def test_files_of_another_kind(cased, byte_level, tmp_path):
    cased.save(tmp_path / "wordpiece")
    byte_level.save(tmp_path / "bpe")
    with pytest.raises(InputError, match=r"holds a BPE, not a WordPiece"):
        opened(WordPiece(file=str(tmp_path / "bpe")))
    with pytest.raises(InputError, match=r"holds a WordPiece, not a BPE; use TokenizerFile"):
        opened(ByteLevelBPE(file=str(tmp_path / "wordpiece" / "tokenizer.json")))


def test_missing_and_broken_files(vocab_json, tmp_path):
    with pytest.raises(InputError, match=r"file='/nowhere.txt': /nowhere.txt cannot be read"):
        opened(WordPiece(file="/nowhere.txt"))
    (vocab_json.parent / "merges.txt").unlink()
    with pytest.raises(InputError, match=r"merges\.txt cannot be read"):
        opened(ByteLevelBPE(file=str(vocab_json)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds none of tokenizer\.json, vocab\.txt, vocab\.json"):
        opened(WordPiece(file=str(tmp_path / "empty")))
    for content in ("", "[]", '{"model": {}}', '{"model": {"vocab": [1]}}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=r"tokenizer\.json .*; .*copy it again"):
            opened(TokenizerFile(str(tmp_path / "tokenizer.json")))
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"vocab\.txt has no unk_token"):
        opened(WordPiece(file=str(tmp_path / "vocab.txt")))
    (tmp_path / "vocab.txt").write_text("[UNK]\nb\n")
    with pytest.raises(InputError, match=r"vocab\.txt has no pad_token or eos_token"):
        opened(WordPiece(file=str(tmp_path / "vocab.txt")))


def test_a_damaged_saved_tokenizer(cased, tmp_path):
    cased.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"tokenizer\.json .*; .*copy it again"):
        load_tokenizer(tmp_path)
    file.unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(tmp_path)


BERT, ROBERTA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@pytest.mark.parametrize(
    ("tokens", "config", "expected"),
    [
        (BERT, {}, {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}),
        (ROBERTA, {}, {"cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "mask_token": "<mask>"}),
        (("<pad>", "</s>", "<unk>"), {}, {"eos_token": "</s>", "sep_token": None, "cls_token": None}),
        ((*ROBERTA, "<c>", "<m>"), {"cls_token": "<c>"}, {"cls_token": "<c>", "sep_token": None}),
        ((*ROBERTA, "<m>"), {"mask_token": {"content": "<m>", "lstrip": True}}, {"mask_token": "<m>"}),
        (ROBERTA, {"mask_token": "<gone>"}, {"mask_token": "<mask>"}),
    ],
)
def test_special_tokens_are_those_of_the_files(tmp_path, tokens, config, expected):
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / file).write_text(json.dumps(config))
        found = special_tokens(tmp_path, tokens)
        assert {role: found.get(role) for role in expected} == expected
        (tmp_path / file).unlink()
