import json
import shutil

import numpy as np
import pytest

from t5x_lite.data import ByteLevelBPE, Bytes, SentencePiece, TokenizerFile, WordPiece, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import ByteTokenizer, SentencePieceTokenizer, is_trained, saved_config

SENTINEL_TEXT = "the model <extra_id_0> a row <extra_id_9> loss"


def spmodel(spiece, tmp_path):
    spiece.save(tmp_path)
    return tmp_path / "spiece.model"


def test_sentencepiece_has_the_ids_of_t5(spiece):
    vocabulary = spiece.vocabulary
    assert vocabulary.special_ids == (0, 1, 2)
    assert (vocabulary.size, vocabulary.sentinel_id(0), vocabulary.sentinel_id(9)) == (110, 109, 100)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (None, None, None)
    assert spiece.mask_token is None


def test_sentencepiece_marks_words_bytes_do_not(spiece, corpus):
    continues = spiece.vocabulary.continues_word()
    for text in corpus.texts[:60]:
        assert (~continues[spiece.encode(text)]).sum() == len(text.split())
    assert not continues[[0, 1, 2, *range(100, 110)]].any()
    assert not ByteTokenizer(0).vocabulary.marks_words


def test_saved_before_there_were_layouts(spiece, tmp_path):
    spiece.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"format": 1, "kind": "sentencepiece", "extra_ids": 10}')
    assert load_tokenizer(tmp_path).fingerprint == spiece.fingerprint


def test_sentencepiece_round_trips_its_corpus(spiece, corpus):
    for text in corpus.texts[:50]:
        ids = spiece.encode(text)
        assert spiece.decode(ids) == text
        assert 1 not in ids and max(ids) < 100


@pytest.mark.parametrize(
    "text",
    [SENTINEL_TEXT, "<extra_id_0> the <extra_id_1> <extra_id_2>", "<extra_id_3>", "私は <extra_id_0>行きました", ""],
)
def test_sentencepiece_round_trips_sentinels(spiece, text):
    ids = spiece.encode(text)
    assert spiece.decode(ids) == text
    assert [i for i in ids if i >= 100] == [109 - int(part[0]) for part in text.split("<extra_id_")[1:]]


def test_text_glued_to_a_sentinel_starts_no_word(spiece):
    glued, spaced = spiece.encode("mo<extra_id_0>del"), spiece.encode("mo<extra_id_0> del")
    assert glued != spaced
    assert spiece.encode(spiece.decode(glued)) == glued
    assert spiece.encode(spiece.decode(spaced)) == spaced


def test_batches_encode_like_single_texts(spiece, corpus):
    texts = list(corpus.texts[:20])
    for tokenizer in (spiece, ByteTokenizer(0)):
        arrays = tokenizer.encode_batch(texts)
        assert all(array.dtype == np.int32 for array in arrays)
        assert [array.tolist() for array in arrays] == [tokenizer.encode(text) for text in texts]


def test_batches_do_not_parse_sentinels(spiece):
    assert max(spiece.encode_batch([SENTINEL_TEXT])[0]) < 100
    assert max(ByteTokenizer(0).encode_batch([SENTINEL_TEXT])[0]) < 131


def test_decode_leaves_out_pad_eos_and_ids_that_do_not_exist(spiece):
    ids = spiece.encode("the model")
    assert spiece.decode([0, *ids, 1, 110, 127, 5000, -1, 0]) == "the model"
    assert ByteTokenizer(0).decode(np.array([0, 107, 1, 259, 383])) == "h"


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_training_is_deterministic_and_fills_the_vocabulary(corpus, algorithm):
    config = SentencePiece(vocab_size=90, extra_ids=0, algorithm=algorithm)
    first, second = (make_tokenizer(config, corpus.documents) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert first.vocabulary.size == 90


def test_training_is_silent(corpus, capfd):
    make_tokenizer(SentencePiece(vocab_size=90), corpus.documents)
    assert capfd.readouterr() == ("", "")


def test_bytes_as_byt5_was_published():
    tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
    assert (tokenizer.vocabulary.size, tokenizer.vocabulary.num_sentinels) == (259, 100)
    assert tokenizer.encode("Hi 猫<extra_id_0>") == [75, 108, 35, 234, 143, 174, 258]
    assert tokenizer.encode("<extra_id_99>") == [159]


@pytest.mark.parametrize("text", ["naïve 猫 🐈", " two  blanks\n", "a<extra_id_0>b <extra_id_10> ", ""])
@pytest.mark.parametrize("extra_ids", [0, 100])
def test_bytes_round_trip_exactly(text, extra_ids):
    tokenizer = ByteTokenizer(extra_ids)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_character_survives_reused_byte_ids():
    text = "".join(map(chr, (*range(1, 0xD800, 7), *range(0xE000, 0x110000, 997))))
    tokenizer = ByteTokenizer(0)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_with_their_own_sentinels():
    tokenizer = ByteTokenizer(20)
    assert tokenizer.vocabulary.size == 279
    assert tokenizer.encode("<extra_id_0><extra_id_19>") == [278, 259]
    assert tokenizer.decode([278, 107, 259]) == "<extra_id_0>h<extra_id_19>"


def test_saving_and_loading(spiece, tmp_path):
    for name, tokenizer in {"sp": spiece, "bytes": ByteTokenizer(7)}.items():
        tokenizer.save(tmp_path / name)
        loaded = load_tokenizer(tmp_path / name)
        config = saved_config(tokenizer, tmp_path / name)
        assert make_tokenizer(config, lambda: iter(())).fingerprint == tokenizer.fingerprint
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.vocabulary == tokenizer.vocabulary
        assert loaded.encode(SENTINEL_TEXT.replace("9", "5")) == tokenizer.encode(SENTINEL_TEXT.replace("9", "5"))


def test_fingerprints_differ(spiece):
    others = [SentencePieceTokenizer(spiece.model, 11), ByteTokenizer(0), ByteTokenizer(100)]
    assert len({spiece.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_a_model_file_is_loaded(spiece, tmp_path):
    config = SentencePiece(model_file=str(spmodel(spiece, tmp_path)), extra_ids=10)
    assert make_tokenizer(config, lambda: iter(())).fingerprint == spiece.fingerprint


def train_error(texts, **options):
    with pytest.raises(InputError) as raised:
        make_tokenizer(SentencePiece(**options), lambda: iter(texts))
    return str(raised.value)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_the_remedy_for_a_large_vocabulary_works(corpus, algorithm):
    message = train_error(corpus.texts, vocab_size=32_000, algorithm=algorithm)
    most = int(message.split("at most ")[1].split()[0])
    assert "vocab_size=32000" in message
    config = SentencePiece(vocab_size=most, algorithm=algorithm)
    assert make_tokenizer(config, corpus.documents).vocabulary.size == most + 100


def test_training_errors(corpus):
    assert "vocab_size=5 has no room" in train_error(corpus.texts, vocab_size=5)
    assert "corpus is empty" in train_error([])
    assert "corpus is empty" in train_error(["  ", "\n"])


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_corrupt_model_files(spiece, tmp_path, size):
    path = spmodel(spiece, tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=r"spiece.model is not a SentencePiece model"):
        make_tokenizer(SentencePiece(model_file=str(path)), lambda: iter(()))


def test_missing_files(spiece, tmp_path):
    with pytest.raises(InputError, match=r"model_file='/nowhere'.*cannot be read"):
        make_tokenizer(SentencePiece(model_file="/nowhere"), lambda: iter(()))
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(tmp_path)
    spmodel(spiece, tmp_path).unlink()
    with pytest.raises(InputError, match=r"spiece\.model cannot be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", json.dumps({"kind": "words", "extra_ids": 1}), '{"kind": "sentencepiece", "layout": "x"}'],
)
def test_a_corrupt_config(spiece, tmp_path, content):
    spiece.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(InputError, match="corrupt"):
        load_tokenizer(tmp_path)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extra_ids": -1}, "extra_ids=-1"),
        ({"vocab_size": 3}, "vocab_size=3"),
        ({"character_coverage": 1.5}, "character_coverage=1.5"),
        ({"algorithm": "word"}, "algorithm='word'"),
    ],
)
def test_configs_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        SentencePiece(**options)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: WordPiece(character_coverage=0.0), "character_coverage=0.0"),
        (lambda: ByteLevelBPE(vocab_size=260), "vocab_size=260 has no room for 256 bytes.*choose 261 or more"),
    ],
)
def test_configs_of_encoders_are_checked(config, message):
    with pytest.raises(InputError, match=message):
        config()


def test_which_configs_are_trained():
    assert all(map(is_trained, (SentencePiece(), WordPiece(), ByteLevelBPE(), SentencePiece(layout="albert"))))
    loaded = (SentencePiece(model_file="m"), WordPiece(file="v"), ByteLevelBPE(file="v"), TokenizerFile("t"), Bytes())
    assert not any(map(is_trained, loaded))


def test_other_misuse(spiece):
    with pytest.raises(InputError, match="extra_ids=-2"):
        Bytes(extra_ids=-2)
    with pytest.raises(InputError, match="is not a tokenizer config"):
        make_tokenizer("spiece", lambda: iter(()))
    with pytest.raises(InputError, match="<extra_id_10>"):
        spiece.encode("<extra_id_10>")
